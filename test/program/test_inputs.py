"""What a Mellea program is given: its own types, with nothing lost and nothing that the client did not send."""

import asyncio
import base64
import copy
import json
import logging
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from mellea import MelleaSession
from mellea.backends import ModelOption
from mellea.backends.tools import MelleaTool, add_tools_from_model_options, convert_tools_to_json
from mellea.core import ImageBlock
from mellea.helpers.event_loop_helper import _run_async_in_thread
from mellea.serve import ChatMessage as MelleaMessage
from mellea.stdlib.components.chat import Message
from PIL import Image

from mellea_responses.context import to_context
from mellea_responses.program import call
from mellea_responses.program.call import model_options
from mellea_responses.program.inputs import ChatMessage, ClientTool, chat_messages, format_class
from mellea_responses.program.load import load_program
from mellea_responses.program.user import UserProgram
from mellea_responses.runs import new_current
from mellea_responses.settings import Settings
from mellea_responses.turn import Format, Options, Turn, current_run
from mellea_responses.wire import items as w
from mellea_responses.wire.request import CreateResponse
from mellea_responses.wire.tools import FunctionTool
from support.mellea_backend import ScriptedBackend
from support.pictures import picture

SHAPED = {
    "type": "function",
    "function": {"name": "look", "description": "d", "parameters": {"type": "object", "properties": {}}},
}


def seen(*urls: str) -> Turn:
    parts: list[w.Part] = [w.InputText("see"), *(w.InputImage(url) for url in urls)]
    return Turn(CreateResponse(), (w.Message("m", "completed", "user", parts),))


# ---------------------------------------------------------------- messages


def test_messages_are_mellea_s_own_with_calls_and_thoughts() -> None:
    items = (
        w.Message("m1", "completed", "developer", [w.InputText("be brief")]),
        w.Reasoning("r1", content=[w.ReasoningText("hm")]),
        w.FunctionCall("f1", "c1", "look", '{"q": 1 }', "completed"),
        w.FunctionCallOutput("o1", "c1", "42"),
    )

    system, asked, answered = chat_messages(Turn(CreateResponse(), items))

    assert isinstance(asked, MelleaMessage)
    assert (system.role, asked.reasoning, answered.tool_call_id) == ("system", "hm", "c1")
    assert asked.model_dump()["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"q": 1 }'}


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_picture_of_every_kind_reaches_mellea_as_png(kind: str) -> None:
    [message] = chat_messages(seen(picture(kind)))

    [block] = message.get_image_blocks()
    assert isinstance(block, ImageBlock)
    assert Image.open(BytesIO(base64.b64decode(str(block.value).partition("base64,")[2]))).size == (3, 2)


# ---------------------------------------------------------------- tools, options, form


def test_a_client_s_tool_is_what_it_sent_and_what_backends_take() -> None:
    tool = ClientTool(SHAPED)
    tools: dict[str, Any] = {}
    add_tools_from_model_options(tools, {ModelOption.TOOLS: [tool]})

    assert isinstance(tool, MelleaTool)
    assert tools == {"look": tool}
    assert convert_tools_to_json(tools) == [SHAPED]
    assert tool["function"]["name"] == "look"
    assert json.loads(json.dumps(tool)) == SHAPED
    assert copy.deepcopy(tool) == tool
    assert copy.deepcopy(tool).name == "look"


def test_a_client_s_tool_cannot_be_run_here() -> None:
    with pytest.raises(RuntimeError, match="belongs to the client"):
        copy.deepcopy(ClientTool(SHAPED)).run(q=1)


def test_options_have_mellea_s_names_and_hold_only_what_was_sent() -> None:
    assert model_options(Turn(CreateResponse(), ())) == {}

    options = Options(temperature=0.5, max_output_tokens=3, seed=1, stop=("x",), effort="low")
    turn = Turn(CreateResponse(stream=True), (), options=options, tools=(FunctionTool("look"),))
    given = model_options(turn)

    assert given[ModelOption.TEMPERATURE] == 0.5
    assert given[ModelOption.MAX_NEW_TOKENS] == 3
    assert given[ModelOption.SEED] == 1
    assert given[ModelOption.STOP_SEQUENCES] == ["x"]
    assert given[ModelOption.THINKING] == "low"
    assert given[ModelOption.STREAM] is True
    assert given[ModelOption.TOOL_CHOICE] == "auto"
    assert isinstance(given[ModelOption.TOOLS][0], ClientTool)


@pytest.mark.parametrize("name", ["TOOLS", "MAX_NEW_TOKENS", "SEED", "STREAM", "STOP_SEQUENCES", "THINKING"])
def test_the_names_spelled_here_are_the_installed_mellea_s(name: str) -> None:
    assert getattr(call, name) == getattr(ModelOption, name)


def test_a_form_is_the_client_s_schema_verbatim_and_closed_when_strict() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"minimum": 3}}}

    loose = format_class(Format("json_schema", "Answer", schema))
    strict = format_class(Format("json_schema", "Answer", schema, strict=True))

    assert loose is not None
    assert strict is not None
    assert loose.model_json_schema() == schema
    assert strict.model_json_schema() == {**schema, "additionalProperties": False}
    assert loose.__name__ == "Answer"


