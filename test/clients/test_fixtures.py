"""Every request of a real client is answered as that client needs it.

`NEEDS` says for each request what its client needs beyond an answer; `SOCKETS` those that
`test_socket_fixtures` sends. Every file stands in exactly one of the two.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from mellea_responses.program.messages import to_messages
from mellea_responses.program.user import UserProgram
from mellea_responses.turn import Call, CallArgs, CallEnd, Facts, Step, Text, Turn
from support import oracle
from support.clients import Fixture, Speaker, load, plant
from support.obedient import SENTENCE, answer
from support.raw import Answer, ask, exchange, post
from support.recogniser import recognise_frames
from support.serving import serving
from support.stand_in import Json

COUNT = 7
"""Tokens that the program counts in any request."""
FIXTURES = {fixture.name: fixture for fixture in load()}


@dataclass
class Seen:
    """A request, what came back and what reached the program."""

    request: Fixture
    answer: Answer
    turn: Turn | None

    @property
    def body(self) -> Json:
        assert isinstance(self.request.body, dict)
        return self.request.body

    @property
    def items(self) -> list[Json]:
        """Everything the program could see, as JSON."""
        assert self.turn is not None
        items: list[Json] = msgspec.to_builtins(self.turn.items)
        return items

    @property
    def response(self) -> Json:
        return self.answer.response

    def output(self, kind: str) -> list[Json]:
        return [item for item in self.response["output"] if item["type"] == kind]


Need = Callable[[Seen], None]


# ---------------------------------------------------------------- what a client can need


def text(seen: Seen) -> None:
    """The answer is a sentence."""
    assert [part["text"] for item in seen.output("message") for part in item["content"]] == [SENTENCE]


def counted(seen: Seen) -> None:
    usage = seen.response["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0


def fitting_json(seen: Seen) -> None:
    """The text is JSON with the keys the schema requires."""
    [part] = [part for item in seen.output("message") for part in item["content"]]
    value = json.loads(part["text"])
    schema = seen.body["text"]["format"].get("schema", {})
    assert value.keys() >= set(schema.get("required", []))


def forced_call(seen: Seen) -> None:
    """The named tool was called, with arguments that have what its schema requires."""
    [made] = seen.output("function_call")
    [tool] = [tool for tool in seen.body["tools"] if tool.get("name") == seen.body["tool_choice"]["name"]]
    assert made["name"] == tool["name"]
    assert json.loads(made["arguments"]).keys() >= set(tool["parameters"].get("required", []))


def chained(seen: Seen) -> None:
    """The earlier turns stand before this one."""
    assert seen.turn is not None
    assert seen.turn.history
    assert seen.response["previous_response_id"] == seen.body["previous_response_id"]


def own_instructions(seen: Seen) -> None:
    """Instructions are those of this request alone."""
    assert seen.turn is not None
    assert seen.turn.instructions == seen.body.get("instructions")
    assert seen.response["instructions"] == seen.body.get("instructions")


def paired(seen: Seen) -> None:
    """Every output has its call before it."""
    called: set[str] = set()
    outputs = 0
    for item in seen.items:
        if item["type"].endswith("_call"):
            called.add(item["call_id"])
        elif item["type"].endswith("_call_output"):
            outputs += 1
            assert item["call_id"] in called
    assert outputs


def phases(seen: Seen) -> None:
    sent = [item["phase"] for item in seen.body["input"] if "phase" in item]
    assert sent == [item["phase"] for item in seen.items if "phase" in item] != []


def namespaces(seen: Seen) -> None:
    sent = [item["namespace"] for item in seen.body["input"] if "namespace" in item]
    assert sent == [item["namespace"] for item in seen.items if "namespace" in item] != []


def thoughts(seen: Seen) -> None:
    sent = [item for item in seen.body["input"] if item.get("type") == "reasoning"]
    kept = [item for item in seen.items if item["type"] == "reasoning"]
    assert len(kept) == len(sent) > 0


def image(seen: Seen) -> None:
    assert '"input_image"' in json.dumps(seen.items)
    assert "data:image/png;base64," in json.dumps(seen.items)


def hosted(*kinds: str) -> Need:
    """Hosted tools are named in a header, and are neither offered nor echoed."""

    def need(seen: Seen) -> None:
        assert seen.answer.headers["x-mellea-unsupported-tools"] == ", ".join(kinds)
        assert not [tool for tool in seen.response["tools"] if tool["type"] in kinds]

    return need


def echoed(*names: str) -> Need:
    """Options stand in the answer as they were sent."""

    def need(seen: Seen) -> None:
        for name in names:
            assert seen.response[name] == seen.body[name], name

    return need


def calls(kind: str, name: str, namespace: str | None, text: str) -> Need:
    """The call left under the name, namespace and kind that the client knows."""

    def need(seen: Seen) -> None:
        [made] = seen.output(kind)
        assert (made["name"], made.get("namespace")) == (name, namespace)
        assert made["arguments" if kind == "function_call" else "input"] == text

    return need


def whole_history(seen: Seen) -> None:
    """The stream of a stored response is the same as the first."""
    frames = seen.answer.frames
    assert frames[0].json["sequence_number"] == 0
    recognise_frames(frames)


def after_four(seen: Seen) -> None:
    numbers = [event["sequence_number"] for event in seen.answer.events]
    assert numbers == list(range(5, 5 + len(numbers)))
    assert seen.answer.frames[-1].is_done


def listed_model(seen: Seen) -> None:
    assert "local-model" in [model["id"] for model in seen.answer.json["data"]]


def listed_items(seen: Seen) -> None:
    oracle.check_item_page(seen.answer.json)
    [item] = seen.answer.json["data"]
    assert item["type"] == "function_call_output"
    assert item["id"]


def begun(seen: Seen) -> None:
    """The answer comes at once, before the response is over."""
    assert seen.response["status"] in ("queued", "in_progress")
    assert seen.response["id"]
    assert seen.response["background"] is True


def as_it_ended(seen: Seen) -> None:
    """A response that is over is given as it is."""
    assert seen.answer.json["status"] == "completed"


def token_count(seen: Seen) -> None:
    assert seen.answer.json == {"object": "response.input_tokens", "input_tokens": COUNT}


def kept_items(seen: Seen) -> None:
    """Items keep their ids; those without get one."""
    assert [item["type"] for item in seen.answer.json["data"]] == [item["type"] for item in seen.body["items"]]
    for sent, kept in zip(seen.body["items"], seen.answer.json["data"], strict=True):
        assert kept["id"]
        assert sent.get("id", kept["id"]) == kept["id"]


def unreadable(param: str) -> Need:
    """What the server cannot read it refuses, by name."""

    def need(seen: Seen) -> None:
        oracle.check_error(seen.answer.json)
        assert seen.answer.error["param"] == param

    return need


NEEDS: dict[str, list[Need]] = {
    "agent-framework/01-previous-id": [text, chained, own_instructions, paired],
    "agent-framework/02-previous-id-next-user": [text, chained, own_instructions],
    "ai-sdk-open-responses/01-tools-replay": [text, paired, thoughts],
    "ai-sdk-open-responses/02-object-output": [fitting_json],
    "ai-sdk-open-responses/03-v6-tools-replay": [text, paired],
    "ai-sdk-openai/01-tools-first": [text],
    "ai-sdk-openai/02-item-reference-reasoning": [text, paired],
    "ai-sdk-openai/03-no-store-replay": [text, paired, echoed("store")],
    "ai-sdk-openai/04-shell-item-reference": [text, paired, hosted("shell")],
    "ai-sdk-openai/05-image-file-named-choice": [unreadable("input[1].content[2]")],
    "ai-sdk-openai/06-v6-no-store-replay": [text, paired],
    "ai-sdk-openai/07-stream-tool-replay": [text, paired],
    "codex-cli/01-first-turn": [text, hosted("web_search")],
    "codex-cli/02-after-two-tools": [text, paired, thoughts],
    "codex-cli/03-resumed-session": [text, paired, thoughts],
    "codex-cli/04-mcp-namespace-first": [calls("function_call", "echo", "mcp__echo", '{"text":"x"}')],
    "codex-cli/05-mcp-namespace-output": [text, paired, namespaces],
    "codex-cli/06-freeform-patch-first": [calls("custom_tool_call", "apply_patch", None, "*** Begin Patch\n")],
    "codex-cli/07-freeform-patch-output": [text, paired, thoughts],
    "codex-cli/08-image-first": [text, image],
    "codex-cli/09-image-from-tool": [text, image, paired],
    "codex-cli/10-compact-by-prompt": [text, paired],
    "codex-cli/11-after-compact-by-prompt": [text],
    "codex-cli/12-lmstudio-probe": [text],
    "codex-cli/13-lmstudio-models": [listed_model],
    "codex-cli/17-parallel-calls-phase": [text, paired, phases, thoughts],
    "haystack/01-agent-replay": [text, paired],
    "instructor/01-forced-tool-and-format": [forced_call],
    "langchain-js/01-loop-replay": [text, paired],
    "langchain-python/01-loop-replay": [text, paired],
    "langchain-python/02-previous-id": [text, chained, paired],
    "langchain-python/03-structured-forced-tool": [forced_call],
    "langchain-python/04-json-object": [fitting_json],
    "langchain-python/05-parallel-replay": [text, paired],
    "litellm/01-responses-previous": [text, chained, paired],
    "litellm/02-bridge-first": [text],
    "litellm/03-bridge-replay": [text, paired, thoughts],
    "llama-index/01-nulls": [text],
    "llama-index/02-agent-replay": [text, paired],
    "llm-openai-plugin/01-empty-user-between": [text, paired],
    "llm/01-tool-replay": [text, paired, thoughts],
    "llm/02-next-turn-no-tools": [text, paired],
    "openai-agents-js/01-history-replay": [text, paired],
    "openai-agents-python/01-tools-first": [text, echoed("metadata", "temperature", "instructions")],
    "openai-agents-python/02-tools-replay": [text, paired, thoughts, image],
    "openai-agents-python/03-tools-replay-next-user": [text, paired, thoughts],
    "openai-agents-python/04-parallel-replay": [text, paired, phases, thoughts],
    "openai-agents-python/05-handoff-second-agent": [text, paired],
    "openai-agents-python/06-previous-id-tool-output": [text, chained, paired, own_instructions],
    "openai-agents-python/07-previous-id-next-user": [text, chained, own_instructions],
    "openai-agents-python/08-hosted-tools-declared": [text, hosted("web_search", "code_interpreter", "mcp")],
    "openai-agents-python/09-local-shell-replay": [text, paired, hosted("local_shell")],
    "openai-agents-python/11-conversation-items-create": [kept_items],
    "openai-agents-python/10-conversation-session-replay": [text, paired, thoughts],
    "openai-node/01-parse-tool-first": [text],
    "openai-node/02-parse-tool-echo": [fitting_json, paired],
    "openai-node/03-stream-helper": [text],
    "openai-node/04-retrieve-stream": [whole_history],
    "openai-python/01-create-string": [text, counted],
    "openai-python/02-tool-first": [text],
    "openai-python/03-tool-replay-all-options": [
        text,
        paired,
        echoed(
            "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "prompt_cache_key",
            "safety_identifier", "store", "temperature", "top_p", "truncation", "reasoning", "tool_choice",
        ),
    ],
    "openai-python/04-parse-pydantic": [fitting_json],
    "openai-python/05-stream-json-schema": [fitting_json],
    "openai-python/06-background-create": [begun],
    "openai-python/07-background-stream": [text],
    "openai-python/08-retrieve-stream-after": [after_four],
    "openai-python/09-cancel": [as_it_ended],
    "openai-python/10-input-items": [listed_items],
    "openai-python/11-input-tokens": [token_count],
    "openai-python/12-odd-input-mix": [image, calls("function_call", "get_weather", None, '{"city": ""}')],
    "openai-python/13-custom-tool-output": [text, paired],
    "openai-python/14-local-shell-output": [text, paired],
    "opencode/01-title-request": [text],
    "opencode/02-first-turn": [text],
    "opencode/03-two-tools": [text, paired, thoughts],
    "pi/01-first-turn": [text],
    "pi/02-two-tools": [text, paired, thoughts],
    "pi/03-image": [text, image],
    "pydantic-ai/01-folded-thinking-replay": [text, paired],
    "pydantic-ai/02-previous-id-auto": [text, chained, paired],
    "pydantic-ai/03-native-output": [fitting_json],
    "pydantic-ai/05-parallel-replay": [text, paired],
    "strands/01-agent-replay": [text, paired],
}  # fmt: skip

REFUSED = frozenset({"ai-sdk-openai/05-image-file-named-choice"})
"""Requests with a file inside that is none."""

SAYS: dict[str, list[Step]] = {
    "codex-cli/04-mcp-namespace-first": [
        Call("k", "mcp__echo__echo"), CallArgs("k", '{"text":"x"}'), CallEnd("k"),
    ],
    "codex-cli/06-freeform-patch-first": [
        Call("k", "apply_patch", kind="function"), CallArgs("k", "*** Begin Patch\n"), CallEnd("k"),
    ],
}  # fmt: skip
"""What the program says where the answer by itself would not show what the client needs."""


_SOCKET = "is a frame of a WebSocket, which has tests of its own"
SOCKETS: dict[str, str] = {
    "codex-cli/14-ws-prewarm": _SOCKET,
    "codex-cli/15-ws-first-delta": _SOCKET,
    "codex-cli/16-ws-tool-delta": _SOCKET,
    "openai-agents-js/02-ws-replay": _SOCKET,
    "openai-agents-python/12-ws-first": _SOCKET,
    "openai-agents-python/13-ws-previous": _SOCKET,
    "openai-python/15-ws-create": _SOCKET,
    "openai-python/16-ws-continue": _SOCKET,
    "pydantic-ai/04-ws-continue": _SOCKET,
}


def test_every_request_is_either_answered_or_named_with_a_reason() -> None:
    assert len(FIXTURES) == 92
    assert not NEEDS.keys() & SOCKETS.keys()
    assert NEEDS.keys() | SOCKETS.keys() == FIXTURES.keys()


@pytest.mark.parametrize("name", NEEDS)
async def test_a_client_is_answered_as_it_needs(name: str) -> None:
    speaker = Speaker(answer)
    names = ("local-model",) if name == "codex-cli/13-lmstudio-models" else ()
    program = UserProgram(serve=speaker.serve, check=lambda turn: Facts(input_tokens=COUNT))
    async with serving(program, model_names=names) as url:
        request = await plant(url, speaker, FIXTURES[name])
        before, speaker.script = len(speaker.turns), SAYS.get(name)
        back = await ask(url, request.request)
        turn = speaker.turns[-1] if len(speaker.turns) > before else None

    seen = Seen(request, back, turn)
    assert back.status == (400 if name in REFUSED else 200), back.body.decode()[:500]
    if back.status == 200:
        check_form(seen)
    if turn is not None and "input" in seen.body:
        assert is_in_order(list(facts(seen.body["input"])), list(facts(seen.items)))
        if seen.items[-1]["type"] in ("function_call_output", "custom_tool_call_output"):
            assert to_messages(turn)[-1]["role"] == "tool"  # what a program looks at to know whose turn it is
    for need in NEEDS[name]:
        need(seen)


async def test_a_background_response_that_still_runs_is_cancelled() -> None:
    speaker, request = Speaker(answer), FIXTURES["openai-python/09-cancel"]
    speaker.script = endless()
    async with serving(speaker.serve) as url:
        started = await post(url, {"input": request.seed[0]["input"], "background": True})
        path = request.path.replace(request.seed[0]["response_id"], started.json["id"])
        cancelled = await ask(url, replace(request, path=path).request)

    assert started.json["status"] in ("queued", "in_progress")
    oracle.check_response(cancelled.json)
    assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")


def endless() -> Iterator[Step]:
    while True:
        yield Text("On. ")
        time.sleep(0.005)


async def test_two_requests_of_one_client_are_served_at_the_same_time() -> None:
    """OpenCode asks for a title beside the main request; neither may wait for the other's end."""
    speaker = Speaker(answer)
    title, main = FIXTURES["opencode/01-title-request"], FIXTURES["opencode/02-first-turn"]
    async with (
        serving(speaker.serve) as url,
        exchange(url, title.request) as first,
        exchange(url, main.request) as second,
    ):
        answers = [await second.finish(), await first.finish()]

    assert [answer.status for answer in answers] == [200, 200]


