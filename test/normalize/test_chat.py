"""Chat bodies become requests of Responses: nothing is lost, nothing is judged twice, complaints name chat's fields."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mellea_responses.errors import InvalidRequest
from mellea_responses.media.parts import check_media
from mellea_responses.normalize.chat import from_chat
from mellea_responses.normalize.request import Normalized, normalize
from mellea_responses.program.call import client_options, model_options
from mellea_responses.program.messages import to_messages
from mellea_responses.turn import Format, Options
from mellea_responses.wire import items as w
from mellea_responses.wire import tools as t
from mellea_responses.wire.chat import CreateChat, FromChat
from mellea_responses.wire.decode import decode

Json = dict[str, Any]
PNG = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
F: Json = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
FREE: Json = {"type": "custom", "custom": {"name": "free", "description": "Anything."}}
HI: list[Json] = [{"role": "user", "content": "hi"}]


def request(**body: Any) -> FromChat:
    sent = json.dumps({"messages": HI, **body}).encode()
    return from_chat(decode(sent, CreateChat), sent)[0]


def turn(**body: Any) -> Normalized:
    """The way of a chat body up to the point where history would come in."""
    sent = json.dumps({"messages": HI, **body}).encode()
    asked, places = from_chat(decode(sent, CreateChat), sent)
    with places.named():
        normalized = normalize(asked)
        check_media(normalized.loose)
    return replace(normalized, input=normalized.loose)


def refuse(**body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        turn(**body)
    return caught.value


def items(*messages: Json) -> list[Any]:
    return list(turn(messages=list(messages)).input)


def call(call_id: str, name: str = "f", arguments: Any = '{"n":1}') -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# ---------------------------------------------------------------- messages

texts = st.text(min_size=1, max_size=8)
said = st.one_of(
    st.builds(
        lambda role, text: [{"role": role, "content": text}], st.sampled_from(["system", "developer", "user"]), texts
    ),
    st.builds(lambda text: [{"role": "assistant", "content": text}], texts),
    st.builds(lambda text, why: [{"role": "assistant", "content": text, "reasoning_content": why}], texts, texts),
)


@st.composite
def chats(draw: st.DrawFn) -> list[Json]:
    """A chat in the one form that leaves nothing open: each call is answered at once, in order."""
    messages: list[Json] = []
    for i in range(draw(st.integers(1, 5))):
        if not draw(st.booleans()):
            messages += draw(said)
            continue
        calls = [call(f"c{i}_{n}", draw(st.sampled_from("fg"))) for n in range(draw(st.integers(1, 3)))]
        messages.append({"role": "assistant", "content": draw(st.just("") | texts), "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": one["id"], "name": one["function"]["name"], "content": draw(texts)}
            for one in calls
        ]
    return messages


@given(chats())
def test_a_program_reads_the_chat_that_the_client_sent(messages: list[Json]) -> None:
    assert to_messages(turn(messages=messages), as_written=True) == messages


@given(chats())
def test_every_item_knows_the_message_it_was_made_of(messages: list[Json]) -> None:
    sent = decode(json.dumps({"messages": messages}).encode(), CreateChat)

    asked, places = from_chat(sent)

    numbers = [int(place.partition("]")[0].removeprefix("messages[")) for place in places.items]
    assert len(numbers) == len(asked.input or ())
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(len(messages)))


def test_parts_of_every_kind_keep_their_order() -> None:
    [message] = items(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": PNG, "detail": "high"}},
                {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
                {"type": "image_url", "image_url": PNG},
            ],
        }
    )

    assert message.content == [
        w.InputText("Look"),
        w.InputImage(image_url=PNG, detail="high"),
        w.InputAudio(w.AudioData("UklG", "wav")),
        w.InputImage(image_url=PNG),
    ]


@pytest.mark.parametrize("content", [None, ""])
def test_an_answer_of_calls_alone_needs_no_content(content: str | None) -> None:
    made = items(*HI, {"role": "assistant", "content": content, "tool_calls": [call("c1")]})

    assert [w.item_type(item) for item in made] == ["message", "function_call"]


def test_a_refusal_is_said_after_the_text() -> None:
    _, answer, alone = items(
        *HI,
        {"role": "assistant", "content": "Well,", "refusal": "no."},
        {"role": "assistant", "content": None, "refusal": "No."},
    )

    assert answer.content == [w.OutputText("Well,"), w.RefusalPart("no.")]
    assert alone.content == [w.RefusalPart("No.")]


def test_arguments_may_be_text_an_object_or_missing() -> None:
    made = items(
        *HI,
        {"role": "assistant", "tool_calls": [call("a"), call("b", "f", {"n": 2}), call("c", "f", None)]},
    )

    assert [item.arguments for item in made[1:]] == ['{"n":1}', '{"n":2}', "{}"]


def test_the_call_of_a_custom_tool_stays_one() -> None:
    made = items(
        *HI,
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "free", "input": "x"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "done"}]},
    )

    assert isinstance(made[1], w.CustomToolCall)
    assert (made[1].input, made[2].call_id, made[2].output) == ("x", "c", [w.InputText("done")])


def test_a_functions_message_answers_the_last_call_of_its_name() -> None:
    made = items(
        *HI,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "old"},
        {"role": "assistant", "content": None, "tool_calls": [call("c1")]},
        {"role": "function", "name": "f", "content": "new"},
    )

    assert made[1].call_id == made[2].call_id
    assert made[4].call_id == "c1"


def test_call_ids_that_come_again_in_a_later_answer_are_told_apart() -> None:
    again: list[Json] = [
        {"role": "assistant", "tool_calls": [call("call_0")]},
        {"role": "tool", "tool_call_id": "call_0", "content": "first"},
        {"role": "assistant", "tool_calls": [call("call_0")]},
        {"role": "tool", "tool_call_id": "call_0", "content": "second"},
    ]

    made = items(*HI, *again)

    outputs = {item.call_id: item.output for item in made if w.is_call_output(item)}
    assert [outputs[item.call_id] for item in made if w.is_call(item)] == ["first", "second"]
    assert made[1].call_id == "call_0"


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, Options()),
        ({"max_tokens": 5}, Options(max_output_tokens=5)),
        ({"max_tokens": 5, "max_completion_tokens": 7}, Options(max_output_tokens=7)),
        ({"stop": "END"}, Options(stop=("END",))),
        ({"stop": ["a", "b"], "seed": 3}, Options(stop=("a", "b"), seed=3)),
        ({"temperature": 0, "top_p": 0.5}, Options(temperature=0.0, top_p=0.5)),
        ({"presence_penalty": 1, "frequency_penalty": -1}, Options(presence_penalty=1.0, frequency_penalty=-1.0)),
        ({"logprobs": True, "top_logprobs": 2}, Options(logprobs=True, top_logprobs=2)),
        ({"logprobs": False, "top_logprobs": 0}, Options()),
        ({"reasoning_effort": "low"}, Options(effort="low")),
        ({"top_k": 4, "min_p": 0.1, "repetition_penalty": 1.1}, Options(top_k=4, min_p=0.1, repetition_penalty=1.1)),
        (
            {"chat_template_kwargs": {"enable_thinking": False}},
            Options(chat_template_kwargs={"enable_thinking": False}),
        ),
        ({"temperature": None, "stop": None, "max_tokens": None, "n": None, "logprobs": None}, Options()),
        ({"n": 1, "logit_bias": {"5": 1}, "nobody_knows": [1]}, Options()),
    ],
)
def test_options_are_those_the_client_sent_and_no_others(body: Json, expected: Options) -> None:
    assert turn(**body).options == expected


def test_what_is_only_echoed_or_handed_on_arrives() -> None:
    asked = request(
        model="m", user="u", metadata={"a": "b"}, requirements=["short", None], stream=True, prompt_cache_key="k",
        verbosity="low",
    )  # fmt: skip

    assert (asked.model, asked.user, asked.metadata, asked.requirements) == ("m", "u", {"a": "b"}, ["short"])
    assert (asked.stream, asked.prompt_cache_key) == (True, "k")
    assert asked.text is not None
    assert asked.text.verbosity == "low"


@pytest.mark.parametrize(("store", "kept"), [(None, False), (False, False), (True, True)])
def test_an_answer_is_kept_only_when_asked(store: bool | None, kept: bool) -> None:
    assert request(store=store).store is kept


def test_nothing_of_a_chain_is_taken_from_a_chat() -> None:
    asked = request(previous_response_id="resp_1", conversation="conv_1", input="x", background=True, include=["x"])

    assert (asked.previous_response_id, asked.conversation, asked.background, asked.include) == (None,) * 4


def test_a_schema_is_named_by_the_clients_own_path() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "N", "schema": SCHEMA, "strict": True}}
    broken = {"type": "json_schema", "json_schema": {"name": "N", "schema": {"type": "wrong"}}}

    assert turn(response_format=form).format == Format("json_schema", "N", SCHEMA, strict=True)
    assert turn(response_format={"type": "json_object"}).format == Format("json_object")
    assert turn(response_format={"type": "text"}).format == Format()
    assert refuse(response_format=broken).param.startswith("response_format.json_schema.schema")


# ---------------------------------------------------------------- tools


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, "auto"),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "function": {"name": "f"}}, t.ToolRef("function", "f")),
        ({"type": "function", "name": "f"}, t.ToolRef("function", "f")),
        ({"type": "custom", "custom": {"name": "free"}}, t.ToolRef("custom", "free")),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [
                        {"type": "function", "function": {"name": "f"}},
                        {"type": "custom", "custom": {"name": "free"}},
                    ],
                },
            },
            t.AllowedTools([t.ToolRef("function", "f"), t.ToolRef("custom", "free")], "required"),
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            t.AllowedTools([t.ToolRef("function", "f")], "auto"),
        ),
    ],
)
def test_a_choice_of_every_shape_is_understood(choice: Any, expected: Any) -> None:
    made = turn(tools=[F, FREE], tool_choice=choice)

    assert made.tools == (t.FunctionTool("f", parameters=SCHEMA), t.CustomTool("free", description="Anything."))
    assert made.tool_choice == expected


def test_parallel_calls_can_be_refused() -> None:
    assert turn(tools=[F]).parallel_tool_calls is True
    assert turn(tools=[F], parallel_tool_calls=False).parallel_tool_calls is False


# ---------------------------------------------------------------- what is refused

TOOL = {"role": "tool", "tool_call_id": "c", "content": "x"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role"),
        ({"messages": [*HI, {"role": "user", "content": None}]}, "messages[1].content"),
        ({"messages": [*HI, {"role": "user", "content": []}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": 5}]}]},
         "messages[0].content[1].text"),
        ({"messages": [{"role": "user", "content": [{"type": "nope"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///x"}}]}]},
         "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}]},
         "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]}]},
         "messages[0].content[0]"),
        ({"messages": [*HI, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
        ({"messages": [*HI, {"role": "function", "name": "f", "content": "x"}]}, "messages[1]"),
        ({"messages": [*HI, {"role": "assistant", "tool_calls": [call("c"), {"id": "d", "type": "function"}]}]},
         "messages[1].tool_calls[1].function"),
        ({"messages": [*HI, {"role": "assistant", "tool_calls": [call("c", arguments=5)]}]},
         "messages[1].tool_calls[0].function.arguments"),
        ({"messages": [*HI, {"role": "assistant", "tool_calls": [call("c")]},
                       {**TOOL, "content": [{"type": "image_url", "image_url": {"url": "http://x/y"}}]}]},
         "messages[2].content[0]"),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.name"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [F], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs.chat_template"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_as_the_client_wrote_it(body: Json, param: str) -> None:
    assert refuse(**body).param == param


def test_a_limit_is_named_as_the_client_wrote_it() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        _, places = from_chat(decode(json.dumps({"messages": HI, name: 5}).encode(), CreateChat))

        with pytest.raises(InvalidRequest) as caught, places.named():
            raise InvalidRequest("Too much.", param="max_output_tokens")

        assert caught.value.param == name


# ---------------------------------------------------------------- what programs get


def test_a_program_gets_the_whole_body_without_nulls_as_client_options() -> None:
    body = {"messages": HI, "model": "m", "max_tokens": 5, "logit_bias": {"5": 1}, "user": None, "tools": [F], "n": 1}

    assert client_options(turn(**body)) == {key: value for key, value in body.items() if value is not None}


def test_model_options_are_under_mellea_s_names_and_hold_nothing_unsent() -> None:
    from mellea.backends import ModelOption

    options = model_options(turn(max_tokens=5, seed=1, temperature=0.5, stream=True, stop="x", tools=[F], model="m"))

    tools = options.pop(ModelOption.TOOLS)
    assert [tool["function"]["name"] for tool in tools] == ["f"]
    assert options == {
        ModelOption.MAX_NEW_TOKENS: 5,
        ModelOption.SEED: 1,
        ModelOption.TEMPERATURE: 0.5,
        ModelOption.STREAM: True,
        ModelOption.STOP_SEQUENCES: ["x"],
        ModelOption.TOOL_CHOICE: "auto",
    }
    assert model_options(turn(model="m", n=1, user="u")) == {}
