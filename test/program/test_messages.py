"""A turn as chat messages: calls of one turn together, each output after its call, whatever order the items came in."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.program.call import client_options, model_options
from mellea_responses.program.messages import NO_OUTPUT, to_chat_tools, to_messages
from mellea_responses.turn import Options, Turn
from mellea_responses.wire import items as w
from mellea_responses.wire import tools as t
from mellea_responses.wire.request import CreateResponse

_ids = itertools.count()


def said(role: Any, *texts: str) -> w.Message:
    part = w.OutputText if role == "assistant" else w.InputText
    return w.Message(f"msg_{next(_ids)}", "completed", role, [part(text) for text in texts])


def call(call_id: str, arguments: str = "{}", name: str = "f") -> w.FunctionCall:
    return w.FunctionCall(f"fc_{next(_ids)}", call_id, name, arguments, "completed")


def output(call_id: str, text: Any = "42") -> w.FunctionCallOutput:
    return w.FunctionCallOutput(f"fco_{next(_ids)}", call_id, text)


def thought(text: str) -> w.Reasoning:
    return w.Reasoning(f"rs_{next(_ids)}", content=[w.ReasoningText(text)])


def chat(*items: w.Item, instructions: str | None = None, as_written: bool = False) -> list[dict[str, Any]]:
    return to_messages(Turn(CreateResponse(), items, instructions=instructions), as_written=as_written)


def short(*items: w.Item) -> list[tuple[str, Any]]:
    """Role and words, or ids of calls."""
    return [
        (
            message["role"],
            [one["id"] for one in message["tool_calls"]] if "tool_calls" in message else message["content"],
        )
        for message in chat(*items)
    ]


def test_instructions_come_first_and_messages_follow_in_order() -> None:
    items = (said("developer", "d"), said("user", "u"), said("assistant", "a"), said("system", "s"))

    assert chat(*items, instructions="i") == [
        {"role": "system", "content": "i"},
        {"role": "developer", "content": "d"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "system", "content": "s"},
    ]


def test_blocks_of_a_prompt_are_joined_by_lines_and_pieces_of_an_answer_by_nothing() -> None:
    assert short(said("user", "a", "b"), said("assistant", "a", "b")) == [("user", "a\nb"), ("assistant", "ab")]


def test_history_comes_before_input() -> None:
    turn = Turn(CreateResponse(), (said("user", "new"),), history=(said("user", "old"), said("assistant", "ok")))

    assert [message["content"] for message in to_messages(turn)] == ["old", "ok", "new"]


def test_thoughts_text_and_calls_of_one_turn_are_one_message() -> None:
    messages = chat(
        thought("hm"), said("assistant", "I look."), call("c1"), call("c2"), output("c1", "1"), output("c2", "2")
    )

    assert [message["role"] for message in messages] == ["assistant", "tool", "tool"]
    assert (messages[0]["reasoning_content"], messages[0]["content"]) == ("hm", "I look.")
    assert [one["id"] for one in messages[0]["tool_calls"]] == ["c1", "c2"]
    assert messages[1:] == [
        {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "name": "f", "content": "2"},
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_outputs_follow_their_calls_whatever_order_the_items_came_in(order: tuple[int, ...]) -> None:
    pieces = [call("c1"), call("c2"), output("c1", "1"), output("c2", "2")]
    messages = chat(said("user", "q"), *(pieces[n] for n in order), said("user", "go on"))

    asked = [one["id"] for message in messages for one in message.get("tool_calls", [])]
    answered = [(message["tool_call_id"], message["content"]) for message in messages if message["role"] == "tool"]
    assert sorted(asked) == ["c1", "c2"]
    assert answered == [(call_id, call_id[1]) for call_id in asked]
    assert messages[-1] == {"role": "user", "content": "go on"}


def test_an_output_before_its_call_does_not_part_it_from_its_message() -> None:
    assert short(output("c1"), said("assistant", "I look."), call("c1")) == [("assistant", ["c1"]), ("tool", "42")]


def test_what_is_said_between_a_call_and_its_output_stands_before_the_call() -> None:
    """Clients put an empty message there, the question once more, or the words that came with the call."""
    items = (
        said("user", "q"), said("assistant", "I look."), call("c1"), said("user", "q"), said("assistant", "a"),
        call("c2"), output("c2"), said("user", ""), output("c1"),
    )  # fmt: skip

    assert short(*items) == [
        ("user", "q"), ("user", "q"), ("assistant", "a"), ("user", ""), ("assistant", ["c1", "c2"]),
        ("tool", "42"), ("tool", "42"),
    ]  # fmt: skip
    assert chat(*items)[-3]["content"] == "I look."


def test_what_is_said_after_the_last_output_of_a_step_stays_behind_it() -> None:
    items = (call("c1"), said("user", ""), output("c1"), said("user", "go on"), call("c2"), said("user", "stop"))

    assert short(*items) == [
        ("user", ""), ("assistant", ["c1"]), ("tool", "42"), ("user", "go on"),
        ("assistant", ["c2"]), ("tool", NO_OUTPUT), ("user", "stop"),
    ]  # fmt: skip


def test_calls_of_two_turns_are_two_messages() -> None:
    items = (call("c1"), output("c1"), thought("next"), call("c2"), output("c2"))

    assert short(*items) == [("assistant", ["c1"]), ("tool", "42"), ("assistant", ["c2"]), ("tool", "42")]


def test_of_an_interrupted_call_the_model_learns_that_there_is_no_output() -> None:
    assert short(call("c1"), said("user", "stop")) == [("assistant", ["c1"]), ("tool", NO_OUTPUT), ("user", "stop")]


@pytest.mark.parametrize(
    ("arguments", "mapping"),
    [
        ('{"a": [1]}', {"a": [1]}),
        ("{}", {}),
        ("", {"arguments": ""}),
        ('{"cut', {"arguments": '{"cut'}),
        ("[1]", {"arguments": [1]}),
        ("null", {"arguments": None}),
    ],
)
def test_arguments_reach_templates_as_a_mapping_and_programs_as_they_were_written(arguments: str, mapping: Any) -> None:
    item = call("c1", arguments)

    assert chat(item)[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": mapping}
    assert chat(item, as_written=True)[0]["tool_calls"][0]["function"]["arguments"] == arguments


def test_a_custom_call_s_text_is_its_input() -> None:
    item = w.CustomToolCall("ctc_1", "c1", "patch", "free\ntext", "completed")

    [message, result] = chat(item, w.CustomToolCallOutput("ctco_1", "c1", "done"))

    assert message["tool_calls"][0]["function"] == {"name": "patch", "arguments": {"input": "free\ntext"}}
    assert result["content"] == "done"


def test_a_call_in_a_namespace_has_the_name_that_the_tool_was_offered_under() -> None:
    tool = t.NamespaceTool("ns", "", [t.FunctionTool("f")])
    item = w.FunctionCall("fc_1", "c1", "f", "{}", "completed", "ns")
    turn = Turn(CreateResponse(), (item,), tools=(tool,))

    [message, result] = to_messages(turn)
    [offered] = to_chat_tools(turn)

    assert message["tool_calls"][0]["function"]["name"] == offered["function"]["name"] == "ns.f"
    assert result["name"] == "ns.f"


def test_a_search_and_what_it_found_are_a_call_and_its_output() -> None:
    items = (
        w.ToolSearchCall("tsc_1", "c1", {"query": "x"}, "completed"),
        w.ToolSearchOutput("tso_1", "c1", [{"type": "function", "name": "g"}]),
    )

    [message, result] = chat(*items)
    assert message["tool_calls"][0]["function"] == {"name": "tool_search", "arguments": {"query": "x"}}
    assert result["content"] == '[{"type":"function","name":"g"}]'


def test_pictures_keep_their_place_among_words() -> None:
    parts: list[w.Part] = [w.InputText("see"), w.InputImage("data:image/png;base64,AA==", "low"), w.InputText("?")]

    [message] = chat(w.Message("m", "completed", "user", parts))

    assert message["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "text", "text": "?"},
    ]


def test_a_picture_in_an_output_reaches_the_model() -> None:
    result = chat(call("c1"), output("c1", [w.InputText("see"), w.InputImage("data:image/png;base64,AA==")]))[-1]

    assert [part["type"] for part in result["content"]] == ["text", "image_url"]


def test_a_file_is_shown_as_text_under_its_name_and_a_picture_of_the_web_as_data() -> None:
    file, nameless = w.InputFile("a.txt", "YQ=="), w.InputFile(file_data="Yg==")
    web, gone = w.InputImage("http://x.example/a.png"), w.InputImage("http://x.example/b.png")
    message = w.Message("m", "completed", "user", [file, nameless, web, gone])
    turn = Turn(CreateResponse(), (message,), media={file: "a", web: "data:image/png;base64,AA=="})

    [shown] = to_messages(turn)

    assert shown["content"] == [
        {"type": "text", "text": '<file name="a.txt">\na\n</file>'},
        {"type": "text", "text": "<file>\n(this file can no longer be read)\n</file>"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "auto"}},
        {"type": "text", "text": "(an image that can no longer be read)"},
    ]


def test_a_refusal_is_what_the_assistant_said() -> None:
    assert short(w.Message("m", "completed", "assistant", [w.RefusalPart("no")])) == [("assistant", "no")]


def test_two_messages_of_the_assistant_in_two_phases_are_two_messages() -> None:
    assert short(said("assistant", "first"), said("assistant", "second")) == [
        ("assistant", "first"),
        ("assistant", "second"),
    ]


def test_a_summary_stands_in_for_thoughts_without_text() -> None:
    reasoning = w.Reasoning("rs_1", summary=[w.SummaryText("in short")])

    assert chat(reasoning, said("assistant", "a"))[0]["reasoning_content"] == "in short"


def test_empty_thoughts_and_receipts_leave_no_message() -> None:
    items: tuple[w.Item, ...] = (w.Reasoning("rs_1"), {"type": "web_search_call", "id": "ws_1"}, said("user", "q"))

    assert short(*items) == [("user", "q")]


item_lists = st.lists(
    st.one_of(
        st.builds(said, st.sampled_from(["user", "assistant", "system"]), st.sampled_from(["a", ""])),
        st.builds(thought, st.sampled_from(["hm", ""])),
        st.builds(call, st.sampled_from(["c1", "c2", "c3"])),
        st.builds(output, st.sampled_from(["c1", "c2", "c3"])),
        st.just({"type": "web_search_call", "id": "ws_1"}),
    ),
    max_size=10,
    unique_by=lambda item: (w.item_type(item), w.item_call_id(item) or w.item_id(item)),
)


@given(item_lists)
def test_every_call_is_answered_exactly_once_right_after_its_message(items: list[w.Item]) -> None:
    messages = chat(*items)

    for place, message in enumerate(messages):
        asked = [one["id"] for one in message.get("tool_calls", [])]
        answered = [after.get("tool_call_id") for after in messages[place + 1 : place + 1 + len(asked)]]
        assert answered == asked
    calls = [item for item in items if w.is_call(item) and not isinstance(item, dict)]
    assert sum(message["role"] == "tool" for message in messages) == len(calls)


@given(item_lists)
def test_every_word_said_is_there_in_order(items: list[w.Item]) -> None:
    spoken = [item.role for item in items if isinstance(item, w.Message) and item.role != "assistant"]

    assert [message["role"] for message in chat(*items) if message["role"] in ("user", "system")] == spoken


# ---------------------------------------------------------------- tools and options


def test_tools_are_offered_in_chat_shape() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    tools = (t.FunctionTool("f", "does", schema), t.FunctionTool("g"), t.CustomTool("c", "free"))

    f, g, c = (tool["function"] for tool in to_chat_tools(Turn(CreateResponse(), (), tools=tools)))

    assert f == {"name": "f", "description": "does", "parameters": schema}
    assert g == {"name": "g", "description": "", "parameters": {"type": "object", "properties": {}}}
    assert c["parameters"]["required"] == ["input"]


def test_a_search_that_the_client_runs_is_offered_and_one_that_the_server_would_is_not() -> None:
    tools = (t.ToolSearchTool("server"), t.ToolSearchTool("client"))

    assert [tool["function"]["name"] for tool in to_chat_tools(Turn(CreateResponse(), (), tools=tools))] == [
        "tool_search"
    ]


def test_options_are_what_the_client_sent_under_mellea_s_names() -> None:
    from mellea.backends import ModelOption

    options = Options(temperature=0, top_p=0.5, max_output_tokens=9, seed=7, stop=("a",), effort="low")
    turn = Turn(CreateResponse(stream=True), (), options=options, tools=(t.FunctionTool("f"),), tool_choice="required")

    given_ = model_options(turn)

    assert given_.pop(ModelOption.TOOLS)[0]["function"]["name"] == "f"
    assert given_ == {
        "temperature": 0,
        "top_p": 0.5,
        ModelOption.MAX_NEW_TOKENS: 9,
        ModelOption.SEED: 7,
        ModelOption.STOP_SEQUENCES: ["a"],
        ModelOption.THINKING: "low",
        ModelOption.STREAM: True,
        ModelOption.TOOL_CHOICE: "required",
    }


def test_a_bare_request_has_no_options() -> None:
    assert model_options(Turn(CreateResponse(), ())) == {}


def test_a_choice_reaches_the_program_in_chat_shape() -> None:
    def choice(value: t.ToolChoice) -> Any:
        return model_options(Turn(CreateResponse(), (), tools=(t.FunctionTool("f"),), tool_choice=value))["tool_choice"]

    assert choice("auto") == "auto"
    assert choice(t.ToolRef("function", "f")) == {"type": "function", "function": {"name": "f"}}
    assert choice(t.AllowedTools([t.ToolRef("function", "f")], "required")) == {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]},
    }


def test_client_options_are_plain_and_without_nulls() -> None:
    turn = Turn(CreateResponse(model="m", metadata={"a": "b"}, user="u"), (), options=Options(max_output_tokens=5))

    assert client_options(turn) == {"model": "m", "metadata": {"a": "b"}, "user": "u", "max_tokens": 5}
