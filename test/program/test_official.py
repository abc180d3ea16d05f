"""Mellea's own serve programs, unmodified, behind our server and the OpenAI SDK, streamed and not.

They are not part of this repository: `MELLEA_SERVE_EXAMPLES` names a folder that holds `docs/examples/m_serve` of a
Mellea checkout. `start_session` finds a scripted backend in place of Ollama's; other services are stand-ins.
"""

import base64
import json
import os
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from mellea_responses.program.load import load_program
from mellea_responses.settings import Settings
from support import sdk
from support.mellea_backend import Heard, ScriptedBackend, words
from support.services import stand_in
from support.serving import build_app, running

FOLDER = Path(os.environ.get("MELLEA_SERVE_EXAMPLES", ""))
HERE = bool(os.environ.get("MELLEA_SERVE_EXAMPLES")) and FOLDER.is_dir()
pytestmark = pytest.mark.skipif(not HERE, reason="MELLEA_SERVE_EXAMPLES names no folder of serve programs")

HI = "Hi Bob! red and blue"
LOOK = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
    "strict": False,
}
FORM = {
    "type": "json_schema",
    "name": "Person",
    "strict": True,
    "schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}


def picture() -> str:
    out = BytesIO()
    Image.new("RGB", (2, 2)).save(out, "JPEG")
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


def sound() -> str:
    data = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 38, b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", 2)
    return base64.b64encode(data + b"\0\0").decode()


def with_parts(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, *parts]}]}


PICTURE = with_parts({"type": "input_image", "image_url": picture(), "detail": "auto"})
SOUND = with_parts({"type": "input_audio", "input_audio": {"data": sound(), "format": "wav"}})
PROGRAMS: dict[str, dict[str, Any]] = {
    "m_serve_example_simple.py": {"input": "Write to Bob."},
    "m_serve_example_streaming.py": {"input": "Say something."},
    "m_serve_example_response_format.py": {"input": "Who?", "text": {"format": FORM}},
    "m_serve_example_model_routing.py": {"input": "Hello.", "model": "granite4.1:8b"},
    "m_serve_example_multimodal_image.py": PICTURE,
    "m_serve_example_multimodal_audio_llama_server.py": SOUND,
    "m_serve_example_multimodal_audio_granite.py": SOUND,
    "m_serve_example_tool_calling.py": {"input": "Weather in Boston?", "tools": [LOOK]},
    "pii_serve.py": {"input": "Ada lives in London."},
}


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Heard]]:
    """What the scripted backends behind `start_session` were asked, and stand-ins for everything else."""
    made: list[Heard] = []

    def script(asked: Heard) -> Any:
        made.append(asked)
        judged = "requirement is satisfied" in str(asked.conversation[-1]["content"])  # the model is its own judge
        return words("yes" if judged else '{"name": "Ada"}' if asked.format else HI)

    def find(_name: str) -> Callable[..., ScriptedBackend]:
        return lambda model_id, model_options=None, **_: ScriptedBackend(
            script, model_id=str(getattr(model_id, "ollama_name", model_id)), model_options=model_options
        )

    monkeypatch.setattr("mellea.stdlib.session.backend_name_to_class", find)
    spacy = ModuleType("spacy")
    spacy.load = lambda _name: _Document
    monkeypatch.setitem(sys.modules, "spacy", spacy)
    with stand_in() as (url, _):
        monkeypatch.setenv("OLLAMA_HOST", url)
        yield made


class _Document(list[Any]):
    """What spaCy gives for a text: tokens, and no names in it."""

    def __init__(self, text: str) -> None:
        super().__init__(SimpleNamespace(text=word) for word in text.split())
        self.ents: list[Any] = []


@pytest.fixture(autouse=True)
async def _close_clients() -> AsyncIterator[None]:
    yield
    for client in sdk.opened:
        await client.close()
    sdk.opened.clear()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", PROGRAMS)
async def test_an_official_program_answers_unmodified(name: str, streamed: bool, heard: list[Heard]) -> None:
    [path] = FOLDER.rglob(name)  # noqa: ASYNC240  # a test waits for nobody
    settings = Settings()
    program = load_program(str(path), settings)
    asked = {"model": "any", **PROGRAMS[name]}

    try:
        async with running(build_app(program)) as url:
            client = sdk.client_of(url)
            if streamed:
                async with client.responses.stream(**asked) as stream:
                    kinds = [event.type async for event in stream]
                    answer: Any = await stream.get_final_response()
                assert kinds[-1] == "response.completed"
            else:
                answer = await client.responses.create(**asked)
    finally:
        sys.modules.pop(path.stem, None)

    assert answer.status == "completed"
    if "tools" in asked:
        [call] = [item for item in answer.output if item.type == "function_call"]
        assert (call.name, call.call_id, json.loads(call.arguments)) == (
            "get_weather", "call_stand_in", {"location": "Boston"}
        )  # fmt: skip
    elif "text" in asked:
        assert json.loads(answer.output_text) == {"name": "Ada"}
    else:
        assert answer.output_text == HI
        assert answer.usage.output_tokens > 0
    if PROGRAMS[name] is PICTURE:
        assert heard[0].images == 1
