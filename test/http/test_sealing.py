"""What clients keep for us: sealed reasoning and compactions, round and back, and never for the wrong one."""

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from mellea_responses.turn import Call, CallArgs, CallEnd, Step, Text, Thought, Turn
from mellea_responses.wire.items import Message, Reasoning
from support import oracle
from support.raw import post
from support.sdk import client_of
from support.serving import serving

SECRET = "the plan is blue"
INCLUDE: Any = ["reasoning.encrypted_content"]


def heard(turn: Turn) -> list[str]:
    """Everything the model would see, thoughts marked."""
    lines = []
    for item in turn.items:
        if isinstance(item, Reasoning):
            lines.append("thought:" + "".join(part.text for part in item.content or []))
        elif isinstance(item, Message):
            lines.append(f"{item.role}:" + "".join(part.text for part in item.content))
        else:
            lines.append(type(item).__name__)
    return lines


def serve(turn: Turn) -> list[Step]:
    if turn.tools and not any(line == "FunctionCallOutput" for line in heard(turn)):
        return [Thought(SECRET), Call("k", "tide"), CallArgs("k", '{"at": "Cobh"}'), CallEnd("k")]
    return [Thought(SECRET), Text(json.dumps(heard(turn)))]


async def sealed_turn(client: AsyncOpenAI) -> list[Any]:
    """The output of a first turn, as a client that shows no reasoning keeps it."""
    first = await client.responses.create(model="m", input="hi", store=False, include=INCLUDE)
    items = [item.model_dump(exclude_unset=True) for item in first.output]
    items[0].pop("content", None)
    return items


async def next_turn(client: AsyncOpenAI, items: list[Any]) -> Any:
    question: Any = [{"role": "user", "content": "hi"}, *items, {"role": "user", "content": "on"}]
    answer = await client.responses.create(model="m", input=question, store=False)
    return json.loads(answer.output_text)


@pytest.mark.parametrize("reasoning", ["auto", "hidden"])
async def test_the_model_gets_its_thoughts_back_from_the_seal(reasoning: str) -> None:
    async with serving(serve, reasoning=reasoning) as url:
        items = await sealed_turn(client_of(url))
        assert SECRET not in json.dumps(items)

        without_id = [{key: value for key, value in items[0].items() if key != "id"}, *items[1:]]
        for replay in (items, without_id):
            assert f"thought:{SECRET}" in await next_turn(client_of(url), replay)


async def test_a_seal_is_only_there_when_asked_for() -> None:
    async with serving(serve) as url:
        answer = await post(url, {"input": "hi"})

    assert "encrypted_content" not in answer.body.decode()


async def test_a_stream_of_sealed_reasoning_is_replayed_to_the_byte() -> None:
    async with serving(serve, reasoning="hidden") as url:
        client = client_of(url)
        stream = await client.responses.create(model="m", input="hi", include=INCLUDE, stream=True)
        seen = [event.model_dump() async for event in stream]
        again = await client.responses.retrieve(seen[0]["response"]["id"], stream=True)

        assert [event.model_dump() async for event in again] == seen
        assert SECRET not in json.dumps(seen)