# ---------------------------------------------------------------- judges


def check_form(seen: Seen) -> None:
    """The answer is legal, whole and completed."""
    back = seen.answer
    if back.is_stream:
        oracle.check_events(back.events)
        if seen.request.streams:
            recognise_frames(back.frames)
    elif "output" in back.json:
        oracle.check_response(back.json)
    if back.is_stream or ("output" in back.json and not back.json["background"]):
        assert seen.response["status"] == "completed"


def facts(value: Any) -> Iterator[tuple[Any, ...]]:
    """What an input says, in the client's form or in ours, without ids and status."""
    for item in [{"role": "user", "content": value}] if isinstance(value, str) else value:
        match item.get("type") or ("message" if "role" in item else ""):
            case "message":
                yield "said", item["role"], words(item["content"])
            case "function_call" | "custom_tool_call" as kind:
                yield (
                    kind,
                    item["call_id"],
                    item["name"],
                    item.get("namespace"),
                    item.get("arguments", item.get("input")),
                )
            case "function_call_output" | "custom_tool_call_output" as kind:
                yield kind, item["call_id"], words(item["output"])
            case "reasoning":
                yield "thought", words(item.get("summary") or []), words(item.get("content") or [])
            case "item_reference" | "":
                pass
            case kind:
                yield kind, item.get("call_id")


def words(content: Any) -> tuple[str, ...]:
    """The texts of a content; what is no text counts by its kind."""
    if isinstance(content, str):
        return (content,)
    return tuple(part if isinstance(part, str) else part.get("text", part.get("type")) for part in content or ())


def is_in_order(sent: list[Any], kept: list[Any]) -> bool:
    """Whether everything sent was kept, in the order in which it was sent."""
    rest = iter(kept)
    missing = [fact for fact in sent if not any(fact == other for other in rest)]
    assert not missing, f"lost or out of order: {missing[:3]}"
    return True
