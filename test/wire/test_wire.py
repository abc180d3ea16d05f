"""The protocol's objects: what we write we read back, and every kind of tool, item and event has its name."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.wire import events as e
from mellea_responses.wire import items as w
from mellea_responses.wire import tools as t
from support import oracle

text = st.text(max_size=8)
parts = st.one_of(
    st.builds(w.InputText, text),
    st.builds(w.OutputText, text, st.lists(st.builds(w.UrlCitation, text, text, st.just(0), st.just(1)), max_size=1)),
    st.builds(w.RefusalPart, text),
    st.builds(w.InputImage, st.just("data:image/png;base64,AA=="), st.sampled_from(["low", "auto"])),
    st.builds(w.InputFile, text, text),
    st.builds(w.InputVideo, text),
    st.builds(w.InputAudio, st.builds(w.AudioData, text, st.just("wav"))),
)
statuses = st.sampled_from(["in_progress", "completed", "incomplete"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | text, lambda inner: st.lists(inner, max_size=2)
)
namespaces = st.just(msgspec.UNSET) | text
outputs = text | st.lists(st.builds(w.InputText, text) | st.builds(w.InputImage, text), max_size=2)
items = st.one_of(
    st.builds(
        w.Message, text, statuses, st.sampled_from(["user", "assistant", "system", "developer"]), st.lists(parts)
    ),
    st.builds(
        w.Reasoning,
        text,
        st.lists(st.builds(w.SummaryText, text), max_size=2),
        st.just(msgspec.UNSET) | st.lists(st.builds(w.ReasoningText, text), max_size=2),
        st.just(msgspec.UNSET) | text,
        statuses,
    ),
    st.builds(w.FunctionCall, text, text, text, text, statuses, namespaces),
    st.builds(w.FunctionCallOutput, text, text, outputs, statuses),
    st.builds(w.CustomToolCall, text, text, text, text, statuses, namespaces),
    st.builds(w.CustomToolCallOutput, text, text, outputs, statuses),
    st.builds(w.ToolSearchCall, text, st.none() | text, st.dictionaries(text, json_values, max_size=2), statuses),
    st.builds(w.ToolSearchOutput, text, st.none() | text, st.just([{"type": "function", "name": "f"}]), statuses),
    st.builds(w.AdditionalTools, text, st.just([{"type": "function", "name": "f"}])),
    st.builds(w.Compaction, text, text),
    st.fixed_dictionaries({"type": st.sampled_from(sorted(w.RECEIPTS)), "id": text, "anything": json_values}),
)


@given(items)
def test_an_item_of_any_kind_is_read_back_as_it_was_written(item: w.Item) -> None:
    assert w.decode_item(msgspec.json.encode(item)) == item


@given(items)
def test_an_item_tells_its_type_id_and_call_id(item: w.Item) -> None:
    written = msgspec.json.decode(msgspec.json.encode(item))

    assert w.item_type(item) == written["type"]
    assert w.item_id(item) == written["id"]
    assert w.item_call_id(item) == written.get("call_id")


@pytest.mark.parametrize(
    ("kind", "is_call", "is_output"),
    [
        ("message", False, False),
        ("reasoning", False, False),
        ("function_call", True, False),
        ("function_call_output", False, True),
        ("custom_tool_call", True, False),
        ("custom_tool_call_output", False, True),
        ("tool_search_call", True, False),
        ("tool_search_output", False, True),
        ("shell_call", True, False),
        ("shell_call_output", False, True),
        ("web_search_call", False, False),
    ],
)
def test_calls_and_outputs_are_told_apart(kind: str, is_call: bool, is_output: bool) -> None:
    written: dict[str, Any] = {
        "type": kind,
        "id": "x",
        "name": "f",
        "arguments": "{}",
        "input": "",
        "output": "",
        "status": "completed",
        "role": "user",
        "content": [],
        "tools": [],
    }
    if kind != "web_search_call":
        written["call_id"] = "call_1"
    item = w.decode_item(msgspec.json.encode(written))

    assert (w.is_call(item), w.is_call_output(item)) == (is_call, is_output)


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{}", b'{"type":"musing"}', b'{"type":"message"}', b'{"type":5}', b"nonsense", b'{"type":"message"'],
)
def test_what_is_no_item_is_not_read(raw: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        w.decode_item(raw)


TOOLS: list[t.Tool] = [
    t.FunctionTool("f", "does", {"type": "object"}, strict=True, defer_loading=True),
    t.FunctionTool("f"),
    t.CustomTool("c", "free", {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}),
    t.CustomTool("c"),
    t.NamespaceTool("n", "inside", [t.FunctionTool("f"), t.CustomTool("c")]),
    t.ToolSearchTool("client", "finds", {"type": "object"}),
    t.ToolSearchTool(),
]


@pytest.mark.parametrize("tool", TOOLS, ids=repr)
def test_a_tool_of_any_kind_is_read_back_as_it_was_written(tool: t.Tool) -> None:
    assert msgspec.json.decode(msgspec.json.encode(tool), type=t.Tool) == tool


def test_every_event_that_exists_is_a_published_one() -> None:
    names = {kind.__struct_config__.tag for kind in get_args(e.Event)}

    assert names <= oracle.EVENTS.keys() | oracle.BEYOND_EVENTS
    assert len(names) == len(get_args(e.Event))


def test_every_event_starts_with_its_type_and_its_number() -> None:
    for kind in get_args(e.Event):
        assert next(iter(kind.__struct_fields__)) == "sequence_number"
        assert kind.__struct_config__.tag_field == "type"


def test_every_kind_of_item_has_a_prefix_for_its_ids() -> None:
    typed = {str(kind.__struct_config__.tag) for kind in get_args(w.TypedItem)}

    assert typed <= w.PREFIXES.keys()
    assert len(set(w.PREFIXES.values())) == len(w.PREFIXES)
