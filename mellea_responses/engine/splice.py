"""Continuing with the tokens that were generated, not with what a tokenizer makes of their text.

A sampled answer is often not the token sequence that the tokenizer would choose for the same text, and the first
difference would lose the cache of everything after it. So every finished turn leaves a `Trace`: its exact tokens and
the text they stand for. The next prompt is rendered as text; where it repeats a trace, the trace's tokens are taken,
and only the rest is tokenised.

The two are joined right before a special token. No merge crosses a special token, so tokenising the rest alone gives
the same tokens as tokenising everything.
"""

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import msgspec

from mellea_responses.engine.fence import FENCE

Match = Literal["exact", "call id", "visible", "text", "none"]
"""How a prompt continues what is known.

- `exact`: it repeats a finished turn to the letter.
- `call id`: it answers the calls of a finished turn, which the template writes differently from how the model did.
- `visible`: it repeats a finished turn except for reasoning that the client never saw or left out.
- `text`: it shares a beginning, up to a special token.
- `none`: nothing.
"""


class Joint(NamedTuple):
    """A place right before a special token, in characters and in tokens."""

    chars: int
    tokens: int


class Answer(NamedTuple):
    """An answer of the model that a text contains: its turn, where it ends, and how it was continued."""

    turn: bytes
    chars: int
    match: Match


class Trace(msgspec.Struct, frozen=True):
    """What one finished turn fed and said.

    Args:
        text: The prompt as rendered and the answer as written, special tokens by name.
        tokens: Exactly the tokens of that text.
        joints: Places where a continuation may be joined, in ascending order.
        prompt_chars: Where the answer begins in `text`.
        end: Name of the special token that ended the answer; empty if it was cut.
        turn: Digest of the visible conversation with the answer; empty if the answer is not what the reader has.
        parts: Texts of the answer that the template must show again in this order: reasoning, words, names of calls.
        calls: Whether the answer calls tools.
        answers: Answers of earlier turns in the prompt.
    """

    text: str
    tokens: tuple[int, ...]
    joints: tuple[Joint, ...]
    prompt_chars: int
    end: str = ""
    turn: bytes = b""
    parts: tuple[str, ...] = ()
    calls: bool = False
    answers: tuple[Answer, ...] = ()


class Prompt(msgspec.Struct, frozen=True):
    """A prompt ready to feed: its text, the tokens and how they were found."""

    text: str
    tokens: tuple[int, ...]
    joints: tuple[Joint, ...]
    match: Match = "none"
    turn: bytes = b""
    answers: tuple[Answer, ...] = ()


class Codec:
    """Tokenises text and knows where in it special tokens stand. Safe to call from any thread.

    Args:
        tokenizer: A transformers tokenizer.
        closer: Name of the special token with which the chat template ends an earlier answer; empty if unknown.
    """

    def __init__(self, tokenizer: Any, closer: str = "") -> None:
        self.closer = closer
        self._tokenizer = tokenizer
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        # A token that swallows neighbouring spaces is no clean joint.
        self._clean = {
            id_: token.content
            for id_, token in tokenizer.added_tokens_decoder.items()
            if token.special and not (token.lstrip or token.rstrip or token.single_word)
        }
        self._names = tuple(self._clean.values())

    def encode(self, text: str, chars: int = 0, tokens: int = 0) -> tuple[list[int], list[Joint]]:
        """Tokens and joints of `text[chars:]`, counted as if `tokens` tokens stood before it.

        A fence makes no token; no token stands for text on both sides of it.
        """
        pieces = text[chars:].split(FENCE)
        if self._backend is None or (len(pieces) > 1 and not self._names):
            return [id_ for piece in pieces for id_ in self._tokenizer.encode(piece, add_special_tokens=False)], []
        # A special token instead of the fence keeps both sides one text for the tokenizer, and merges from crossing.
        wall = self._names[0] if self._names else ""
        encoding = self._backend.encode(wall.join(pieces), add_special_tokens=False)
        walls = {at + n * len(wall) for n, at in enumerate(accumulate(map(len, pieces[:-1])))}
        ids: list[int] = []
        joints: list[Joint] = []
        gone = 0
        for n, id_ in enumerate(encoding.ids):
            place = encoding.token_to_chars(n) if id_ in self._clean else None
            if place is not None and place[0] in walls:
                gone += len(wall) - len(FENCE)
                continue
            if place is not None:
                joints.append(Joint(chars + place[0] - gone, tokens + len(ids)))
            ids.append(id_)
        return ids, joints

    def joins_at(self, text: str, chars: int) -> bool:
        """Whether a special token begins at this place."""
        return self._backend is not None and text.startswith(self._names, chars)


