"""Reading calls that are not written as JSON, and turning them into JSON arguments."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import regex  # type: ignore[import-untyped]  # has partial matches, no stubs; transformers depends on it
from transformers.utils.chat_parsing import parse_response

from mellea_responses.engine.calls import JsonCalls, Quoting
from mellea_responses.engine.pen import BLANK, Pen
from mellea_responses.engine.values import Schemas, to_json, types_of

# ---------------------------------------------------------------- tags

OVER = "\0"
"""Stands for the end of a region behind its last letter."""


@dataclass(frozen=True)
class Tags:
    """How a call in tags is written, as patterns over text in which marker tokens are single characters.

    Args:
        name: Ends where the name is known; group 1 is the name.
        key: Ends where the value begins; group 1 is the key.
        value_end: Closes a value, seen from what must follow: a value may hold the very tag that closes it.
        closing: The tag that closes a value.
        call_end: Closes the call; without one the region's end does.
        wraps: A value stands on lines of its own, between line breaks that are not part of it.
        bare_name: A region that holds no argument at all is a call of this name.
    """

    name: re.Pattern[str]
    key: re.Pattern[str]
    value_end: Any
    closing: str
    call_end: str | None
    wraps: bool
    bare_name: re.Pattern[str] | None = None


def function_tags(*, named_inside: bool = True) -> Tags:
    """`<function=NAME><parameter=KEY>VALUE</parameter></function>`, or the part between the outer tags."""
    return Tags(
        re.compile(r"<function=([^>\n]+)>"),
        re.compile(r"<parameter=([^>\n]+)>"),
        # A call may be closed where its last value was not.
        regex.compile(rf"\n?(?:</parameter>\s*(?:(?=<parameter=|</function>)|{OVER})|</function>\s*{OVER})"),
        "</parameter>",
        "</function>" if named_inside else None,
        True,
    )


def argument_tags(encode: Callable[[str], str]) -> Tags:
    """`NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>`."""
    key, key_end, value, value_end = map(encode, ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"))
    return Tags(
        re.compile(rf"\s*([^\s<{key[0]}]{{1,256}})\s*(?={re.escape(key)})"),
        re.compile(rf"{re.escape(key)}\s*([^\n{key_end[0]}]+?)\s*{re.escape(key_end)}\s*{re.escape(value)}"),
        regex.compile(rf"{regex.escape(value_end)}\s*(?:(?={regex.escape(key)})|{OVER})"),
        value_end,
        None,
        False,
        re.compile(r"\s*([\w.:/-]+)\s*"),
    )


class TaggedCalls:
    """Calls in tags. Strings leave while they are written, other values when their tag closes.

    Args:
        pen: Where the steps go.
        tags: How the call is written.
        schemas: Types of the arguments.
        plain: Turns markers back into what they read.
    """

    def __init__(self, pen: Pen, tags: Tags, schemas: Schemas, plain: Callable[[str], str]) -> None:
        self._pen = pen
        self._tags = tags
        self._schemas = schemas
        self._plain = plain
        self._rest = ""
        self._from = 0
        self._schema: Mapping[str, Any] = {}
        self._types: set[str] | None = None
        self._starts = False
        self._arguments = 0
        self._in_call = False

    def quoting(self) -> Quoting:
        if self._types is None:
            return None
        # Where nothing but the region's end closes a call, a closed value is over; else it may hold all of its tags.
        over = self._tags.call_end is None and self._tags.value_end.search(self._rest + OVER, self._from)
        return None if over else "block"

    def feed(self, text: str) -> None:
        self._rest += text
        while self._value(self._types) if self._types is not None else self._outside():
            pass

    def close(self, *, whole: bool) -> None:
        if self._types is not None:
            self._close_value(self._types, whole=whole)
        bare = self._tags.bare_name.fullmatch(self._rest) if self._tags.bare_name and whole else None
        if self._in_call:
            over = self._tags.call_end is None or not self._rest.strip()
            self._finish(whole=whole and self._types is None and over)
        elif bare is not None:
            self._pen.call(bare[1])
            self._pen.end(whole=True)
        else:
            self._pen.text(self._rest)

    def _advance(self, end: int) -> None:
        self._rest, self._from = self._rest[end:], 0

    def _outside(self) -> bool:
        return self._member() if self._in_call else self._name()

    def _name(self) -> bool:
        found = self._tags.name.search(self._rest)
        if found is None:
            return False
        self._pen.text(self._rest[: found.start()])
        self.start(self._plain(found[1]).strip())
        self._advance(found.end())
        return True

    def start(self, name: str) -> None:
        """A call of this name begins."""
        self._pen.call(name)
        self._schema = self._schemas.get(name) or {}
        self._in_call, self._arguments = True, 0

    def _member(self) -> bool:
        key = self._tags.key.search(self._rest)
        end = self._rest.find(self._tags.call_end) if self._tags.call_end else -1
        if end >= 0 and (key is None or end < key.start()):
            self._finish(whole=True)
            self._advance(end + len(self._tags.call_end or ""))
            return True
        if key is None:
            return False
        self._begin(self._plain(key[1]).strip())
        self._advance(key.end())
        return True

    def _begin(self, key: str) -> None:
        properties = self._schema.get("properties")
        self._types = types_of(properties.get(key) if isinstance(properties, Mapping) else None, self._schema)
        self._starts = True
        self._pen.args(("{" if self._arguments == 0 else ", ") + json.dumps(key, ensure_ascii=False) + ": ")
        self._arguments += 1
        if not self._types - {"string"}:
            self._pen.args('"')

    # ---------------------------------------------------------------- values

    def _value(self, types: set[str]) -> bool:
        found = self._tags.value_end.search(self._rest, self._from, partial=True)
        is_string = not types - {"string"}
        if found.partial:
            self._from = found.start()
            if is_string:
                self._some(found.start())
            return False
        value = self._unwrap(self._rest[: found.start()])
        self._pen.args(_quoted(value) + '"' if is_string else to_json(value, types))
        self._types = None
        self._advance(found.end())
        return True

    def _some(self, end: int) -> None:
        """The next piece of a string: everything that cannot be part of its end."""
        if end > 0:
            self._pen.args(_quoted(self._unwrap(self._rest[:end])))
            self._starts = False
            self._advance(end)

    def _close_value(self, types: set[str], *, whole: bool) -> None:
        """The last value, if its end is there and only what follows is not."""
        end = self._rest.find(self._tags.closing, self._from)
        rest = self._rest if whole or end < 0 else self._rest[: end + len(self._tags.closing)]
        if self._tags.value_end.search(rest + OVER, self._from):
            self._rest = rest + OVER
            self._value(types)

    def _unwrap(self, value: str) -> str:
        """The line breaks next to the tags are the format's; every other blank is the value's own."""
        return self._plain(value.removeprefix("\n") if self._tags.wraps and self._starts else value)

    def _finish(self, *, whole: bool) -> None:
        if self._types is not None:
            # The value was cut: what there is of it, without a closing quote.
            value = _quoted(self._unwrap(self._rest.removesuffix("\n") if self._tags.wraps else self._rest))
            self._pen.args('"' + value if self._types - {"string"} else value)
        elif whole and self._arguments:
            self._pen.args("}")
        self._pen.end(whole=whole)
        self._in_call, self._types = False, None


def _quoted(text: str) -> str:
    """`text` as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