# ---------------------------------------------------------------- the run, contexts, sessions


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_the_run_is_known_in_the_program_in_mellea_s_loop_and_in_its_threads(form: str) -> None:
    owners: list[str] = []

    async def note() -> None:
        run = current_run.get()
        owners.append(run.owner if run else "nobody")
        await asyncio.to_thread(lambda: owners.append(getattr(current_run.get(), "owner", "nobody")))

    def serve(input: Any) -> str:
        _run_async_in_thread(note())
        return "ok"

    async def serve_async(input: Any) -> str:
        await note()
        await asyncio.to_thread(_run_async_in_thread, note())
        return "ok"

    program = UserProgram(serve if form == "sync" else serve_async, settings=Settings())
    try:
        async for _ in program.run(new_current("ada", "r", Turn(CreateResponse(), ()))):
            pass
    finally:
        program.close()

    assert set(owners) == {"ada"}


def test_a_context_holds_every_turn_with_calls_outputs_thoughts_and_pictures() -> None:
    given = [
        ChatMessage(role="user", content=[{"type": "image_url", "image_url": {"url": picture("PNG")}}]),
        ChatMessage(
            role="assistant",
            content=None,
            reasoning="hm",
            tool_calls=[{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        ),
        ChatMessage(role="function", content="42", tool_call_id="c1", name="look"),
    ]

    first, asked, answered = to_context(given).as_list()

    assert isinstance(first, Message)
    assert isinstance(asked, Message)
    assert isinstance(answered, Message)
    assert len(first.images or ()) == 1
    assert (asked.thinking, asked.content) == ("hm", "")
    assert [one["id"] for one in asked.tool_calls or ()] == ["c1"]
    assert (answered.role, answered.tool_call_id, answered.tool_name) == ("tool", "c1", "look")


def test_a_context_of_mellea_s_own_messages_works_and_adds_to_one_that_is_given() -> None:
    first = to_context([MelleaMessage(role="user", content="a")])

    assert len(to_context([MelleaMessage(role="assistant", content="b")], first).as_list()) == 2


def test_a_context_can_be_continued_by_a_session() -> None:
    backend = ScriptedBackend([("text", "ok")])
    given = [ChatMessage(role="user", content="a"), ChatMessage(role="assistant", content="b")]

    MelleaSession(backend, to_context(given)).chat("c")

    assert [message["content"] for message in backend.heard[0].conversation] == ["a", "b", "c"]


SHARED = """
from mellea import MelleaSession
from mellea.stdlib.context import {context}
from support.mellea_backend import ScriptedBackend
from support.pictures import picture

m = MelleaSession(ScriptedBackend([("text", "ok")]), {context}())

def serve(input, requirements=None, model_options=None):
    return m.instruct("x")
"""


@pytest.mark.parametrize(("context", "warned"), [("ChatContext", True), ("SimpleContext", False)])
def test_a_session_that_all_requests_share_is_told_at_the_start_if_it_remembers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, context: str, warned: bool
) -> None:
    path = tmp_path / f"shared_{context.lower()}.py"
    path.write_text(SHARED.format(context=context))

    with caplog.at_level(logging.WARNING, "mellea_responses.program"):
        load_program(str(path), Settings()).close()

    assert ("`m`" in caplog.text and "--exclusive" in caplog.text) is warned