def splice(
    text: str,
    turns: Mapping[bytes, bool],
    traces: Iterable[Trace],
    codec: Codec,
    bound: Callable[[Trace], int] = lambda trace: sys.maxsize,
) -> Prompt:
    """The tokens of a rendered prompt, taken from traces as far as they hold.

    Args:
        text: The prompt.
        turns: Digests of the visible conversation after each earlier answer in it, in order, and whether reasoning
            that the client left out was put back into that answer.
        traces: What this owner's finished turns left.
        codec: The tokenizer.
        bound: Where in the text the answer of a trace is over at the latest, since what others said begins there; 0 if
            the prompt's answer is another one.
    """
    best: tuple[Joint, Joint, Match, Trace] | None = None
    for trace in traces:
        found = _continuation(text, turns, trace, codec, bound) or _shared_beginning(text, trace, codec)
        if found is not None and (best is None or found[0].chars > best[0].chars):
            best = (*found, trace)
    if best is None:
        tokens, joints = codec.encode(text)
        return Prompt(text, tuple(tokens), tuple(joints))
    here, there, match, trace = best
    suffix, joints = codec.encode(text, here.chars, there.tokens)
    kept = [joint for joint in trace.joints if joint.chars < min(here.chars, trace.prompt_chars)]
    answers = [answer for answer in trace.answers if answer.chars <= here.chars]
    if match != "text":
        answers.append(Answer(trace.turn, here.chars, match))
    elif answers and answers[-1].turn in list(turns)[-1:]:
        # Another turn went on from the same last answer, and this prompt shares more with that turn's own words.
        match = answers[-1].match
    return Prompt(text, trace.tokens[: there.tokens] + tuple(suffix), (*kept, *joints), match, answers=tuple(answers))


def _continuation(
    text: str, turns: Mapping[bytes, bool], trace: Trace, codec: Codec, bound: Callable[[Trace], int]
) -> tuple[Joint, Joint, Match] | None:
    """Where the prompt goes on after the whole turn: the place in the prompt and the place in the trace."""
    last = trace.joints[-1] if trace.joints else None
    if last is None or last.chars < trace.prompt_chars:
        return None
    said = trace.text[: last.chars]
    if text.startswith(said) and codec.joins_at(text, last.chars):
        return last, last, "visible" if turns.get(trace.turn) else "exact"
    if trace.turn not in turns or not text.startswith(trace.text[: trace.prompt_chars]):
        return None
    stop = _end_of_answer(text[: bound(trace)], trace, codec)
    if stop is None:
        return None
    match: Match = "call id" if trace.calls else "visible" if turns[trace.turn] else "exact"
    return Joint(stop, last.tokens), last, match


def _end_of_answer(text: str, trace: Trace, codec: Codec) -> int | None:
    """Where a text closes the answer at its end, which the template writes differently from how the model did.

    Everything the answer said must be there, in its order; a template that drops the reasoning shows another answer.
    """
    at = trace.prompt_chars
    for part in trace.parts:
        at = text.find(part, at) + len(part)
        if at < trace.prompt_chars + len(part):
            return None
    closers = (text.find(name, at) for name in {trace.end, codec.closer} if name)
    return min((place for place in closers if place >= 0), default=None)


def _shared_beginning(text: str, trace: Trace, codec: Codec) -> tuple[Joint, Joint, Match] | None:
    """The last joint in what prompt and trace have in common."""
    common = common_length(text, trace.text)
    at = bisect_right(trace.joints, common, key=lambda joint: joint.chars)
    for joint in reversed(trace.joints[:at]):
        if joint.chars and codec.joins_at(text, joint.chars):
            return joint, joint, "text"
    return None


def common_length(a: str | Sequence[int], b: str | Sequence[int]) -> int:
    """Length of the longest common beginning, by halving: comparing slices is far faster than a loop."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle)
    return low
