"""Server-sent events as they stand on the wire: comments, `event:` lines and their order are kept."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Frame:
    """One block between blank lines, with its lines as they were sent."""

    lines: tuple[str, ...]

    @property
    def is_comment(self) -> bool:
        return all(line.startswith(":") for line in self.lines)

    @property
    def is_done(self) -> bool:
        return self.lines == ("data: [DONE]",)

    @property
    def is_event(self) -> bool:
        return not self.is_comment and not self.is_done

    @property
    def event(self) -> str | None:
        """The value of the `event:` line."""
        return self._field("event")

    @property
    def data(self) -> str:
        return self._field("data") or ""

    @property
    def json(self) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.data)
        return payload

    @property
    def names(self) -> list[str]:
        """Names of the fields in order; the empty name is a comment's."""
        return [line.split(":", 1)[0] for line in self.lines]

    def _field(self, name: str) -> str | None:
        values = [line.removeprefix(f"{name}: ") for line in self.lines if line.startswith(f"{name}: ")]
        return values[0] if len(values) == 1 else None


class Splitter:
    """Bytes in, whole frames out; what is not yet whole waits in `rest`."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        *blocks, self.rest = (self.rest + data).split(b"\n\n")
        return [Frame(tuple(block.decode().split("\n"))) for block in blocks]


def read(body: bytes, *, complete: bool = True) -> list[Frame]:
    """All frames of a body; a body that ended by itself must not end inside a frame."""
    splitter = Splitter()
    frames = splitter.feed(body)
    assert not (complete and splitter.rest), f"the body ends inside a frame: {splitter.rest[:80]!r}"
    return frames
