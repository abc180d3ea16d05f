"""Writing Steps: one pen for a whole answer, so that spaces around markup and half-told calls are handled once."""

import json
import secrets
from collections.abc import Callable

from mellea_responses.engine.marks import Marks
from mellea_responses.engine.values import refuse
from mellea_responses.turn import Call, CallArgs, CallEnd, Step, Text, Thought
from mellea_responses.wire.items import Phase

BLANK = " \t\r\n"


def mint_call_id() -> str:
    """`call_` and 24 random hex digits."""
    return f"call_{secrets.token_hex(12)}"


class Pen:
    """Collects the steps of one answer.

    Blanks next to markup belong to the markup and are left out; all others are kept as the model wrote them.

    Args:
        marks: Turns markers back into what they read.
        mint: Makes the id of a call that the model gave none.
    """

    def __init__(self, marks: Marks, mint: Callable[[], str] = mint_call_id) -> None:
        self.phase: Phase | None = None
        self._marks = marks
        self._mint = mint
        self._steps: list[Step] = []
        self._blank = ""
        self._trim = False
        self._calls = 0
        self._args: list[str] | None = None

    def take(self) -> list[Step]:
        """The steps since the last time."""
        steps, self._steps = self._steps, []
        return steps if len(steps) < 2 else _joined(steps)

    def text(self, text: str) -> None:
        if body := self._body(self._marks.drop(text)):
            self._steps.append(Text(body, phase=self.phase))

    def thought(self, text: str) -> None:
        if body := self._body(self._marks.decode(text)):
            self._steps.append(Thought(body))

    def seam(self) -> None:
        """A marker stands here."""
        self._blank, self._trim = "", True

    def flush(self) -> None:
        """Nothing follows: blanks at the very end of a text are the model's own."""
        if self._blank:
            self._steps.append(Text(self._blank, phase=self.phase))
            self._blank = ""

    def forget_blank(self) -> None:
        """What was read so far was the prompt's, and so are the blanks at its end."""
        self._blank = ""

    def _body(self, text: str) -> str:
        """`text` without blanks that might turn out to stand next to a marker."""
        if self._trim:
            text = text.lstrip(BLANK)
            if not text:
                return ""
            self._trim = False
        text = self._blank + text
        body = text.rstrip(BLANK)
        self._blank = text[len(body) :]
        return body

    def call(self, name: str, call_id: str | None = None) -> None:
        """A call begins; the one before it, if still open, stays incomplete."""
        self.seam()
        self._calls += 1
        self._args = []
        self._steps.append(Call(str(self._calls), self._marks.decode(name), call_id=call_id or self._mint()))

    def args(self, text: str) -> None:
        """More arguments of the open call, as written."""
        if self._args is not None and text:
            text = self._marks.decode(text)
            self._args.append(text)
            self._steps.append(CallArgs(str(self._calls), text))

    def end(self, *, whole: bool) -> None:
        """The open call is over. It is complete only if its arguments are an object; `whole`: none at all are `{}`."""
        if self._args is None:
            return
        if whole and not "".join(self._args).strip():
            self.args("{}")
        if _is_object("".join(self._args)):
            self._steps.append(CallEnd(str(self._calls)))
        self._args = None
        self.seam()

    @property
    def open_call(self) -> str | None:
        """The key of the call that is being written."""
        return None if self._args is None else str(self._calls)


def _joined(steps: list[Step]) -> list[Step]:
    """Neighbours of one kind as one: a piece of text that was looked at letter by letter is still one piece."""
    joined: list[Step] = []
    for step in steps:
        last = joined[-1] if joined else None
        if isinstance(step, Text) and isinstance(last, Text) and last.phase == step.phase:
            joined[-1] = Text(last.text + step.text, phase=step.phase)
        elif isinstance(step, Thought) and isinstance(last, Thought):
            joined[-1] = Thought(last.text + step.text)
        elif isinstance(step, CallArgs) and isinstance(last, CallArgs) and last.key == step.key:
            joined[-1] = CallArgs(step.key, last.text + step.text)
        else:
            joined.append(step)
    return joined


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=refuse), dict)
    except (ValueError, RecursionError):
        return False
