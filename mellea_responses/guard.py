"""Steps × Turn → Steps that may leave. Pure: no clock, no tasks, no store.

A call's name and permission are judged before it opens, its arguments before it ends: some clients run a call the
moment they see it. The answer's form and a demanded call are judged at the stop. Whatever breaks a rule ends the
response with a `Fail`; what was said before has left and stays true.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, assert_never

import msgspec

from mellea_responses.catalog import Catalog, Resolved
from mellea_responses.errors import (
    ApiError,
    InvalidStructuredOutput,
    InvalidToolCall,
    ModelFailed,
    ToolChoiceViolated,
    well_formed,
)
from mellea_responses.schemas import Schema
from mellea_responses.turn import (
    Annotation,
    Call,
    CallArgs,
    CallEnd,
    Compacted,
    Fail,
    ItemDone,
    ItemOpen,
    Refusal,
    Said,
    Step,
    Stop,
    Text,
    Thought,
    Turn,
    Usage,
)
from mellea_responses.wire.items import RECEIPTS, is_call, item_call_id
from mellea_responses.wire.tools import AllowedTools, ToolRef

MIB = 2**20


def failure(error: ApiError) -> Fail:
    """An error as the run's last word."""
    return Fail(code=error.code, message=error.message, error_type=error.type, param=error.param)


class _OpenCall:
    """A call that was let through, with what its end will be judged by."""

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.pieces: list[str] = []
        self._leaves = resolved.kind != "custom"  # a custom tool's text may be wrapped: until that is known it waits
        self._wrapped = False

    def take(self, text: str) -> str:
        """More of the arguments; the answer is what may leave now.

        A model is shown a custom tool as a function with one parameter `input` and calls it so; a program may give the
        text as it is.
        """
        self.pieces.append(text)
        if self._leaves:
            return text
        start = text.lstrip()
        if self._wrapped or not start:
            return ""
        self._wrapped = start[0] == "{"
        self._leaves = not self._wrapped
        return "".join(self.pieces) if self._leaves else ""

    def rest(self, *, whole: bool) -> str:
        """What was held back: the text in its wrapper, or as it is."""
        if self._leaves:
            return ""
        self._leaves, text = True, "".join(self.pieces)
        value = _parse(text) if whole and self._wrapped else None
        if isinstance(value, dict) and value.keys() == {"input"} and isinstance(value["input"], str):
            return well_formed(value["input"])
        return text