def forged(seal: str) -> list[str]:
    flipped = seal[:40] + ("A" if seal[40] != "A" else "B") + seal[41:]
    return [flipped, seal[: len(seal) // 2], seal[:-4], "", "QkxPQg==", "not base64 at all", "ü" * 50, "A" * 100_000]


async def test_forged_and_cut_seals_are_left_out_and_the_turn_runs() -> None:
    async with serving(serve) as url:
        items = await sealed_turn(client_of(url))
        for seal in forged(items[0]["encrypted_content"]):
            lines = await next_turn(client_of(url), [{**items[0], "encrypted_content": seal}, *items[1:]])
            assert not any(SECRET in line for line in lines[:-2])


async def test_strict_replay_refuses_them_with_their_place() -> None:
    async with serving(serve, strict_replay=True) as url:
        items = await sealed_turn(client_of(url))
        with pytest.raises(openai.BadRequestError) as refused:
            await next_turn(client_of(url), [{**items[0], "encrypted_content": "QkxPQg=="}, *items[1:]])

    assert refused.value.param == "input[1].encrypted_content"
    assert refused.value.code == "invalid_encrypted_content"


async def test_another_owner_cannot_open_a_seal() -> None:
    async with serving(serve, api_keys=("a", "b")) as url:
        items = await sealed_turn(client_of(url, "a"))

        assert f"thought:{SECRET}" in await next_turn(client_of(url, "a"), items)
        assert f"thought:{SECRET}" not in await next_turn(client_of(url, "b"), items)


async def test_a_key_in_a_file_outlives_the_process_and_another_key_opens_nothing(tmp_path: Path) -> None:
    keys = [tmp_path / "one", tmp_path / "two"]
    keys[0].write_text("ab" * 32)
    keys[1].write_bytes(bytes(range(32)))
    async with serving(serve, seal_key=str(keys[0]), api_keys=("ann=k",)) as url:
        items = await sealed_turn(client_of(url, "k"))
    async with serving(serve, seal_key=str(keys[0]), api_keys=("ann=k",)) as url:
        assert f"thought:{SECRET}" in await next_turn(client_of(url, "k"), items)
    async with serving(serve, seal_key=str(keys[1]), api_keys=("ann=k",)) as url:
        assert f"thought:{SECRET}" not in await next_turn(client_of(url, "k"), items)


@pytest.mark.parametrize(("arguments", "comes_back"), [('{"at": "Cobh"}', True), ('{"at": "Ross"}', False)])
async def test_hidden_reasoning_of_a_live_call_comes_back_unless_the_call_was_edited(
    arguments: str, comes_back: bool
) -> None:
    tools: Any = [{"type": "function", "name": "tide"}]
    async with serving(serve, reasoning="hidden") as url:
        client = client_of(url)
        first = await client.responses.create(model="m", input="hi", store=False, tools=tools)
        call: Any = first.output[0].model_dump(exclude_unset=True)
        replay: Any = [
            {"role": "user", "content": "hi"},
            {**call, "arguments": arguments},
            {"type": "function_call_output", "call_id": call["call_id"], "output": "2"},
        ]
        second = await client.responses.create(model="m", input=replay, store=False, tools=tools)

    assert [item.type for item in first.output] == ["function_call"]
    assert (f"thought:{SECRET}" in json.loads(second.output_text)) is comes_back


async def test_a_bare_output_continues_the_live_turn_of_its_owner_only() -> None:
    tools: Any = [{"type": "function", "name": "tide"}]
    async with serving(serve, api_keys=("a", "b")) as url:
        first = await client_of(url, "a").responses.create(model="m", input="hi", store=False, tools=tools)
        output: Any = [{"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "2"}]
        second = await client_of(url, "a").responses.create(model="m", input=output, store=False, tools=tools)
        with pytest.raises(openai.BadRequestError) as refused:
            await client_of(url, "b").responses.create(model="m", input=output, store=False, tools=tools)

    assert json.loads(second.output_text) == [
        "user:hi", f"thought:{SECRET}", "FunctionCall", "FunctionCallOutput",
    ]  # fmt: skip
    assert refused.value.code == "tool_call_not_found"


# Compaction.


async def test_a_compacted_conversation_goes_on_from_its_one_item() -> None:
    async with serving(lambda turn: json.dumps(heard(turn))) as url:
        client = client_of(url)
        talk: Any = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        folded = await client.responses.compact(model="m", input=talk)
        item: Any = folded.output[0].model_dump(exclude_unset=True)
        question: Any = [{"role": "user", "content": "before"}, item, {"role": "user", "content": "on"}]
        answer = await client.responses.create(model="m", input=question)
        later = await client.responses.create(model="m", input="more", previous_response_id=answer.id)

    assert [one.type for one in folded.output] == ["compaction"]
    assert json.loads(answer.output_text) == ["user:a", "assistant:b", "user:on"]
    assert json.loads(later.output_text)[:3] == ["user:a", "assistant:b", "user:on"]


async def test_a_chain_is_compacted_by_its_id_alone() -> None:
    async with serving(lambda turn: json.dumps(heard(turn))) as url:
        client = client_of(url)
        first = await client.responses.create(model="m", input="a")
        folded = await client.responses.compact(model="m", previous_response_id=first.id)
        item: Any = folded.output[0].model_dump(exclude_unset=True)
        answer = await client.responses.create(model="m", input=[item, {"role": "user", "content": "on"}])

    assert json.loads(answer.output_text) == ["user:a", f"assistant:{first.output_text}", "user:on"]


async def test_a_trigger_gives_exactly_one_item_that_stands_for_the_chain() -> None:
    async with serving(lambda turn: json.dumps(heard(turn))) as url:
        client = client_of(url)
        first = await client.responses.create(model="m", input="a")
        trigger: Any = [{"type": "compaction_trigger"}]
        folded = await client.responses.create(model="m", input=trigger, previous_response_id=first.id)
        answer = await client.responses.create(model="m", input="on", previous_response_id=folded.id)
        oracle.check_response(json.loads((await client.responses.with_raw_response.retrieve(folded.id)).text))

    assert [item.type for item in folded.output] == ["compaction"]
    assert json.loads(answer.output_text) == ["user:a", f"assistant:{first.output_text}", "user:on"]


async def test_a_program_that_can_summarise_is_asked_and_the_last_questions_are_kept_beside_it() -> None:
    def summary(turn: Turn) -> str:
        return f"{len(turn.items)} items about boats"

    from mellea_responses.program.user import UserProgram

    program = UserProgram(lambda turn: json.dumps(heard(turn)), compact=summary)
    async with serving(program) as url:
        client = client_of(url)
        talk: Any = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b" * 3000}]
        folded = await client.responses.compact(model="m", input=talk)
        answer = await client.responses.create(
            model="m", input=[folded.output[0].model_dump(exclude_unset=True), {"role": "user", "content": "on"}]
        )

    lines = json.loads(answer.output_text)
    assert lines[0] == "user:a"
    assert "2 items about boats" in lines[1]
    assert lines[2] == "user:on"


async def test_a_compaction_of_somebody_else_is_refused() -> None:
    async with serving(serve, api_keys=("a", "b")) as url:
        folded = await client_of(url, "a").responses.compact(model="m", input="x")
        items: Any = [folded.output[0].model_dump(exclude_unset=True), {"role": "user", "content": "on"}]
        with pytest.raises(openai.BadRequestError) as refused:
            await client_of(url, "b").responses.create(model="m", input=items)

    assert refused.value.code == "invalid_encrypted_content"


async def test_counting_says_when_a_program_cannot() -> None:
    async with serving(serve) as url:
        with pytest.raises(openai.BadRequestError) as refused:
            await client_of(url).responses.input_tokens.count(model="m", input="x")

    assert refused.value.code == "cannot_count_tokens"
