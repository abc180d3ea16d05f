"""What a client wrote stays text, also where it reads like a control token.

A prompt is rendered as text and then tokenised, and a tokenizer takes `<|im_end|>` for the token that ends a turn
whoever wrote it. So each such name in a conversation is broken, before it is rendered, by a character that no text can
hold; `splice.Codec` takes the character out again while it tokenises.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mellea_responses.errors import InvalidRequest, well_formed

FENCE = "\udfff"
"""A lone surrogate. `marks` uses the others."""

Message = dict[str, Any]


class Fence:
    """Breaks the names of one model's control tokens.

    Args:
        control: Names that are never obeyed, whoever wrote them: special tokens, and what divides the turns.
        markup: Names that the chat template writes around what users and tools say. Developers teach with them and
            templates look for them in answers, so elsewhere they keep their meaning.
    """

    def __init__(self, control: Iterable[str] = (), markup: Iterable[str] = ()) -> None:
        control = tuple(control)
        self._control, self._all = _pattern(control), _pattern((*control, *markup))

    def text(self, text: str) -> str:
        """A text with the name of every control token in it broken."""
        return _broken(text, self._control)

    def message(self, message: Message) -> Message:
        """A message of the conversation, calls and reasoning included.

        Raises:
            InvalidRequest: It is nested too deeply.
        """
        names = self._all if message["role"] in ("user", "tool") else self._control
        return {key: value if key == "role" else _fenced(value, names) for key, value in message.items()}

    def value(self, value: Any) -> Any:
        """Tools, or anything else of JSON that a template may show.

        Raises:
            InvalidRequest: It is nested too deeply.
        """
        return _fenced(value, self._control)


def _pattern(names: Iterable[str]) -> re.Pattern[str] | None:
    """Finds the first character of each name; a name may begin within another."""
    rests: dict[str, list[str]] = {}
    for name in sorted(set(names), key=len, reverse=True):
        if len(name) > 1:
            rests.setdefault(name[0], []).append(re.escape(name[1:]))
    starts = (f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items())
    return re.compile("|".join(starts)) if rests else None


def _broken(text: str, names: re.Pattern[str] | None) -> str:
    text = well_formed(text.replace(FENCE, ""))
    return text if names is None else names.sub(rf"\g<0>{FENCE}", text)


def _fenced(value: Any, names: re.Pattern[str] | None) -> Any:
    try:
        return _walked(value, names)
    except RecursionError:
        raise InvalidRequest("The request is nested too deeply for the model's chat template.", param="input") from None


def _walked(value: Any, names: re.Pattern[str] | None) -> Any:
    if isinstance(value, str):
        return _broken(value, names)
    if isinstance(value, Mapping):
        return {_walked(key, names): _walked(inner, names) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_walked(inner, names) for inner in value]
    return value


def fence_of(tokenizer: Any, between_turns: str = "") -> Fence:
    """The fence for a tokenizer and its chat template.

    Args:
        tokenizer: A transformers tokenizer.
        between_turns: What the template writes between an answer and the next user's words. A few vocabularies do not
            call the tokens there special.
    """
    tokens = [(str(token.content), bool(token.special)) for token in tokenizer.added_tokens_decoder.values()]
    template = str(tokenizer.chat_template or "")
    # Some vocabularies add words and runs of blanks as tokens; those are no markup.
    marks = [name for name, special in tokens if not special and _reads_like_markup(name)]
    control = [name for name, special in tokens if special] + [name for name in marks if name in between_turns]
    return Fence(control, [name for name in marks if name in template])


def _reads_like_markup(name: str) -> bool:
    return len(name) > 2 and not name.isalnum() and name == name.strip()
