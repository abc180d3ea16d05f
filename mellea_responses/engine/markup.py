"""Reading calls that are not written as JSON, and turning them into JSON arguments."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers.utils.chat_parsing import parse_response

from mellea_responses.engine.calls import JsonCalls
from mellea_responses.engine.pen import BLANK, Pen

Schemas = Mapping[str, Mapping[str, Any]]
"""Tool name to the JSON Schema of its parameters."""


def tool_schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What is known about the arguments of each tool; chat-shaped and flat declarations alike."""
    schemas: dict[str, dict[str, Any]] = {}
    for tool in tools:
        function = tool.get("function") or tool
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            parameters = function.get("parameters")
            schemas[function["name"]] = dict(parameters) if isinstance(parameters, Mapping) else {}
    return schemas


# ---------------------------------------------------------------- types


def types_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> set[str]:
    """JSON types a schema allows, as far as it says; empty when it does not say."""
    if not isinstance(schema, Mapping) or depth > 8:
        return set()
    if isinstance(ref := schema.get("$ref"), str):
        return types_of(_resolve(ref, root), root, depth + 1)
    declared = schema.get("type")
    types = {declared} if isinstance(declared, str) else {t for t in declared or () if isinstance(t, str)}
    for union in ("anyOf", "oneOf", "allOf"):
        for choice in schema.get(union) or ():
            types |= types_of(choice, root, depth + 1)
    if not types:
        values = [*(schema.get("enum") or ()), *([schema["const"]] if "const" in schema else ())]
        types = {_type_name(value) for value in values}
    return types


def _resolve(ref: str, root: Mapping[str, Any]) -> Any:
    at: Any = root
    for part in ref.removeprefix("#/").split("/"):
        at = at.get(part) if isinstance(at, Mapping) else None
    return at


def _type_name(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def to_json(raw: str, types: set[str]) -> str:
    """One value written without JSON's quotes, as JSON of a type the schema allows, or as a string."""
    text = raw.strip()
    if types - {"string"}:
        if (written := _as_written(text, types)) is not None:
            return written
        if "boolean" in types and text.lower() in ("true", "false"):
            return text.lower()
        if "null" in types and text.lower() in ("null", "none"):
            return "null"
    return json.dumps(raw, ensure_ascii=False)


def _as_written(text: str, types: set[str]) -> str | None:
    """`text` itself where it is JSON of an allowed type already."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    kind = _type_name(value)
    if kind == "number" and "number" not in types and value.is_integer():
        return str(int(value)) if "integer" in types else None
    if kind == "string":
        return None if "string" in types else text
    return text if kind in types or (kind == "integer" and "number" in types) else None


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


# ---------------------------------------------------------------- tags


@dataclass(frozen=True)
class Tags:
    """How a call in tags is written, as patterns over text in which marker tokens are single characters.

    Args:
        name: Ends where the name is known; group 1 is the name.
        key: Ends where the value begins; group 1 is the key.
        value_end: Closes a value.
        call_end: Closes the call; without one the region's end does.
        bare_name: A region that holds no argument at all is a call of this name.
    """

    name: re.Pattern[str]
    key: re.Pattern[str]
    value_end: str
    call_end: str | None
    bare_name: re.Pattern[str] | None = None


def function_tags() -> Tags:
    """`<function=NAME><parameter=KEY>VALUE</parameter></function>`."""
    return Tags(
        re.compile(r"<function=([^>\n]+)>"),
        re.compile(r"<parameter=([^>\n]+)>"),
        "</parameter>",
        "</function>",
    )


def argument_tags(encode: Callable[[str], str]) -> Tags:
    """`NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>`."""
    key, key_end, value, value_end = map(encode, ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"))
    return Tags(
        re.compile(rf"\s*([^\s<{key[0]}]{{1,256}})\s*(?={re.escape(key)})"),
        re.compile(rf"{re.escape(key)}\s*([^\n{key_end[0]}]+?)\s*{re.escape(key_end)}\s*{re.escape(value)}"),
        value_end,
        None,
        re.compile(r"\s*([\w.:/-]+)\s*"),
    )


class TaggedCalls:
    """Calls in tags. Each argument leaves when its tag closes, so that a cut call shows what it had."""

    def __init__(self, pen: Pen, tags: Tags, schemas: Schemas, plain: Callable[[str], str]) -> None:
        self._pen = pen
        self._tags = tags
        self._schemas = schemas
        self._plain = plain
        self._rest = ""
        self._from = 0
        self._schema: Mapping[str, Any] = {}
        self._key: str | None = None
        self._arguments = 0
        self._in_call = False

    def feed(self, text: str) -> None:
        self._rest += text
        while self._value() if self._key is not None else self._member() if self._in_call else self._name():
            pass

    def close(self, *, whole: bool) -> None:
        bare = self._tags.bare_name.fullmatch(self._rest) if self._tags.bare_name and whole else None
        if self._in_call:
            self._finish(whole=whole and self._key is None and self._tags.call_end is None)
        elif bare is not None:
            self._pen.call(bare[1])
            self._pen.end(whole=True)
        else:
            self._pen.text(self._rest)

    def _advance(self, end: int) -> None:
        self._rest, self._from = self._rest[end:], 0

    def _name(self) -> bool:
        found = self._tags.name.search(self._rest)
        if found is None:
            return False
        self._pen.text(self._rest[: found.start()])
        self._open(self._plain(found[1]).strip())
        self._advance(found.end())
        return True

    def _open(self, name: str) -> None:
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
        self._key = self._plain(key[1]).strip()
        self._advance(key.end())
        return True

    def _value(self) -> bool:
        end = self._rest.find(self._tags.value_end, self._from)
        if end < 0:
            self._from = max(0, len(self._rest) - len(self._tags.value_end) + 1)
            return False
        self._argument(to_json(self._unwrap(self._rest[:end]), self._types()))
        self._key = None
        self._advance(end + len(self._tags.value_end))
        return True

    def _types(self) -> set[str]:
        properties = self._schema.get("properties")
        return types_of(properties.get(self._key) if isinstance(properties, Mapping) else None, self._schema)

    def _unwrap(self, value: str) -> str:
        """The line breaks next to the tags are the format's; every other blank is the value's own."""
        if self._tags.call_end is None:
            return self._plain(value)
        return self._plain(value.removeprefix("\n").removesuffix("\n"))

    def _argument(self, value: str) -> None:
        self._pen.args(
            ("{" if self._arguments == 0 else ", ") + json.dumps(self._key, ensure_ascii=False) + ": " + value
        )
        self._arguments += 1

    def _finish(self, *, whole: bool) -> None:
        if self._key is not None:
            # The value was cut: what there is of it, without a closing quote.
            self._argument(json.dumps(self._unwrap(self._rest), ensure_ascii=False)[:-1])
        elif whole and self._arguments:
            self._pen.args("}")
        self._pen.end(whole=whole)
        self._in_call, self._key = False, None


# ---------------------------------------------------------------- at the end

GEMMA_DELIMS = [['<|"|>', '<|"|>'], ["<escape>", "<escape>"]]


class ForeignCalls:
    """Calls in a notation that transformers can read once it is whole: Gemma's and Python's.

    Args:
        pen: Where the steps go.
        template: A `response_template` whose `tool_calls` are `{"name", "arguments"}`, one or a list.
        name: Finds the name in a call that cannot be read.
        plain: Turns markers back into what they read.
    """

    def __init__(self, pen: Pen, template: dict[str, Any], name: re.Pattern[str], plain: Callable[[str], str]) -> None:
        self._pen = pen
        self._template = template
        self._name = name
        self._plain = plain
        self._body: list[str] = []

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
