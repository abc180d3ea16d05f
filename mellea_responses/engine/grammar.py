"""The grammar of a whole answer, as text: reasoning where the model reasons, then what the request demands.

Written in the Lark dialect of llguidance, where `<[7]>` is the token 7 and `%json` a JSON Schema. Pure: knows how
models write, and neither probabilities nor who asks.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mellea_responses.engine.families import HARMONY, Family
from mellea_responses.engine.styles import Style, styles_of

Schema = Mapping[str, Any]

ANY_OBJECT: Schema = {"type": "object"}

_GUIDANCE = {
    "whitespace_pattern": r"( {1,4}|\n[ \t]{0,24})?",
    "json_allow_general_unicode_escapes": True,
    "lenient": True,
}
"""A few blanks, or a new line with its indent: without them a list would rather be empty, with more a small model loses
itself in them. What the decoder cannot keep of a schema is left out: the guard judges what was said."""


@dataclass(frozen=True)
class Manner:
    """How one model writes.

    Args:
        family: Its family.
        template: Its chat template.
        tokens: Tokens that are matched as a whole, by text.
        words: Those of them that are words like others, though a grammar takes them for markers.
        taught: Whether the prompt said in words how to call.
    """

    family: Family
    template: str
    tokens: Mapping[str, int]
    words: Sequence[int] = ()
    taught: bool = False

    @property
    def styles(self) -> Sequence[Style]:
        """The ways it writes calls."""
        return styles_of(self.family, self.template, self.tokens, taught=self.taught)

    @property
    def thinks(self) -> tuple[str, str] | None:
        """The tags around its reasoning; None for a model that does not reason in tags."""
        opens, closes = self.family.spans.get("reasoning_content", ((), ()))
        tags = zip(opens, closes, strict=True)
        return next((pair for pair in tags if pair[0] in self.template or pair[0] in self.tokens), None)


@dataclass(frozen=True)
class Demand:
    """What the request wants of the answer.

    Args:
        form: The schema of the text; None for free text.
        tools: Parameters of the tools by name.
        must_call: Whether an answer without a call is none.
        several: Whether there may be more than one call.
    """

    form: Schema | None
    tools: Mapping[str, Schema]
    must_call: bool = False
    several: bool = True

    @property
    def free(self) -> bool:
        """Whether the answer may be any text."""
        return self.form is None and not self.must_call


def grammar_of(manner: Manner, prompt: str, demand: Demand) -> str | None:
    """The grammar of the answer; None when nothing has to be kept, or it is not known how.

    Args:
        manner: How the model writes.
        prompt: The rendered prompt: it may have begun the reasoning, or ended it.
        demand: What is wanted.
    """
    if demand.free and not demand.tools:
        return None
    lark = _Lark(manner)
    if manner.family is HARMONY and HARMONY.shown_in(manner.template):
        return lark.text(_messages(lark, prompt, demand))
    body = _body(lark, manner.styles, demand)
    return lark.text(f"{_reasoning(lark, manner, prompt, demand)} {body}") if body is not None else None


def _body(lark: "_Lark", styles: Sequence[Style], demand: Demand) -> str | None:
    if not demand.tools:
        return lark.json(demand.form or ANY_OBJECT)
    if not styles or (demand.free and not styles[0].opens):
        return None  # calls that begin as text does cannot be told from it
    opens = styles[0].opens
    region = f"({' | '.join(_region(lark, style, demand) for style in styles)})"
    if demand.free and demand.several:
        return f"({lark.until(opens)} {region})* {lark.without(opens)}"
    if demand.free:
        return f"({lark.until(opens)} {region} | {lark.without(opens)})"
    opened = f"{lark.literal(opens)} {region}"
    calls = f"{opened} (BLANK {opened})*" if demand.several and opens else opened
    return calls if demand.must_call else f"({lark.json(demand.form or ANY_OBJECT)} | {calls})"


def _region(lark: "_Lark", style: Style, demand: Demand) -> str:
    """Calls after what opens them."""
    call = f"({' | '.join(_call(lark, style, name, schema) for name, schema in demand.tools.items())})"
    more = f" ({lark.loose(style.between)} {call})*" if demand.several and style.between is not None else ""
    return f"{call}{more} {lark.literal(style.closes)}"


def _call(lark: "_Lark", style: Style, name: str, schema: Schema) -> str:
    arguments = lark.json(schema) if style.parameter is None else _parameters(lark, style.parameter, schema)
    before, after, ends = map(lark.loose, (style.before, style.after, style.ends))
    return f"BLANK {before} {lark.literal(name)} {after} {arguments} {ends}"


def _parameters(lark: "_Lark", style: tuple[str, str, str], schema: Schema) -> str:
    """Declared parameters in markup; what their values may be is left to the guard."""
    declared = schema.get("properties")
    if not isinstance(declared, Mapping) or not declared:
        return ""
    before, between, after = style
    name = f"({' | '.join(map(lark.literal, declared))})"
    value = lark.until(after.rstrip())
    return f"({lark.loose(before)} {name} {lark.loose(between)} {value} BLANK)*"


def _reasoning(lark: "_Lark", manner: Manner, prompt: str, demand: Demand) -> str:
    if manner.thinks is None:
        return ""
    start, end = manner.thinks
    before = prompt.rstrip()
    if before.endswith(end):
        return ""
    inside = f"{lark.until(end)} BLANK"
    if before.endswith(start):
        return inside
    if not demand.free:
        return f"(BLANK {lark.literal(start)} {inside})?"
    if start not in manner.tokens:
        return ""  # the free text has it
    lone = "?" if manner.family.waits else ""  # such a model may leave the first tag out
    return f"((BLANK {lark.literal(start)}){lone} {inside})?"


def _messages(lark: "_Lark", prompt: str, demand: Demand) -> str:
    """An answer in messages with headers: analysis and preambles, then the final one or a call."""
    channel, message, constrain = map(lark.literal, ("<|channel|>", "<|message|>", "<|constrain|>"))
    body = lark.json(demand.form) if demand.form is not None else lark.anything
    if prompt.endswith("<|message|>"):
        return body
    over = f"{message} {lark.until('<|end|>')} {lark.literal('<|start|>assistant')}"
    kind = f'(" json" | " "? {constrain} "json")?'
    last = [] if demand.must_call else [f'{channel} "final" {kind} {message} {body}']
    for name, schema in demand.tools.items():
        to = lark.literal(f" to=functions.{name}")
        header = f'({channel} "commentary" {to} {kind} | {to} {channel} "commentary" {kind})'
        last.append(f"{header} {message} {lark.json(schema)}")
    return f'({channel} ("analysis" | "commentary") {over}){{0,4}} ({" | ".join(last)})'


class _Lark:
    """Rules as they are asked for."""

    def __init__(self, manner: Manner) -> None:
        self._tokens = manner.tokens
        self._words = f"<[{','.join(map(str, manner.words))}]>" if manner.words else ""
        self._rules = ["BLANK: /[ \\n]{0,2}/", "TEXT: /(.|\\n)*/"]
        self.anything = self._rule("anything", f": {self._wordy('TEXT')}")

    def text(self, start: str) -> str:
        """The whole grammar."""
        return "\n".join([f"start: {start}", *self._rules])

    def literal(self, text: str) -> str:
        """Exactly this text; markers in it as tokens."""
        return " ".join(map(self._symbol, self._pieces(text))) or '""'

    def loose(self, text: str) -> str:
        """This text, with up to two blanks for each of its spaces."""
        return " BLANK ".join(map(self.literal, text.split(" ")))

    def json(self, schema: Schema) -> str:
        """A value that fits the schema."""
        return self._rule("json", f": %json {json.dumps({**schema, 'x-guidance': _GUIDANCE}, ensure_ascii=False)}")

    def until(self, text: str) -> str:
        """Anything up to this text, and the text."""
        first, *rest = self._pieces(text)
        if first in self._tokens:
            return f"{self.anything} {self.literal(text)}"
        lazy = self._rule("until", f"[lazy]: /(.|\\n)*{_pattern(first)}/")
        words = f"({self._free_of(first)} {self._words})*" if self._words else ""
        return " ".join([words, lazy, *map(self._symbol, rest)])

    def without(self, text: str) -> str:
        """Anything that does not have this text in it."""
        first = self._pieces(text)[0]
        if first in self._tokens:  # free text never has a marker's token
            return self.anything
        return self._wordy(self._free_of(first))

    def _free_of(self, text: str) -> str:
        return self._rule("WITHOUT", f": /(.|\\n)*/ & ~/(.|\\n)*{_pattern(text)}(.|\\n)*/")

    def _wordy(self, terminal: str) -> str:
        return f"({terminal} {self._words})* {terminal}" if self._words else terminal

    def _rule(self, kind: str, text: str) -> str:
        name = f"{kind}{len(self._rules)}"
        self._rules.append(name + text)
        return name

    def _symbol(self, piece: str) -> str:
        return f"<[{self._tokens[piece]}]>" if piece in self._tokens else json.dumps(piece, ensure_ascii=False)

    def _pieces(self, text: str) -> Sequence[str]:
        """Tokens that are matched as a whole, and what stands between them."""
        inside = sorted((token for token in self._tokens if len(token) > 2 and token in text), key=len, reverse=True)
        pieces = re.split(f"({'|'.join(map(re.escape, inside))})", text) if inside else [text]
        return [piece for piece in pieces if piece]


def _pattern(text: str) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$/])", r"\\\1", text)
