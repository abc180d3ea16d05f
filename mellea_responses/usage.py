"""Token counts for programs that count none: four bytes are about one token. The access line says `usage=estimated`."""

from collections.abc import Iterable, Mapping

from mellea_responses.turn import Turn, Usage
from mellea_responses.wire import items as w

BYTES_PER_TOKEN = 4
_NOTHING: Mapping[w.Part, str] = {}


def estimate(turn: Turn, output: Iterable[w.Item]) -> Usage:
    """A guess at the counts of one answer; never zero for text that is there."""
    output = list(output)
    thoughts = sum(_size(item) for item in output if isinstance(item, w.Reasoning))
    said = sum(_size(item) for item in output) - thoughts
    read = sum(_size(item, turn.media) for item in turn.items) + len((turn.instructions or "").encode())
    return Usage(
        input_tokens=_tokens(read), output_tokens=_tokens(said) + _tokens(thoughts), reasoning_tokens=_tokens(thoughts)
    )


def _tokens(size: int) -> int:
    return -(-size // BYTES_PER_TOKEN)


def _size(item: w.Item, media: Mapping[w.Part, str] = _NOTHING) -> int:
    match item:
        case w.Message():
            return sum(_part(part, media) for part in item.content)
        case w.Reasoning():
            return sum(len(part.text.encode()) for part in item.content or item.summary)
        case w.FunctionCall():
            return len(item.name) + len(item.arguments.encode())
        case w.CustomToolCall():
            return len(item.name) + len(item.input.encode())
        case w.FunctionCallOutput() | w.CustomToolCallOutput():
            if isinstance(item.output, str):
                return len(item.output.encode())
            return sum(_part(part, media) for part in item.output)
        case _:
            return 0


def _part(part: w.Part, media: Mapping[w.Part, str]) -> int:
    file = media.get(part) if isinstance(part, w.InputFile) else None
    text = file or getattr(part, "text", None) or getattr(part, "refusal", None)
    return len(text.encode()) if text else 0