# ---------------------------------------------------------------- at the end

GEMMA_DELIMS = [['<|"|>', '<|"|>'], ["<escape>", "<escape>"]]
GEMMA_STRINGS = re.compile(
    r"""<\|"\|>.*?<\|"\|>|<escape>.*?<escape>|"(?:[^"\\]|\\.)*"|(<\|"\|>|<escape>|")""", re.DOTALL
)
PYTHON_STRINGS = re.compile(r""""(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|(["\'])""", re.DOTALL)


class ForeignCalls:
    """Calls in a notation that transformers can read once it is whole: Gemma's and Python's.

    Args:
        pen: Where the steps go.
        template: A `response_template` whose `tool_calls` are `{"name", "arguments"}`, one or a list.
        name: Finds the name in a call that cannot be read.
        strings: Finds every string; group 1 is the quote of one that is not closed.
        plain: Turns markers back into what they read.
    """

    def __init__(
        self,
        pen: Pen,
        template: dict[str, Any],
        name: re.Pattern[str],
        strings: re.Pattern[str],
        plain: Callable[[str], str],
    ) -> None:
        self._pen = pen
        self._template = template
        self._name = name
        self._strings = strings
        self._plain = plain
        self._body: list[str] = []

    def quoting(self) -> Quoting:
        body = self._plain("".join(self._body))
        return "block" if any(found[1] for found in self._strings.finditer(body)) else None

    def feed(self, text: str) -> None:
        self._body.append(text)

    def close(self, *, whole: bool) -> None:
        body = self._plain("".join(self._body))
        try:
            calls = parse_response(body, self._template, prefix="").get("tool_calls") or []
        except (ValueError, KeyError, RecursionError):
            calls = []
        for call in calls if isinstance(calls, list) else [calls]:
            self._pen.call(str(call["name"]))
            self._pen.args(json.dumps(call["arguments"], ensure_ascii=False))
            self._pen.end(whole=True)
        if not calls:
            self._unread(body, whole=whole)

    def _unread(self, body: str, *, whole: bool) -> None:
        """JSON after all, or a call that stays incomplete, or words."""
        if found := self._name.match(body):
            self._pen.call(found[1])
            self._pen.args(body[found.end() :])
            self._pen.end(whole=False)
            return
        reader = JsonCalls(self._pen)
        reader.feed(body.strip(BLANK))
        reader.close(whole=whole)


def gemma_template() -> dict[str, Any]:
    """`call:NAME{key:<|"|>text<|"|>}`."""
    return _template(
        open_pattern=r"call:(?P<name>[\w.:/-]+)(?=\{)",
        content="json",
        content_args={"unquoted_keys": True, "string_delims": GEMMA_DELIMS},
        transform={"name": "{name}", "arguments": "{content}"},
        repeats=True,
    )


def pythonic_template() -> dict[str, Any]:
    """`[name(key="text"), other()]`."""
    return _template(
        content="python-call-list",
        transform_each=True,
        transform={"name": "{name}", "arguments": "{arguments}"},
    )


def _template(**tool_calls: Any) -> dict[str, Any]:
    return {"start_anchor": "\x00", "fields": {"tool_calls": tool_calls}}
