"""A request with everything it stands on, from a real store."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mellea_responses.errors import InvalidRequest, PreviousResponseNotFound
from mellea_responses.program.user import UserProgram
from mellea_responses.service import Service
from mellea_responses.settings import Settings
from mellea_responses.turn import Call, CallArgs, CallEnd, Step, Stop, Text, Thought, Turn
from mellea_responses.wire import items as w
from mellea_responses.wire.decode import decode_create

Json = dict[str, Any]
TOOL = {"type": "function", "name": "f"}
ASK: list[Step] = [Thought("hm"), Call("k", "f", call_id="call_1"), CallArgs("k", '{"a": 1}'), CallEnd("k")]


class Talk:
    """A service over a program that says what it is told to, and the turns that reached it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.turns: list[Turn] = []
        self.says: Sequence[Step] = [Text("ok")]

    async def ask(self, owner: str = "ada", **body: Any) -> str:
        """Asks and gives the response's id."""
        run = await self.service.create(decode_create(json.dumps({"input": "hi", **body}).encode()), owner)
        await run.log.wait_closed()
        return run.id

    @property
    def heard(self) -> list[tuple[str, str]]:
        """Type and words of every item that the last turn stands on."""
        return [(w.item_type(item), words(item)) for item in self.turns[-1].items]


def words(item: w.Item) -> str:
    match item:
        case w.Message(content=content) | w.Reasoning(content=list(content)):
            return "".join(getattr(part, "text", "") for part in content)
        case w.FunctionCall(call_id=call_id, arguments=arguments):
            return f"{call_id} {arguments}"
        case w.FunctionCallOutput(call_id=call_id, output=output):
            return f"{call_id} {output}"
        case _:
            return ""


@asynccontextmanager
async def talking(**settings: Any) -> AsyncIterator[Talk]:
    async def serve(turn: Turn) -> AsyncIterator[Step]:
        talk.turns.append(turn)
        for step in talk.says:
            yield step

    chosen = Settings(**settings)
    service = Service(UserProgram(serve, settings=chosen), chosen)
    talk = Talk(service)
    await service.open()
    try:
        yield talk
    finally:
        await service.close()


async def test_a_turn_stands_on_the_whole_chain_with_its_thoughts() -> None:
    async with talking(reasoning="hidden") as talk:
        talk.says = [Thought("hm"), Text("hello")]
        first = await talk.ask(input="hi")
        second = await talk.ask(input="more", previous_response_id=first)
        await talk.ask(input="last", previous_response_id=second)

        assert talk.heard == [
            ("message", "hi"), ("reasoning", "hm"), ("message", "hello"),
            ("message", "more"), ("reasoning", "hm"), ("message", "hello"), ("message", "last"),
        ]  # fmt: skip


async def test_the_next_turn_stands_on_what_the_client_received() -> None:
    async with talking() as talk:
        talk.says = [Thought("a"), Text("b", phase="commentary"), *ASK[1:], Text("c")]
        first = await talk.ask(tools=[TOOL])
        answer = json.loads(await talk.service.stored.retrieve("ada", first))["output"]
        await talk.ask(input=[], previous_response_id=first)

        assert json.loads(json.dumps([to_json(item) for item in talk.turns[-1].items[1:]])) == answer


def to_json(item: w.Item) -> Any:
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(item))


async def test_instructions_and_tools_are_never_carried_over() -> None:
    async with talking() as talk:
        first = await talk.ask(instructions="Be brief.", tools=[TOOL])
        await talk.ask(previous_response_id=first)

        assert (talk.turns[-1].instructions, talk.turns[-1].tools) == (None, ())


async def test_tools_that_an_earlier_item_found_or_declared_stay_declared() -> None:
    more = {"type": "additional_tools", "tools": [{"type": "function", "name": "g"}]}
    async with talking() as talk:
        first = await talk.ask(input=[more, {"role": "user", "content": "x"}])
        await talk.ask(previous_response_id=first)

        assert [tool.name for tool in talk.turns[-1].tools] == ["g"]  # type: ignore[union-attr]  # a function


async def test_a_choice_may_name_a_tool_that_an_earlier_item_declared() -> None:
    more = {"type": "additional_tools", "tools": [{"type": "function", "name": "g"}]}
    async with talking() as talk:
        first = await talk.ask(input=[more, {"role": "user", "content": "x"}])
        talk.says = [Call("k", "g"), CallEnd("k")]
        second = await talk.ask(previous_response_id=first, tool_choice={"type": "function", "name": "g"})

        assert json.loads(await talk.service.stored.retrieve("ada", second))["output"][0]["name"] == "g"


@pytest.mark.parametrize("gone", ["unknown", "expired", "deleted", "other owner", "not stored"])
async def test_a_previous_response_that_is_gone_looks_the_same_whatever_the_reason(gone: str) -> None:
    async with talking() as talk:
        owner = "eve" if gone == "other owner" else "ada"
        first = await talk.ask(owner, store=gone != "not stored")
        if gone == "deleted":
            await talk.service.stored.delete("ada", first)
        if gone == "expired":
            talk.service.store._clock = lambda: float("inf")  # type: ignore[attr-defined]  # the memory store's
        wanted = "resp_0" if gone == "unknown" else first

        with pytest.raises(PreviousResponseNotFound) as caught:
            await talk.ask(previous_response_id=wanted)

        error = caught.value
        assert (error.status, error.code, error.param) == (400, "previous_response_not_found", "previous_response_id")
        assert error.message == PreviousResponseNotFound(wanted).message


