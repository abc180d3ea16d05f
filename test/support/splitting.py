"""Small tokenizers with chosen marker tokens, and ways to cut an output into what a splitter is fed."""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerFast

from mellea_responses.engine.parse import Splitter, make_splitter
from mellea_responses.turn import Call, CallArgs, CallEnd, Step, Text, Thought

Pieces = Iterator[tuple[Sequence[int], str]]


def tokenizer_with(special: Sequence[str], added: Sequence[str], template: str = "") -> PreTrainedTokenizerFast:
    """One token a byte, and the given markers: special ones, and ones that are tokens but not special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({char: n for n, char in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in added])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.chat_template = template
    return tokenizer


def splitter_for(tokenizer: Any, prompt: str, tools: Sequence[dict[str, Any]] = ()) -> Splitter:
    """A splitter that numbers its calls `id1`, `id2`."""
    numbers = itertools.count(1)
    return make_splitter(tokenizer, prompt, tools, mint=lambda: f"id{next(numbers)}")


def typed_ids(tokenizer: Any, text: str) -> list[int]:
    """The ids of text written letter by letter, so that no marker token comes of it."""
    return [token for char in text for token in tokenizer.encode(char, add_special_tokens=False)]


def cut(tokenizer: Any, raw: str, size: int | str, *, typed: bool = False) -> Pieces:
    """`raw` as a splitter is fed it.

    Args:
        tokenizer: Whose marker tokens stand in `raw`.
        raw: What the model wrote.
        size: Characters a piece (a marker token is a piece of its own); `whole`: all at once; `tokens`: as decoding
            one token after another gives it.
        typed: The markers in `raw` were written letter by letter.
    """
    ids = typed_ids(tokenizer, raw) if typed else tokenizer.encode(raw, add_special_tokens=False)
    if size == "whole":
        yield ids, raw
    elif size == "tokens":
        yield from _decoded(tokenizer, ids)
    else:
        yield from _in_pieces(tokenizer, raw, int(size), typed=typed)


def _decoded(tokenizer: Any, ids: Sequence[int]) -> Pieces:
    stream, waiting = DecodeStream([], skip_special_tokens=False), []
    for token in ids:
        waiting.append(token)
        if (text := stream.step(tokenizer.backend_tokenizer, token)) is not None:
            yield waiting, text
            waiting = []


def _in_pieces(tokenizer: Any, raw: str, size: int, *, typed: bool) -> Pieces:
    markers = {} if typed else tokenizer.get_added_vocab()
    pattern = "|".join(map(re.escape, sorted(markers, key=len, reverse=True)))
    for part in re.split(f"({pattern})", raw) if pattern else [raw]:
        if part in markers:
            yield [markers[part]], part
            continue
        for at in range(0, len(part), size):
            yield typed_ids(tokenizer, part[at : at + size]), part[at : at + size]


def joined(steps: Sequence[Step]) -> list[list[Any]]:
    """Steps with neighbours joined: `["text", t]`, `["thought", t]`, `["call" or "open call", name, arguments]`.

    A text's phase and a call's id that the model wrote stand at the end, where there are any.
    """
    parts: list[list[Any]] = []
    calls: dict[str, list[Any]] = {}
    for step in steps:
        match step:
            case Text(text=text, phase=phase):
                _join(parts, ["text", text, *([phase] if phase else [])])
            case Thought(text=text):
                _join(parts, ["thought", text])
            case Call(key=key, name=name, call_id=call_id):
                assert call_id, "a call needs an id from the first who knows it"
                assert key not in calls, "two calls share a key"
                calls[key] = ["open call", name, "", *([] if re.fullmatch(r"id\d+", call_id) else [call_id])]
                parts.append(calls[key])
            case CallArgs(key=key, text=text):
                assert calls[key][0] == "open call", "arguments after the end of a call"
                calls[key][2] += text
            case CallEnd(key=key):
                assert calls[key][0] == "open call", "a call ended twice"
                calls[key][0] = "call"
            case _:
                raise AssertionError(f"a splitter never says {step}")
    return parts


def _join(parts: list[list[Any]], part: list[Any]) -> None:
    if parts and parts[-1][0] == part[0] and parts[-1][2:] == part[2:]:
        parts[-1][1] += part[1]
    else:
        parts.append(part)