class Guard:
    """Judges one response.

    Args:
        turn: What was asked and declared.
        max_bytes: Bytes of text, thoughts and arguments after which the answer is cut.
    """

    def __init__(self, turn: Turn, *, max_bytes: int = 8 * MIB) -> None:
        self._turn = turn
        self._catalog = Catalog(turn.tools)
        self._left = max_bytes
        self._open: dict[str, _OpenCall] = {}
        self._muted: set[str] = set()  # calls beyond the one that `parallel_tool_calls: false` allows
        self._calls = 0
        self._call_ids: set[str | None] | None = None  # those of the turn and of this answer, once one is given
        self._server_calls = 0
        self._running: list[str] = []  # types of receipts that are open
        self._refused = False
        self._judged = turn.format.kind == "json_object" or (turn.format.kind == "json_schema" and turn.format.strict)
        self._text: list[str] = []  # only kept where the answer's form is judged
        self.ended = False

    def hear(self, step: Step | Compacted) -> list[Said]:
        """What may leave of this step. The last word is a `Stop` or a `Fail`; after it nothing leaves."""
        if self.ended:
            return []
        if type(step) is Text and not self._judged and step.text.isascii() and len(step.text) <= self._left:
            self._left -= len(step.text)  # the most frequent step by far
            return [step]
        try:
            said = list(self._hear(step))
        except ApiError as error:
            said = [failure(error)]
        self.ended = bool(said) and isinstance(said[-1], Stop | Fail)
        if self.ended:  # calls that are cut say what they have
            said[-1:-1] = [CallArgs(key, held) for key, call in self._open.items() if (held := call.rest(whole=False))]
        return said

    def _hear(self, step: Step | Compacted) -> Iterator[Said]:
        match step:
            case Text(text=text):
                if self._judged:
                    self._text.append(text)
                yield from self._within_limit(step, text)
            case Thought(text=text):
                yield from self._within_limit(step, text)
            case Refusal(text=text):
                self._refused = True
                yield from self._within_limit(step, text)
            case Call():
                yield from self._call(step)
            case CallArgs():
                yield from self._args(step)
            case CallEnd():
                yield from self._end(step)
            case ItemOpen() | ItemDone():
                yield self._receipt(step)
            case Annotation(url=url, title=title):
                yield msgspec.structs.replace(step, url=well_formed(url), title=well_formed(title))
            case Usage() | Compacted():
                yield step
            case Stop():
                yield from self._stop(step)
            case _:
                assert_never(step)

    def _within_limit(self, step: Text | Thought | Refusal | CallArgs, text: str) -> Iterator[Said]:
        try:
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError:
            text = well_formed(text)
            step, size = msgspec.structs.replace(step, text=text), len(text.encode())
        if size > self._left:
            kept = text.encode()[: self._left].decode(errors="ignore")
            yield msgspec.structs.replace(step, text=kept)
            yield Stop("length")
        else:
            self._left -= size
            yield step

    # Calls.

    def _call(self, step: Call) -> Iterator[Said]:
        if step.key in self._open or step.key in self._muted:
            raise ProgramError(f"The program opened the call {step.key!r} twice.")
        if self._calls and not self._turn.parallel_tool_calls:
            self._muted.add(step.key)
            return
        resolved = self._catalog.resolve(step.name, step.namespace)
        if resolved is None:
            raise InvalidToolCall(f"The model called `{step.name[:64]}`, which is no declared tool.")
        self._permit(resolved)
        self._calls += 1
        self._open[step.key] = _OpenCall(resolved)
        yield Call(step.key, resolved.name, resolved.namespace, self._fresh(step.call_id), resolved.kind)

    def _fresh(self, call_id: str | None) -> str | None:
        """The call's id, unless another call has it: some models number the calls of each answer from zero."""
        if not call_id:
            return None
        call_id = well_formed(call_id)
        if self._call_ids is None:
            self._call_ids = {item_call_id(item) for item in self._turn.items if is_call(item)}
        if call_id in self._call_ids:
            return None
        self._call_ids.add(call_id)
        return call_id

    def _permit(self, tool: Resolved) -> None:
        choice = self._turn.tool_choice
        if choice == "none" or (isinstance(choice, AllowedTools) and choice.mode == "none"):
            raise ToolChoiceViolated(f"The model called `{tool.name}` though tool_choice is none.")
        allowed = (
            choice.tools if isinstance(choice, AllowedTools) else [choice] if isinstance(choice, ToolRef) else None
        )
        if allowed is not None and not any(tool.is_meant_by(ref) for ref in allowed):
            raise ToolChoiceViolated(f"The model called `{tool.name}`, which tool_choice does not allow.")

    def _args(self, step: CallArgs) -> Iterator[Said]:
        if step.key in self._muted:
            return
        for said in self._within_limit(step, step.text):
            if not isinstance(said, CallArgs):
                yield said
            elif text := self._of(step.key).take(said.text):
                yield CallArgs(step.key, text)

    def _end(self, step: CallEnd) -> Iterator[Said]:
        if step.key in self._muted:
            self._muted.remove(step.key)
            return
        call = self._of(step.key)
        text = "".join(call.pieces)
        if not text.strip() and call.resolved.kind != "custom":
            yield CallArgs(step.key, "{}")  # no arguments, in the form every client can parse
            text = "{}"
        self._check_arguments(call.resolved, text)
        if held := call.rest(whole=True):
            yield CallArgs(step.key, held)
        del self._open[step.key]
        yield step

    def _of(self, key: str) -> _OpenCall:
        if key not in self._open:
            raise ProgramError(f"The program gave arguments for the call {key!r}, which is not open.")
        return self._open[key]

    def _check_arguments(self, tool: Resolved, text: str) -> None:
        if tool.kind == "custom":
            return
        value = _parse(text)
        if not isinstance(value, dict):
            raise InvalidToolCall(f"The model called `{tool.name}` with arguments that are no JSON object.")
        if tool.strict_schema is not None:
            complaint = Schema(tool.strict_schema, "tools").complaint(value)
            if complaint:
                raise InvalidToolCall(f"The model called `{tool.name}` with wrong arguments: {complaint}.")

    # Receipts.

    def _receipt(self, step: ItemOpen | ItemDone) -> Step:
        """The receipt as plain JSON; only tools of the server leave receipts, so no call passes the guard as one."""
        try:
            item = msgspec.json.decode(msgspec.json.encode(step.item))
        except (TypeError, ValueError, RecursionError, OverflowError) as exc:
            raise ProgramError(f"The program gave a receipt that is no JSON: {exc}") from None
        kind = item.get("type") if isinstance(item, dict) else None
        if kind not in RECEIPTS:
            raise ProgramError(f"The program gave a receipt of type {kind!r}, which no tool of a server leaves.")
        if isinstance(step, ItemDone) and kind in self._running:
            self._running.remove(kind)
            return ItemDone(item)
        if isinstance(step, ItemOpen):
            self._running.append(kind)
        if kind.endswith("_call"):
            self._server_calls += 1
            limit = self._turn.max_tool_calls
            if limit is not None and self._server_calls > limit:
                raise ModelFailed(f"The program ran more than {limit} tools.", code="max_tool_calls_exceeded")
        return type(step)(item)

    # The stop.

    def _stop(self, step: Stop) -> Iterator[Said]:
        if step.reason == "stop":
            for key in list(self._open):
                yield from self._end(CallEnd(key))
            self._check_choice()
            self._check_form()
        yield step

    def _check_choice(self) -> None:
        choice = self._turn.tool_choice
        demanded = choice == "required" or isinstance(choice, ToolRef)
        if isinstance(choice, AllowedTools):
            demanded = choice.mode == "required"
        if demanded and not self._calls:
            what = f"`{choice.name or choice.type}`" if isinstance(choice, ToolRef) else "a tool"
            raise ToolChoiceViolated(f"tool_choice demands a call of {what}, and the model made none.")

    def _check_form(self) -> None:
        if not self._judged or self._calls or self._refused:
            return
        form, value = self._turn.format, _parse("".join(self._text))
        if form.kind == "json_object":
            if not isinstance(value, dict):
                raise InvalidStructuredOutput("The answer is no JSON object, which text.format demands.")
            return
        complaint = "it is no JSON" if value is _BROKEN else Schema(form.schema or {}, "text.format").complaint(value)
        if complaint:
            raise InvalidStructuredOutput(f"The answer does not fit the schema `{form.name[:64]}`: {complaint}.")


class ProgramError(ApiError):
    """The program spoke steps that make no sense; the client learns only that it failed."""

    def __init__(self, cause: str) -> None:
        super().__init__("The program failed.")
        self.cause = cause


_BROKEN = object()
_MOST_DIGITS = 300


def _parse(text: str) -> Any:
    try:
        try:
            return msgspec.json.decode(text)
        except msgspec.ValidationError:  # JSON with a number too large for ours; to be judged it need not be held
            return json.loads(text, parse_float=_held, parse_int=_held, parse_constant=_refuse)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _BROKEN


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _held(digits: str) -> int | float:
    """The number, or the largest there is."""
    if len(digits) < _MOST_DIGITS and digits.lstrip("-").isdigit():
        return int(digits)
    return max(-sys.float_info.max, min(sys.float_info.max, float(digits)))
