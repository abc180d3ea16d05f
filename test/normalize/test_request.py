"""Tools, choices, formats and options in every spelling; what is wrong is told with its path."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.errors import InvalidRequest
from mellea_responses.normalize.request import Normalized, normalize
from mellea_responses.turn import Format, Options
from mellea_responses.wire import tools as t
from mellea_responses.wire.decode import decode_create

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
F: dict[str, Any] = {"type": "function", "name": "f", "parameters": SCHEMA}


def turn(reject_unsupported: bool = False, **body: Any) -> Normalized:
    request = decode_create(json.dumps({"input": "hi", **body}).encode())
    return normalize(request, reject_unsupported=reject_unsupported)


def refuse(reject_unsupported: bool = False, **body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        turn(reject_unsupported, **body)
    return caught.value


# ---------------------------------------------------------------- the empty forms


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [], "previous_response_id": "r", "conversation": "c"}, "previous_response_id"),
        ({"input": [{"role": "user", "content": []}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": None}]}, "input[0].content"),
    ],
)
def test_an_empty_form_that_means_nothing_is_refused(body: Any, param: str) -> None:
    assert refuse(**body).param == param


@pytest.mark.parametrize(
    "body",
    [
        {"input": ""},
        {"input": [], "previous_response_id": "resp_1"},
        {"input": None, "previous_response_id": "resp_1"},
        {"input": None, "conversation": "conv_1"},
        {"input": [{"role": "user", "content": ""}]},
        {"input": [{"type": "reasoning", "content": None}]},
        {"input": "x", "instructions": ""},
        {"input": "x", "tools": [], "include": [], "text": {}, "metadata": {}, "stop": []},
        {"input": "x", "tools": None, "tool_choice": None, "text": None, "reasoning": {}, "stream_options": {}},
    ],
)
def test_an_empty_form_that_means_something_is_taken(body: Any) -> None:
    assert turn(**body)


# ---------------------------------------------------------------- tools


@pytest.mark.parametrize(
    "tool",
    [
        F,
        {**F, "strict": None, "description": None, "vendor": 1},
        {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
        {"function": {"name": "f", "parameters": SCHEMA}},
        {"name": "f", "parameters": SCHEMA},
    ],
)
def test_a_function_may_be_flat_chat_shaped_or_untyped(tool: Any) -> None:
    assert turn(tools=[tool]).tools == (t.FunctionTool("f", parameters=SCHEMA),)


def test_the_schema_of_a_tool_is_left_as_it_is() -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "X", **SCHEMA, "x-vendor": [None]}

    assert turn(tools=[{**F, "parameters": schema}]).tools == (t.FunctionTool("f", parameters=schema),)


def test_a_custom_tool_may_be_flat_or_chat_shaped() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}
    flat = {"type": "custom", "name": "c", "description": "free", "format": grammar}
    nested = {"type": "custom", "custom": {"name": "c", "description": "free", "format": grammar}}

    assert turn(tools=[flat]).tools == turn(tools=[nested]).tools == (t.CustomTool("c", "free", grammar),)


def test_a_namespace_keeps_its_tools_together() -> None:
    [tool] = turn(tools=[{"type": "namespace", "name": "ns", "tools": [F, {"type": "custom", "name": "c"}]}]).tools

    assert tool == t.NamespaceTool("ns", "", [t.FunctionTool("f", parameters=SCHEMA), t.CustomTool("c")])


def test_hosted_tools_are_noted_once_and_not_offered() -> None:
    hosted = [
        {"type": "web_search"},
        {"type": "mcp", "server_label": "x"},
        {"type": "web_search", "filters": {}},
        {"type": "brand_new"},
    ]
    done = turn(tools=[hosted[0], F, *hosted[1:]])

    assert done.tools == (t.FunctionTool("f", parameters=SCHEMA),)
    assert done.unsupported_tools == ("web_search", "mcp", "brand_new")


def test_hosted_tools_are_refused_with_their_place_where_the_owner_says_so() -> None:
    error = refuse(True, tools=[F, {"type": "web_search"}])

    assert error.param == "tools[1].type"
    assert "web_search" in error.message


def test_a_hosted_tool_is_refused_at_its_own_place_though_another_tool_speaks_of_it() -> None:
    talks = {**F, "description": "better than web_search"}

    assert refuse(True, tools=[talks, {"type": "web_search"}]).param == "tools[1].type"


@pytest.mark.parametrize(
    "tools",
    [
        [F, F],
        [F, {"type": "custom", "name": "f"}],
        [{"type": "namespace", "name": "ns", "tools": [F, F]}],
        [{"type": "tool_search"}, {"type": "tool_search"}],
    ],
)
def test_two_tools_of_one_name_are_refused(tools: Any) -> None:
    assert "twice" in refuse(tools=tools).message


def test_one_name_in_two_namespaces_is_two_tools() -> None:
    spaces = [{"type": "namespace", "name": name, "tools": [F]} for name in ("a", "b")]

    assert len(turn(tools=[F, *spaces]).tools) == 3


@pytest.mark.parametrize("tool", [{"type": "function"}, {"type": "custom"}, {"type": "custom", "custom": {"name": 5}}])
def test_a_tool_without_a_name_is_refused_with_its_place(tool: Any) -> None:
    assert refuse(tools=[F, tool]).param.startswith("tools[1]")


def test_additional_tools_in_the_input_are_declared_too() -> None:
    more = {"type": "additional_tools", "tools": [{"type": "function", "name": "g"}, {"type": "web_search"}]}
    found = {"type": "tool_search_output", "call_id": "c", "tools": [{"name": "h", "defer_loading": True}]}
    done = turn(tools=[F], input=[more, found, {"role": "user", "content": "x"}])

    assert [tool.name for tool in done.tools if isinstance(tool, t.FunctionTool)] == ["f", "g", "h"]
    assert done.unsupported_tools == ("web_search",)


def test_a_tool_said_again_in_the_input_takes_its_later_form_and_a_namespace_grows() -> None:
    space = {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "a"}]}
    more = {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "b"}]}
    done = turn(
        tools=[F, space],
        input=[{"type": "additional_tools", "tools": [{"type": "function", "name": "f"}, more]}, "x"][:1],
    )

    assert done.tools == (
        t.FunctionTool("f"),
        t.NamespaceTool("ns", "", [t.FunctionTool("a"), t.FunctionTool("b")]),
    )


def test_a_broken_tool_inside_the_input_is_told_with_its_place() -> None:
    more = {"type": "additional_tools", "tools": [{"type": "function", "name": "g"}, {"type": "function", "name": 5}]}

    assert refuse(input=[{"role": "user", "content": "x"}, more]).param == "input[1].tools[1].name"


def test_a_hosted_tool_of_any_name_inside_the_input_is_noted_like_a_declared_one() -> None:
    done = turn(
        input=[{"type": "additional_tools", "tools": [{"type": "brand_new"}]}, {"role": "user", "content": "x"}]
    )

    assert done.unsupported_tools == ("brand_new",)


# ---------------------------------------------------------------- choices

SPACE = {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "g"}]}
DECLARED = [F, {"type": "custom", "name": "c"}, SPACE, {"type": "tool_search", "execution": "client"}]


@pytest.mark.parametrize(
    ("given_", "choice"),
    [
        (None, "auto"),
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "f"}, t.ToolRef("function", "f")),
        ({"type": "function", "function": {"name": "f"}}, t.ToolRef("function", "f")),
        ({"type": "custom", "name": "c"}, t.ToolRef("custom", "c")),
        ({"type": "function", "name": "g"}, t.ToolRef("function", "g")),
        ({"type": "function", "name": "g", "namespace": "ns"}, t.ToolRef("function", "g", "ns")),
        ({"type": "namespace", "name": "ns"}, t.ToolRef("namespace", "ns")),
        ({"type": "tool_search"}, t.ToolRef("tool_search")),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
            t.AllowedTools([t.ToolRef("function", "f")], "required"),
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
            t.AllowedTools([t.ToolRef("function", "f")]),
        ),
        (
            {"type": "allowed_tools", "tools": [{"type": "custom", "name": "c"}]},
            t.AllowedTools([t.ToolRef("custom", "c")]),
        ),
    ],
)
def test_a_choice_may_be_flat_or_chat_shaped(given_: Any, choice: Any) -> None:
    assert turn(tools=DECLARED, tool_choice=given_).tool_choice == choice


@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_auto_and_none_need_no_tools(choice: Any) -> None:
    assert turn(tool_choice=choice).tool_choice == (choice or "auto")


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ([], "required", "tool_choice"),
        ([{"type": "web_search"}], "required", "tool_choice"),
        ([F], {"type": "function", "name": "nobody"}, "tool_choice"),
        ([], {"type": "function", "name": "f"}, "tool_choice"),
        ([F], {"type": "function"}, "tool_choice.name"),
        ([F], {"type": "web_search"}, "tool_choice.type"),
        ([F, {"type": "web_search"}], {"type": "web_search"}, "tool_choice.type"),
        ([SPACE], {"type": "function", "name": "g", "namespace": "other"}, "tool_choice"),
        ([F], {"type": "tool_search"}, "tool_choice"),
        ([F], {"type": "namespace", "name": "f"}, "tool_choice"),
        ([F], {"type": "allowed_tools", "tools": []}, "tool_choice.tools"),
        ([F], {"type": "allowed_tools"}, "tool_choice.tools"),
        (
            [F],
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "x"}]},
            "tool_choice.tools[1]",
        ),
        ([F], {"type": "allowed_tools", "tools": [{"type": "mcp"}]}, "tool_choice.tools[0].type"),
        (
            [F, {"type": "mcp"}],
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "mcp", "server_label": "m"}]},
            "tool_choice.tools",
        ),
    ],
)
def test_a_choice_that_nothing_declared_can_keep_is_refused(tools: Any, choice: Any, param: str) -> None:
    assert refuse(tools=tools, tool_choice=choice).param == param


@pytest.mark.parametrize(
    ("others", "mode", "choice"),
    [
        ([{"type": "function", "name": "f"}], "required", t.AllowedTools([t.ToolRef("function", "f")], "required")),
        ([{"type": "function", "name": "f"}], "auto", t.AllowedTools([t.ToolRef("function", "f")])),
        ([], "auto", "none"),
        ([], None, "none"),
    ],
)
def test_a_hosted_tool_that_is_declared_may_be_among_the_allowed(others: Any, mode: Any, choice: Any) -> None:
    tools = [F, {"type": "web_search"}, {"type": "mcp", "server_label": "m"}]
    allowed = [{"type": "web_search"}, *others, {"type": "mcp", "server_label": "m"}]

    done = turn(tools=tools, tool_choice={"type": "allowed_tools", "mode": mode, "tools": allowed})

    assert done.tool_choice == choice


def test_a_choice_may_name_a_tool_that_the_input_declares() -> None:
    more = {"type": "additional_tools", "tools": [{"type": "function", "name": "g"}]}
    done = turn(input=[more, {"role": "user", "content": "x"}], tool_choice={"type": "function", "name": "g"})

    assert done.tool_choice == t.ToolRef("function", "g")


# ---------------------------------------------------------------- formats

ANSWER = Format("json_schema", "answer", SCHEMA, strict=True)
FLAT = {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}
NESTED = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize(
    "body",
    [
        {"text": {"format": FLAT}},
        {"text": {"format": NESTED}},
        {"format": FLAT},
        {"response_format": NESTED},
        {"text": {"format": FLAT}, "response_format": {"type": "json_object"}},
        {"text": {"verbosity": "low"}, "format": FLAT},
    ],
)
def test_a_schema_for_the_answer_comes_in_four_spellings(body: Any) -> None:
    assert turn(**body).format == ANSWER


@pytest.mark.parametrize(
    ("given_", "form"),
    [
        ({"type": "text"}, Format()),
        ({"type": "json_object"}, Format("json_object")),
        ({**FLAT, "strict": None}, Format("json_schema", "answer", SCHEMA)),
        ({**FLAT, "description": "d", "strict": False}, Format("json_schema", "answer", SCHEMA, description="d")),
    ],
)
def test_other_formats(given_: Any, form: Format) -> None:
    assert turn(text={"format": given_}).format == form


@pytest.mark.parametrize(
    ("given_", "param"),
    [
        ({**FLAT, "name": None}, "text.format.name"),
        ({**FLAT, "name": ""}, "text.format.name"),
        ({**FLAT, "schema": None}, "text.format.schema"),
        ({"type": "json_schema", "json_schema": {}}, "text.format.json_schema.name"),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": "{}"}}, "text.format.json_schema.schema"),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": 1}},
            "text.format.json_schema.strict",
        ),
        ({"type": "grammar"}, "text.format.type"),
        ({**FLAT, "schema": {"type": "nonsense"}}, "text.format.schema.type"),
        ({**FLAT, "schema": {"$ref": "#/$defs/nowhere"}}, "text.format.schema"),
    ],
)
def test_a_broken_format_is_told_with_its_path(given_: Any, param: str) -> None:
    assert refuse(text={"format": given_}).param == param


def test_a_strict_tool_s_broken_schema_is_told_with_its_path_and_a_loose_tool_s_is_the_client_s_own() -> None:
    broken = {"type": "object", "properties": {"n": {"type": "whatever"}}}

    error = refuse(tools=[{"type": "function", "name": "ok"}, {**F, "parameters": broken, "strict": True}])
    assert error.param == "tools[1].parameters.properties.n.type"
    assert turn(tools=[{**F, "parameters": broken}])


# ---------------------------------------------------------------- options and limits


def test_options_hold_what_the_client_said_and_nothing_else() -> None:
    assert turn().options == Options()
    said = turn(
        temperature=0,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.1,
        seed=7,
        stop=["a", ""],
        max_output_tokens=1,
        top_logprobs=2,
        include=["message.output_text.logprobs"],
        reasoning={"effort": "low"},
        chat_template_kwargs={"x": 1},
    )
    assert said.options == Options(
        0, 0.5, 3, 0.1, 1, -1, 1.1, 7, ("a",), 1, 2, logprobs=True, effort="low", chat_template_kwargs={"x": 1}
    )


@pytest.mark.parametrize(("stop", "kept"), [("a", ("a",)), ("", ()), (["a", "b"], ("a", "b")), ([], ()), (None, ())])
def test_a_stop_is_a_text_or_a_list(stop: Any, kept: tuple[str, ...]) -> None:
    assert turn(stop=stop).options.stop == kept


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"stop": ["a"] * 17}, "stop"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"chat_template_kwargs": {"chat_template": "{{ boom }}"}}, "chat_template_kwargs.chat_template"),
    ],
)
def test_what_is_over_a_limit_or_not_the_client_s_to_say_is_refused(body: Any, param: str) -> None:
    assert refuse(**body).param == param


def test_metadata_at_its_limits_is_taken() -> None:
    assert turn(metadata={f"{n:064}": "v" * 512 for n in range(16)})


@pytest.mark.parametrize(
    "metadata", [{"k": "v" * 513}, {f"k{n}": "v" for n in range(17)}, {"k": 1}, {"k": None}, {"k": {"a": "b"}}]
)
def test_metadata_over_its_limits_is_refused(metadata: Any) -> None:
    assert refuse(metadata=metadata).param.startswith("metadata")


def test_parallel_calls_are_allowed_unless_the_client_says_no() -> None:
    assert [turn(parallel_tool_calls=value).parallel_tool_calls for value in (None, True, False)] == [True, True, False]


def test_unknown_includes_are_ignored() -> None:
    assert turn(include=["reasoning.encrypted_content", "brand.new"]).options == Options()


@given(st.lists(st.sampled_from(["auto", "none", "f", "c", "ns", "tool_search", "nobody"]), max_size=3))
def test_any_choice_among_declared_tools_is_either_kept_or_refused_with_its_path(names: list[str]) -> None:
    refs = [
        {"type": "custom" if name == "c" else "namespace" if name == "ns" else "function", "name": name}
        for name in names
    ]
    body = {"tools": DECLARED, "tool_choice": {"type": "allowed_tools", "tools": refs}}

    if names and set(names) <= {"f", "c", "ns", "tool_search"}:
        choice = turn(**body).tool_choice
        assert isinstance(choice, t.AllowedTools)
        assert [ref.name for ref in choice.tools] == names
    else:
        assert refuse(**body).param.startswith("tool_choice.tools")
