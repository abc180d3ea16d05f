"""What the next turn's program received is what this turn's client received.

The client's side is read with the official SDK or from the stream; the program's side is what `serve()` was given.
"""

import itertools
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI

from support.raw import post
from support.recogniser import rebuild, recognise
from support.serving import serving
from support.stand_in import Json, StandIn, calls_of, text_of

TOOLS: Any = [
    {"type": "function", "name": "tide", "parameters": {"type": "object"}},
    {"type": "function", "name": "wind", "parameters": {"type": "object"}},
]
SCRIPTS: dict[str, list[Any]] = {
    "words": [["say", "north "], ["say", "wind"]],
    "words of all kinds": [["say", '🌊 \u2028\n\r\n"\\ '], ["say", "</think> data: [DONE]\n\n"]],
    "a thought": [["think", "hm "], ["think", "well"], ["say", "Blue."]],
    "only a thought": [["think", "hm"]],
    "one call": [["call", "tide", '{"at": "Cobh"}']],
    "words and a call": [["say", "Looking. "], ["call", "tide", '{"at":"Cobh","n":1.50}']],
    "a thought, words and two calls": [
        ["think", "both"],
        ["say", "Looking. "],
        ["call", "tide", '{"at":"Cobh"}'],
        ["call", "wind", '{"at":"Bray"}'],
    ],
    "words after a call": [["call", "tide", "{}"], ["say", "Meanwhile."]],
    "a call in pieces": [["call_open", "tide"], ["call_args", '{"at":'], ["call_args", '"Cobh"}']],
    "nothing": [],
}
MODES = ["plain", "streamed"]


def sides(*scripts: list[Any]) -> StandIn:
    """A program with one script per turn; after the last it only listens."""
    return StandIn({"script_by_turn": [*({"script": script} for script in scripts), {"say": "heard"}]})


def outputs(calls: list[Json]) -> list[Json]:
    return [
        {"type": "function_call_output", "call_id": call["call_id"], "output": f"result {number}"}
        for number, call in enumerate(calls)
    ]


def client_side(output: list[Json]) -> tuple[str, list[tuple[str, Any, str]]]:
    """All words and all calls of an answer as a client reads them."""
    parts = [part for item in output if item["type"] == "message" for part in item["content"]]
    calls = [item for item in output if item["type"] == "function_call"]
    return (
        "".join(part["text"] for part in parts),
        [(call["name"], json.loads(call["arguments"]), call["call_id"]) for call in calls],
    )


def program_side(messages: list[Json]) -> tuple[str, list[tuple[str, Any, str]]]:
    """All words and all calls of the assistant as the program was given them."""
    spoken = [message for message in messages if message["role"] == "assistant"]
    return "".join(map(text_of, spoken)), [call for message in spoken for call in calls_of(message)]


def thoughts_of(messages: list[Json]) -> str:
    return "".join(message.get("reasoning") or "" for message in messages)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_chained_turn_tells_the_program_what_the_client_was_told(name: str, mode: str) -> None:
    program = sides(SCRIPTS[name])
    async with serving(program.serve) as url:
        ask = {"model": "m", "input": "Tide?", "tools": TOOLS}
        first = await post(url, {**ask, "stream": mode == "streamed"})
        output = rebuild(first.events)["output"] if mode == "streamed" else first.json["output"]
        calls = [item for item in output if item["type"] == "function_call"]
        more = {**ask, "input": [*outputs(calls), {"role": "user", "content": "And?"}]}
        await post(url, {**more, "previous_response_id": first.response["id"]})

    heard = program.received[1].messages
    assert program_side(heard) == client_side(output)
    assert [(m["tool_call_id"], text_of(m)) for m in heard if m["role"] == "tool"] == [
        (call["call_id"], f"result {number}") for number, call in enumerate(calls)
    ]
    assert (text_of(heard[0]), text_of(heard[-1])) == ("Tide?", "And?")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_full_replay_tells_the_program_the_same_as_a_chain(name: str, mode: str) -> None:
    program = sides(SCRIPTS[name], SCRIPTS[name], [["say", "chained"]])
    async with serving(program.serve) as url:
        ask = {"model": "m", "input": [{"role": "user", "content": "Tide?"}], "tools": TOOLS}
        first = (await post(url, {**ask, "stream": mode == "streamed"})).response
        calls = [item for item in first["output"] if item["type"] == "function_call"]
        new = [*outputs(calls), {"role": "user", "content": "And?"}]
        await post(url, {**ask, "input": [*ask["input"], *first["output"], *new], "store": False})
        await post(url, {**ask, "input": new, "previous_response_id": first["id"]})

    replayed, chained = program.received[1].messages, program.received[2].messages
    assert replayed == chained


