"""The guard on steps alone: which call and which answer may leave."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.guard import Guard
from mellea_responses.turn import (
    Call,
    CallArgs,
    CallEnd,
    Fail,
    Format,
    ItemDone,
    ItemOpen,
    Refusal,
    Said,
    Step,
    Stop,
    Text,
    Thought,
    Turn,
)
from mellea_responses.wire.items import FunctionCall
from mellea_responses.wire.request import CreateResponse
from mellea_responses.wire.tools import (
    AllowedTools,
    CustomTool,
    FunctionTool,
    NamespaceTool,
    Tool,
    ToolRef,
    ToolSearchTool,
)

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
EXEC, OTHER, PATCH = FunctionTool("exec_command"), FunctionTool("other"), CustomTool("apply_patch")
STRICT = FunctionTool("count", parameters=SCHEMA, strict=True)
MCP = NamespaceTool("mcp__x", "", [FunctionTool("echo"), CustomTool("free")])


def hear(
    steps: Sequence[Step], tools: Sequence[Tool] = (EXEC, OTHER, PATCH), max_bytes: int = 2**20, **turn: Any
) -> list[Said]:
    guard = Guard(Turn(CreateResponse(), (), tools=tuple(tools), **turn), max_bytes=max_bytes)
    return [said for step in steps for said in guard.hear(step)]


def call(name: str, arguments: str = "{}", key: str = "k", **more: Any) -> list[Step]:
    return [Call(key, name, **more), CallArgs(key, arguments), CallEnd(key)]


def code(said: list[Said]) -> str:
    """The code of the failure that ends it; empty when it ends well."""
    return said[-1].code if isinstance(said[-1], Fail) else ""


def opened(said: list[Said]) -> list[tuple[str, str | None, str]]:
    return [(one.name, one.namespace, one.kind) for one in said if isinstance(one, Call)]


@pytest.mark.parametrize(("given", "leaves"), [("", None), ("call_\ud800", "call_\N{REPLACEMENT CHARACTER}")])
def test_a_call_id_that_no_client_could_send_back_never_leaves(given: str, leaves: str | None) -> None:
    [first, *_] = hear(call("other", call_id=given))

    assert isinstance(first, Call)
    assert first.call_id == leaves


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("written", "tool"),
    [
        ("exec_command", ("exec_command", None, "function")),
        ("functions.exec_command", ("exec_command", None, "function")),
        ("functions.exec_command:0", ("exec_command", None, "function")),
        ("exec_command<|channel|>commentary", ("exec_command", None, "function")),
        ("functions.exec_command<|constrain|>json", ("exec_command", None, "function")),
        ("exec_command json", ("exec_command", None, "function")),
        ('"exec_command"', ("exec_command", None, "function")),
        ("apply_patch", ("apply_patch", None, "custom")),
        ("functions.apply_patch", ("apply_patch", None, "custom")),
        ("echo", ("echo", "mcp__x", "function")),
        ("mcp__x.echo", ("echo", "mcp__x", "function")),
        ("mcp__x__echo", ("echo", "mcp__x", "function")),
        ("functions.mcp__x__echo", ("echo", "mcp__x", "function")),
        ("mcp__x.free<|channel|>", ("free", "mcp__x", "custom")),
        ("tool_search", ("tool_search", None, "tool_search")),
    ],
)
def test_a_name_as_models_write_it_finds_its_one_tool(written: str, tool: tuple[str, str | None, str]) -> None:
    said = hear([*call(written), Stop()], tools=[EXEC, PATCH, MCP, ToolSearchTool("client")])

    assert (opened(said), code(said)) == ([tool], "")


def test_a_name_with_its_namespace_apart_finds_the_tool_inside_it() -> None:
    assert opened(hear(call("echo", namespace="mcp__x"), tools=[MCP])) == [("echo", "mcp__x", "function")]


def test_a_custom_tool_stays_custom_whatever_the_model_takes_it_for() -> None:
    said = hear([*call("apply_patch", "*** Begin Patch", kind="function"), Stop()])

    assert (opened(said), code(said)) == ([("apply_patch", None, "custom")], "")


@pytest.mark.parametrize(
    "name", ["nobody", "", "exec", "functions.", "exec_command_2", "<|channel|>", "other.exec_command"]
)
def test_a_call_of_nothing_declared_never_leaves(name: str) -> None:
    said = hear([Text("a"), *call(name), Stop()])

    assert (opened(said), code(said)) == ([], "invalid_tool_call")


def test_a_bare_name_that_two_namespaces_have_is_refused() -> None:
    both = [NamespaceTool("a", "", [FunctionTool("echo")]), NamespaceTool("b", "", [FunctionTool("echo")])]

    assert code(hear(call("echo"), tools=both)) == "invalid_tool_call"
    assert opened(hear(call("a.echo"), tools=both)) == [("echo", "a", "function")]


def test_a_tool_outside_a_namespace_is_meant_before_one_of_its_name_inside() -> None:
    assert opened(hear(call("echo"), tools=[MCP, FunctionTool("echo")])) == [("echo", None, "function")]


def test_a_qualified_name_never_reaches_the_tool_of_another_namespace() -> None:
    assert code(hear(call("other.echo"), tools=[MCP, OTHER])) == "invalid_tool_call"
    assert code(hear(call("echo", namespace="elsewhere"), tools=[MCP])) == "invalid_tool_call"


def test_a_search_that_the_server_would_run_is_no_tool_of_the_client() -> None:
    assert code(hear(call("tool_search"), tools=[ToolSearchTool("server")])) == "invalid_tool_call"


@given(st.text(max_size=40), st.none() | st.text(max_size=10))
def test_any_name_is_either_one_declared_tool_or_a_failure(name: str, namespace: str | None) -> None:
    said = hear([Call("k", name, namespace)], tools=[EXEC, PATCH, MCP])

    declared = {("exec_command", None), ("apply_patch", None), ("echo", "mcp__x"), ("free", "mcp__x")}
    assert code(said) == "invalid_tool_call" or opened(said)[0][:2] in declared


# ---------------------------------------------------------------- choice

ONE = [*call("exec_command"), Stop()]
NONE = [Text("a"), Stop()]


@pytest.mark.parametrize(
    ("choice", "steps", "expected"),
    [
        ("auto", ONE, ""),
        ("auto", NONE, ""),
        ("none", ONE, "tool_choice_violated"),
        ("none", NONE, ""),
        ("required", ONE, ""),
        ("required", NONE, "tool_choice_violated"),
        (ToolRef("function", "exec_command"), ONE, ""),
        (ToolRef("function", "exec_command"), NONE, "tool_choice_violated"),
        (ToolRef("function", "other"), ONE, "tool_choice_violated"),
        (ToolRef("custom", "apply_patch"), [*call("apply_patch", "x"), Stop()], ""),
        (ToolRef("custom", "apply_patch"), ONE, "tool_choice_violated"),
        (AllowedTools([ToolRef("function", "exec_command")]), ONE, ""),
        (AllowedTools([ToolRef("function", "exec_command")]), NONE, ""),
        (AllowedTools([ToolRef("function", "other")]), ONE, "tool_choice_violated"),
        (AllowedTools([ToolRef("function", "exec_command")], "required"), ONE, ""),
        (AllowedTools([ToolRef("function", "exec_command")], "required"), NONE, "tool_choice_violated"),
        (AllowedTools([ToolRef("function", "exec_command")], "none"), ONE, "tool_choice_violated"),
    ],
)
def test_the_choice_holds(choice: Any, steps: list[Step], expected: str) -> None:
    assert code(hear(steps, tool_choice=choice)) == expected


def test_a_forbidden_call_never_opens() -> None:
    assert opened(hear(ONE, tool_choice="none")) == []


@pytest.mark.parametrize(
    "ref",
    [
        ToolRef("function", "echo"),
        ToolRef("function", "echo", "mcp__x"),
        ToolRef("namespace", "mcp__x"),
    ],
)
def test_a_choice_may_name_a_tool_in_a_namespace_or_all_of_them(ref: ToolRef) -> None:
    assert code(hear([*call("mcp__x.echo"), Stop()], tools=[MCP, OTHER], tool_choice=ref)) == ""
    assert code(hear([*call("other"), Stop()], tools=[MCP, OTHER], tool_choice=ref)) == "tool_choice_violated"


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_an_answer_that_was_cut_is_not_blamed_for_what_is_missing(reason: Any) -> None:
    said = hear([Call("k", "exec_command"), CallArgs("k", '{"ha'), Stop(reason)], tool_choice="required")

    assert said[-1] == Stop(reason)
    assert hear([Text("{"), Stop(reason)], format=Format("json_object"))[-1] == Stop(reason)


# ---------------------------------------------------------------- how many


def test_without_parallel_calls_only_the_first_leaves_and_the_words_go_on() -> None:
    steps = [*call("exec_command", key="a"), *call("other", key="b"), Text("more"), *call("nobody", key="c"), Stop()]

    said = hear(steps, parallel_tool_calls=False)

    assert (opened(said), code(said)) == ([("exec_command", None, "function")], "")
    assert Text("more") in said
    assert {one.key for one in said if isinstance(one, CallArgs | CallEnd)} == {"a"}


def test_parallel_calls_leave_interleaved_as_they_came() -> None:
    steps: list[Step] = [
        Call("a", "exec_command"),
        Call("b", "other"),
        CallArgs("b", "{"),
        CallArgs("a", "{}"),
        CallArgs("b", "}"),
        CallEnd("a"),
        CallEnd("b"),
        Stop(),
    ]

    assert [type(one) for one in hear(steps)] == [type(one) for one in steps]


def test_max_tool_calls_counts_what_the_server_ran_and_not_what_the_client_will_run() -> None:
    ran: list[Step] = [ItemOpen({"type": "web_search_call"}), ItemDone({"type": "web_search_call"})]

    assert code(hear([*ran, *call("other", key="a"), *call("other", key="b"), Stop()], max_tool_calls=1)) == ""
    assert code(hear([*ran, *ran, Stop()], max_tool_calls=1)) == "max_tool_calls_exceeded"


def test_a_receipt_that_comes_only_when_it_is_done_counts_too() -> None:
    done: list[Step] = [ItemDone({"type": "web_search_call"})]

    assert code(hear([*done, *done, Stop()], max_tool_calls=1)) == "max_tool_calls_exceeded"
    assert code(hear([*done, Stop()], max_tool_calls=1)) == ""


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize("text", ["", "  \n"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    said = hear([*call("exec_command", text), Stop()])

    assert "".join(one.text for one in said if isinstance(one, CallArgs)).strip() == "{}"
    assert code(said) == ""


@pytest.mark.parametrize("text", ["{", '{"a":1', "[1]", '"x"', "1", "null", "{} {}", "{'a': 1}", '{"a":1}</tool_call>'])
def test_arguments_that_are_no_json_object_end_in_failure_before_the_call_is_done(text: str) -> None:
    said = hear([*call("exec_command", text), Stop()])

    assert code(said) == "invalid_tool_call"
    assert not any(isinstance(one, CallEnd) for one in said)


@pytest.mark.parametrize(
    ("text", "expected"), [('{"n": 1}', ""), ('{"n": "1"}', "invalid_tool_call"), ("{}", "invalid_tool_call")]
)
def test_arguments_of_a_strict_tool_fit_its_schema(text: str, expected: str) -> None:
    assert code(hear([*call("count", text), Stop()], tools=[STRICT])) == expected


def test_arguments_of_a_tool_that_is_not_strict_may_be_any_object() -> None:
    assert code(hear([*call("count", '{"x": 1}'), Stop()], tools=[FunctionTool("count", parameters=SCHEMA)])) == ""


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("written", "left"),
    [
        ('{"input": "*** Begin \\"Patch\\"\\n"}', '*** Begin "Patch"\n'),
        (' {"input": ""} ', ""),
        ('{"input": "half \\ud83d"}', '{"input": "half \\ud83d"}'),
        ('{"input": 1}', '{"input": 1}'),
        ('{"input": "a", "more": "b"}', '{"input": "a", "more": "b"}'),
        ('{"a": [', '{"a": ['),
        ("{}", "{}"),
        ("*** Begin {", "*** Begin {"),
        (" \n *** Begin", " \n *** Begin"),
        (" \n ", " \n "),
    ],
)
def test_the_text_of_a_custom_tool_comes_out_of_the_parameter_that_the_model_was_shown(
    written: str, left: str, size: int
) -> None:
    pieces = [CallArgs("k", written[at : at + size]) for at in range(0, len(written), size)]

    said = hear([Call("k", "apply_patch"), *pieces, CallEnd("k"), Stop()])

    assert "".join(step.text for step in said if isinstance(step, CallArgs)) == left
    assert code(said) == ""


@pytest.mark.parametrize("last", [Stop("length"), Text("x" * 100), CallArgs("k", "x" * 100), Call("no such", "tool")])
def test_a_custom_call_that_is_cut_says_what_it_has(last: Step) -> None:
    said = hear([Call("k", "apply_patch"), CallArgs("k", '{"input": "*** Be'), last], max_bytes=40)

    assert "".join(one.text for one in said if isinstance(one, CallArgs)).startswith('{"input": "*** Be')
    assert isinstance(said[-1], Stop | Fail)


@pytest.mark.parametrize("text", ["", "not json", "{", "é" * 20])
def test_the_text_of_a_custom_tool_is_left_as_it_is(text: str) -> None:
    said = hear([*call("apply_patch", text), Stop()])

    assert "".join(one.text for one in said if isinstance(one, CallArgs)) == text
    assert code(said) == ""


def test_a_call_still_open_at_the_stop_is_judged_and_ended() -> None:
    assert code(hear([Call("k", "exec_command"), CallArgs("k", "{"), Stop()])) == "invalid_tool_call"
    assert hear([Call("k", "exec_command"), Stop()])[-3:] == [CallArgs("k", "{}"), CallEnd("k"), Stop()]


@pytest.mark.parametrize(
    "steps",
    [
        [CallArgs("k", "{}")],
        [CallEnd("k")],
        [*call("other"), CallArgs("k", "{}")],
        [*call("other"), CallEnd("k")],
        [Call("k", "other"), Call("k", "other")],
    ],
    ids=["args unknown", "end unknown", "args closed", "end closed", "opened twice"],
)
def test_steps_of_a_call_that_make_no_sense_are_a_failure_of_the_program(steps: list[Step]) -> None:
    said = hear([*steps, Stop()])

    assert said[-1] == Fail("server_error", "The program failed.")


@pytest.mark.parametrize("parallel", [True, False])
def test_a_key_may_name_another_call_once_its_first_has_ended(parallel: bool) -> None:
    said = hear([*call("other"), *call("other"), *call("other"), Stop()], parallel_tool_calls=parallel)

    assert (len(opened(said)), code(said)) == (3 if parallel else 1, "")


def test_a_call_id_that_was_used_before_in_the_chain_or_the_answer_is_left_to_the_builder() -> None:
    history = (FunctionCall("fc_1", "call_0", "other", "{}", "completed"),)
    steps = [*call("other", call_id="call_0"), *call("other", call_id="call_1"), *call("other", call_id="call_1")]

    said = hear([*steps, Stop()], history=history)

    assert [one.call_id for one in said if isinstance(one, Call)] == [None, "call_1", None]


# ---------------------------------------------------------------- receipts


def test_a_receipt_leaves_as_plain_json() -> None:
    assert hear([ItemDone({"type": "mcp_call", "output": ("a", 1)})]) == [
        ItemDone({"type": "mcp_call", "output": ["a", 1]})
    ]


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"type": 5},
        {"type": "message", "role": "assistant", "content": []},
        {"type": "function_call", "call_id": "c", "name": "undeclared", "arguments": "{}"},
        {"type": "mcp_call", "output": object()},
        {"type": "mcp_call", "output": "\ud83d"},
    ],
)
@pytest.mark.parametrize("kind", [ItemOpen, ItemDone])
def test_a_receipt_that_is_none_is_a_failure_of_the_program(
    kind: type[ItemOpen | ItemDone], item: dict[str, Any]
) -> None:
    assert hear([kind(item), Stop()]) == [Fail("server_error", "The program failed.")]


# ---------------------------------------------------------------- the form of the answer

JSON_SCHEMA = Format("json_schema", "answer", SCHEMA, strict=True)


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        (JSON_SCHEMA, '{"n": 1}', ""),
        (JSON_SCHEMA, '{"n": "1"}', "invalid_structured_output"),
        (JSON_SCHEMA, "n is 1", "invalid_structured_output"),
        (JSON_SCHEMA, "", "invalid_structured_output"),
        (JSON_SCHEMA, '```json\n{"n": 1}\n```', "invalid_structured_output"),
        (Format("json_schema", "answer", SCHEMA), "n is 1", ""),
        (Format("json_object"), '{"any": "thing"}', ""),
        (Format("json_object"), '{"far": -1e999, "long": %s, "x": [1, 2.5]}' % ("9" * 5000), ""),
        (Format("json_object"), '{"far": 1e999, "x": NaN}', "invalid_structured_output"),
        (Format("json_object"), '{"far": 1e999', "invalid_structured_output"),
        (Format("json_object"), "[]", "invalid_structured_output"),
        (Format("json_object"), "words", "invalid_structured_output"),
        (Format("text"), "words", ""),
    ],
)
def test_the_answer_has_the_form_that_was_asked_for(form: Format, text: str, expected: str) -> None:
    half = len(text) // 2
    assert code(hear([Thought("hm"), Text(text[:half]), Text(text[half:]), Stop()], format=form)) == expected


@pytest.mark.parametrize("form", [JSON_SCHEMA, Format("json_object")])
def test_a_call_or_a_refusal_takes_the_place_of_the_form(form: Format) -> None:
    assert code(hear([Text("I call."), *ONE], format=form)) == ""
    assert code(hear([Refusal("no"), Stop()], format=form)) == ""


def test_a_forced_tool_wins_over_the_form() -> None:
    assert code(hear(ONE, format=JSON_SCHEMA, tool_choice=ToolRef("function", "exec_command"))) == ""
    assert code(hear([Text('{"n": 1}'), Stop()], format=JSON_SCHEMA, tool_choice="required")) == "tool_choice_violated"


# ---------------------------------------------------------------- limits


@given(st.text(max_size=30), st.integers(0, 60))
def test_an_answer_over_its_limit_is_cut_at_the_last_whole_character(text: str, limit: int) -> None:
    said = hear([Text(text), Stop()], max_bytes=limit)

    left = "".join(one.text for one in said if isinstance(one, Text))
    fits = len(text.encode()) <= limit
    assert said[-1] == (Stop() if fits else Stop("length"))
    assert text.startswith(left)
    assert left == text if fits else len(left.encode()) <= limit < len(text[: len(left) + 1].encode())


def test_thoughts_refusals_and_arguments_count_against_the_limit() -> None:
    for steps in (
        [Thought("four"), Text("x")],
        [Refusal("four"), Text("x")],
        [*call("exec_command", "{ }  "), Text("x")],
    ):
        assert hear(steps, max_bytes=4)[-1] == Stop("length")


def test_after_the_last_word_nothing_leaves() -> None:
    assert hear([Text("a"), Stop(), Text("b"), *ONE]) == [Text("a"), Stop()]
    assert code(hear([*call("nobody"), Text("b"), Stop()])) == "invalid_tool_call"
    assert sum(isinstance(one, Fail) for one in hear([*call("nobody"), Text("b"), *call("nobody"), Stop()])) == 1


def test_no_message_of_a_failure_is_longer_than_a_reader_needs() -> None:
    said = hear(call("x" * 10_000))

    assert isinstance(said[-1], Fail)
    assert len(said[-1].message) < 500


@pytest.mark.parametrize("step", [Text("\ud83d"), Thought("\ud83d"), Refusal("\ud83d"), Call("k", "\ud83d")])
def test_half_a_character_from_a_program_can_still_be_sent(step: Step) -> None:
    for said in hear([step, Stop()]):
        if isinstance(said, Text | Thought | Refusal):
            assert said.text == "\N{REPLACEMENT CHARACTER}"
        if isinstance(said, Fail):
            said.message.encode()