@pytest.mark.parametrize(("says", "continues"), [(Stop("length"), True), (Stop("content_filter"), True), (None, False)])
async def test_only_what_ended_by_itself_or_by_a_limit_can_be_continued(says: Step | None, continues: bool) -> None:
    async with talking() as talk:
        talk.says = [Text("half"), says] if says else [Text("half"), CallEnd("unknown")]
        first = await talk.ask()
        talk.says = [Text("ok")]

        if continues:
            await talk.ask(previous_response_id=first)
            assert talk.heard == [("message", "hi"), ("message", "half"), ("message", "hi")]
        else:
            with pytest.raises(InvalidRequest) as caught:
                await talk.ask(previous_response_id=first)
            assert (caught.value.param, "failed" in caught.value.message) == ("previous_response_id", True)


async def test_two_turns_may_continue_one_response() -> None:
    async with talking() as talk:
        first = await talk.ask(input="root")
        for word in ("left", "right"):
            await talk.ask(input=word, previous_response_id=first)
            assert talk.heard == [("message", "root"), ("message", "ok"), ("message", word)]


async def test_a_child_keeps_working_when_its_parent_is_deleted() -> None:
    async with talking() as talk:
        first = await talk.ask(input="1")
        second = await talk.ask(input="2", previous_response_id=first)
        await talk.service.stored.delete("ada", first)
        await talk.ask(input="3", previous_response_id=second)

        assert [text for _, text in talk.heard] == ["1", "ok", "2", "ok", "3"]


async def test_a_parent_that_goes_while_its_child_is_made_leaves_a_whole_child() -> None:
    async with talking() as talk:
        first = await talk.ask(input="1")
        run = await talk.service.create(
            decode_create(json.dumps({"input": "2", "previous_response_id": first}).encode()), "ada"
        )
        assert await talk.service.store.delete("ada", first)
        await run.log.wait_closed()
        await talk.ask(input="3", previous_response_id=run.id)
        asked = await talk.service.stored.input_items("ada", run.id, after=None, before=None, limit=20, order="asc")

        assert [text for _, text in talk.heard] == ["1", "ok", "2", "ok", "3"]
        assert [words(item) for item in asked.data] == ["2"]


async def test_without_storing_the_prior_context_is_still_loaded_and_nothing_is_kept() -> None:
    async with talking() as talk:
        first = await talk.ask(input="1")
        second = await talk.ask(input="2", previous_response_id=first, store=False)

        assert [text for _, text in talk.heard] == ["1", "ok", "2"]
        with pytest.raises(PreviousResponseNotFound):
            await talk.ask(previous_response_id=second)


async def test_bare_outputs_of_a_live_call_continue_its_turn_though_nothing_is_stored() -> None:
    async with talking() as talk:
        talk.says = ASK
        await talk.ask(input="weather?", tools=[TOOL], store=False)
        talk.says = [Text("sunny")]
        second = await talk.ask(input=[{"type": "function_call_output", "call_id": "call_1", "output": "sun"}])
        await talk.ask(input="thanks", previous_response_id=second)

        assert talk.heard == [
            ("message", "weather?"), ("reasoning", "hm"), ("function_call", 'call_1 {"a": 1}'),
            ("function_call_output", "call_1 sun"), ("message", "sunny"), ("message", "thanks"),
        ]  # fmt: skip


async def test_hidden_thoughts_come_back_to_a_client_that_replays_everything() -> None:
    replay = [
        {"role": "user", "content": "weather?"},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "sun"},
    ]
    async with talking(reasoning="hidden") as talk:
        talk.says = ASK
        await talk.ask(input="weather?", tools=[TOOL], store=False)
        await talk.ask(input=replay, tools=[TOOL], store=False)

        assert talk.heard[1] == ("reasoning", "hm")
        assert len(talk.heard) == 4


async def test_a_reference_reaches_any_stored_item_of_the_owner_and_no_other_s() -> None:
    async with talking() as talk:
        first = await talk.ask(input="1")
        own_id = json.loads(await talk.service.stored.retrieve("ada", first))["output"][0]["id"]
        await talk.ask(input=[{"type": "item_reference", "id": own_id}, {"role": "user", "content": "2"}])
        assert talk.heard == [("message", "ok"), ("message", "2")]

        with pytest.raises(InvalidRequest, match=own_id):
            await talk.ask("eve", input=[{"type": "item_reference", "id": own_id}])


async def test_an_output_to_a_call_of_another_owner_is_refused() -> None:
    async with talking() as talk:
        talk.says = ASK
        await talk.ask(tools=[TOOL])
        with pytest.raises(InvalidRequest, match="call_1"):
            await talk.ask("eve", input=[{"type": "function_call_output", "call_id": "call_1", "output": "x"}])