@pytest.mark.parametrize("bare", ["id", "status"])
@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_replay_without_ids_or_statuses_tells_the_same(name: str, bare: str) -> None:
    program = sides(SCRIPTS[name], SCRIPTS[name])
    async with serving(program.serve) as url:
        ask = {"model": "m", "input": [{"role": "user", "content": "Tide?"}], "tools": TOOLS}
        first = (await post(url, ask)).json
        calls = [item for item in first["output"] if item["type"] == "function_call"]
        less = [{key: value for key, value in item.items() if key != bare} for item in first["output"]]
        new = [*outputs(calls), {"role": "user", "content": "And?"}]
        await post(url, {**ask, "input": [*ask["input"], *less, *new]})
        await post(url, {**ask, "input": new, "previous_response_id": first["id"]})

    assert program.received[1].messages == program.received[2].messages


async def test_thoughts_come_back_in_a_chain_and_in_a_replay() -> None:
    program = sides(SCRIPTS["a thought"], [])
    async with serving(program.serve) as url:
        ask = {"model": "m", "input": [{"role": "user", "content": "Colour?"}]}
        first = (await post(url, ask)).json
        more = [{"role": "user", "content": "Sure?"}]
        await post(url, {**ask, "input": more, "previous_response_id": first["id"]})
        await post(url, {**ask, "input": [*ask["input"], *first["output"], *more]})

    assert [thoughts_of(received.messages) for received in program.received] == ["", "hm well", "hm well"]


async def test_hidden_thoughts_are_shown_to_nobody_but_the_next_turn() -> None:
    program = sides(SCRIPTS["a thought"], [])
    async with serving(program.serve, reasoning="hidden") as url:
        first = await post(url, {"model": "m", "input": "Colour?", "stream": True})
        await post(url, {"model": "m", "input": "Sure?", "previous_response_id": first.response["id"]})

    assert b"hm" not in first.body
    assert recognise(first.events)["output"][0]["type"] == "message"
    assert thoughts_of(program.received[1].messages) == "hm well"


async def test_thoughts_asked_for_as_a_summary_come_once_and_come_back() -> None:
    program = sides(SCRIPTS["a thought"], [])
    async with serving(program.serve) as url:
        ask: Json = {"model": "m", "input": "Colour?", "reasoning": {"summary": "auto"}}
        first = await post(url, {**ask, "stream": True})
        await post(url, {"model": "m", "input": "Sure?", "previous_response_id": first.response["id"]})

    reasoning = recognise(first.events)["output"][0]
    assert [part["text"] for part in reasoning["summary"]] == ["hm well"]
    assert not reasoning.get("content")
    assert thoughts_of(program.received[1].messages) == "hm well"


async def test_a_long_talk_through_the_sdk_is_what_the_program_was_told() -> None:
    names = [*SCRIPTS, *SCRIPTS]
    program = sides(*(SCRIPTS[name] for name in names))
    async with serving(program.serve) as url, AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        told: list[tuple[str, Any]] = []
        previous, new = None, [{"role": "user", "content": "line 0"}]
        for number in range(len(names) + 1):
            more: Any = {} if previous is None else {"previous_response_id": previous}
            async with client.responses.stream(model="m", input=new, tools=TOOLS, **more) as stream:  # type: ignore[arg-type]  # plain dicts
                final = (await stream.get_final_response()).to_dict(mode="json")
            told.append(client_side(final["output"]))  # type: ignore[arg-type]  # a dict
            calls = [item for item in final["output"] if item["type"] == "function_call"]
            previous, new = final["id"], [*outputs(calls), {"role": "user", "content": f"line {number + 1}"}]

    words, calls_told = zip(*told[:-1], strict=True)
    heard = program.received[-1].messages
    assert program_side(heard) == ("".join(words), list(itertools.chain.from_iterable(calls_told)))
    assert [text_of(m) for m in heard if m["role"] == "user"] == [f"line {n}" for n in range(len(names) + 1)]


_words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_moves = st.one_of(
    st.tuples(st.just("say"), _words),
    st.tuples(st.just("think"), _words),
    st.tuples(st.just("call"), st.sampled_from(["tide", "wind"]), st.dictionaries(_words, _words).map(json.dumps)),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_moves.map(list), max_size=6))
async def test_whatever_a_program_says_its_next_turn_hears_what_the_client_heard(script: list[Any]) -> None:
    program = sides(script)
    async with serving(program.serve) as url:
        ask = {"model": "m", "input": "Tide?", "tools": TOOLS}
        first = await post(url, {**ask, "stream": True})
        heard_by_client = rebuild(first.events)
        assert heard_by_client == recognise(first.events)
        await post(url, {**ask, "previous_response_id": first.response["id"]})

    assert program_side(program.received[1].messages) == client_side(heard_by_client["output"])
