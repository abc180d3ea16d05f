"""What items point at: references, outputs to calls, replays to the chain; matched by id, never by place."""

from typing import Any

import pytest

from mellea_responses.errors import InvalidRequest
from mellea_responses.links import Links
from mellea_responses.live import LiveCalls
from mellea_responses.normalize.items import Reference, Trigger
from mellea_responses.wire import items as w
from mellea_responses.wire.items import Item


def said(own_id: str, text: str, role: Any = "user") -> w.Message:
    part = w.OutputText(text) if role == "assistant" else w.InputText(text)
    return w.Message(own_id, "completed", role, [part])


def call(call_id: str, own_id: str = "", name: str = "f", arguments: str = "{}") -> w.FunctionCall:
    return w.FunctionCall(own_id or f"fc_{call_id}", call_id, name, arguments, "completed")


def output(call_id: str, text: str = "42", own_id: str = "") -> w.FunctionCallOutput:
    return w.FunctionCallOutput(own_id or f"fco_{call_id}_{text}", call_id, text)


def thought(own_id: str, text: str = "hm") -> w.Reasoning:
    return w.Reasoning(own_id, content=[w.ReasoningText(text)], status="completed")


class World:
    """What the owner has stored, and the live calls of this process."""

    def __init__(self, *stored: Item) -> None:
        self.stored = stored
        self.now = 0.0
        self.live = LiveCalls(60, clock=lambda: self.now)

    async def find_item(self, item_id: str) -> Item | None:
        return next((item for item in self.stored if w.item_id(item) == item_id), None)

    async def find_call(self, call_id: str) -> Item | None:
        return next((item for item in self.stored if w.is_call(item) and w.item_call_id(item) == call_id), None)

    async def resolve(
        self, history: tuple[Item, ...], *loose: Any, owner: str = "ada"
    ) -> tuple[list[Item], list[Item]]:
        links = Links(self.find_item, self.find_call, lambda call_id: self.live.get(owner, call_id))
        before, new = await links.resolve(history, loose)
        return list(before), list(new)

    async def refuse(self, history: tuple[Item, ...], *loose: Any, owner: str = "ada") -> InvalidRequest:
        with pytest.raises(InvalidRequest) as caught:
            await self.resolve(history, *loose, owner=owner)
        return caught.value


# ---------------------------------------------------------------- references


async def test_a_reference_becomes_the_stored_item_in_its_place() -> None:
    world = World(said("msg_1", "old"), thought("rs_1"))

    _, new = await world.resolve((), Reference("msg_1"), said("q", "new"), Reference("rs_1"))

    assert new == [said("msg_1", "old"), said("q", "new"), thought("rs_1")]


async def test_a_reference_to_the_chain_adds_nothing() -> None:
    history = (said("msg_1", "old"),)

    _, new = await World().resolve(history, Reference("msg_1"), said("q", "new"))

    assert new == [said("q", "new")]


async def test_a_reference_said_twice_is_one_item() -> None:
    _, new = await World(said("msg_1", "old")).resolve((), Reference("msg_1"), Reference("msg_1"))

    assert new == [said("msg_1", "old")]


async def test_a_reference_to_an_item_of_this_very_input_adds_nothing() -> None:
    for world in (World(said("msg_1", "old")), World()):
        _, new = await world.resolve((), said("msg_1", "old"), Reference("msg_1"))

        assert new == [said("msg_1", "old")]


async def test_a_reference_to_nothing_is_refused_with_its_id_and_place() -> None:
    error = await World().refuse((), said("q", "x"), Reference("msg_nowhere"))

    assert "msg_nowhere" in error.message
    assert error.param == "input[1].id"


async def test_a_compaction_trigger_is_told_where_it_stands() -> None:
    assert (await World().refuse((), said("q", "x"), Trigger())).param == "input[1].type"


# ---------------------------------------------------------------- said again


async def test_an_item_whose_id_is_in_the_chain_is_dropped() -> None:
    history = (said("a", "1"), said("b", "2", "assistant"))

    _, new = await World().resolve(history, said("b", "2", "assistant"), said("c", "3"))

    assert new == [said("c", "3")]


async def test_equal_words_under_another_id_are_said_again() -> None:
    history = (said("a", "again"), said("b", "ok", "assistant"))

    _, new = await World().resolve(history, said("c", "again"))

    assert new == [said("c", "again")]


async def test_a_call_and_its_output_that_the_chain_has_are_dropped_by_call_id() -> None:
    history = (said("a", "1"), call("c1"), output("c1"))

    _, new = await World().resolve(history, call("c1", "fc_other"), output("c1", own_id="fco_other"), said("q", "next"))

    assert new == [said("q", "next")]


async def test_a_whole_chain_sent_again_is_dropped_whatever_its_ids() -> None:
    history = (said("a", "1"), thought("rs"), said("b", "2", "assistant"), call("c1"), output("c1"))
    again = (said("x1", "1"), said("x2", "2", "assistant"), call("c1", "x3"), output("c1", own_id="x4"))

    _, new = await World().resolve(history, *again, said("q", "next"))

    assert new == [said("q", "next")]


async def test_a_chain_sent_again_by_a_client_that_writes_arguments_anew_is_dropped() -> None:
    history = (said("a", "1"), thought("rs"), call("c1", arguments='{"a":1,"b":[]}'))
    again = (said("x", "1"), call("c1", "y", arguments='{"b": [], "a": 1}'))

    _, new = await World().resolve(history, *again, output("c1"))

    assert new == [output("c1")]


async def test_a_chain_sent_again_with_its_thoughts_is_dropped_with_them() -> None:
    history = (said("a", "1"), thought("rs"), said("b", "2", "assistant"))

    _, new = await World().resolve(
        history, said("x", "1"), thought("y"), said("z", "2", "assistant"), said("q", "next")
    )

    assert new == [said("q", "next")]


async def test_the_beginning_of_a_chain_alone_is_no_replay() -> None:
    history = (said("a", "hi"), said("b", "hello", "assistant"))

    _, new = await World().resolve(history, said("x", "hi"))

    assert new == [said("x", "hi")]


async def test_the_same_item_twice_in_one_input_is_one() -> None:
    _, new = await World().resolve(
        (), said("a", "1"), said("a", "1"), call("c1"), call("c1"), output("c1"), output("c1")
    )

    assert new == [said("a", "1"), call("c1"), output("c1")]


async def test_two_items_under_one_id_that_say_different_things_are_both_heard() -> None:
    _, new = await World().resolve((), said("a", "1"), said("a", "2"))

    assert new == [said("a", "1"), said("a", "2")]


# ---------------------------------------------------------------- outputs and calls


async def test_outputs_are_matched_by_call_id_wherever_they_stand() -> None:
    items = (output("c2"), said("q", "x"), call("c1"), call("c2"), output("c1"))

    _, new = await World().resolve((), *items)

    assert new == list(items)


async def test_an_output_answers_a_call_of_the_chain() -> None:
    _, new = await World().resolve((call("c1"),), output("c1"))

    assert new == [output("c1")]


async def test_an_output_to_no_call_is_refused_and_named() -> None:
    error = await World().refuse((call("c1"),), output("c1"), output("c_orphan"))

    assert "c_orphan" in error.message
    assert (error.status, error.code) == (400, "tool_call_not_found")


@pytest.mark.parametrize("history", [(), (call("c1"), output("c1"))])
async def test_a_second_different_output_of_one_call_is_refused(history: tuple[Item, ...]) -> None:
    error = await World().refuse(history, call("c1"), output("c1"), output("c1", "43"))

    assert "c1" in error.message
    assert error.code == "duplicate_tool_output"


async def test_a_call_without_an_output_is_accepted() -> None:
    _, new = await World().resolve((), call("c1"), said("q", "never mind"))

    assert new == [call("c1"), said("q", "never mind")]


async def test_a_bare_output_to_a_stored_call_gets_the_call_before_it() -> None:
    _, new = await World(call("c1")).resolve((), said("q", "x"), output("c1"))

    assert new == [said("q", "x"), call("c1"), output("c1")]


# ---------------------------------------------------------------- live calls

TURN = (said("q", "weather?"),)
ANSWER = (thought("rs_1"), call("c1"), call("c2"))


def world_with_live_calls(*stored: Item) -> World:
    world = World(*stored)
    world.live.add("ada", TURN, ANSWER)
    return world


async def test_bare_outputs_continue_the_live_turn() -> None:
    history, new = await world_with_live_calls().resolve((), output("c1"), output("c2"))

    assert history == [*TURN, *ANSWER]
    assert new == [output("c1"), output("c2")]


async def test_a_live_call_sent_back_unchanged_gets_its_thoughts_back_once() -> None:
    _, new = await world_with_live_calls().resolve(
        (), said("q", "weather?"), call("c1", "x"), call("c2", "y"), output("c1")
    )

    assert new == [said("q", "weather?"), thought("rs_1"), call("c1", "x"), call("c2", "y"), output("c1")]


async def test_thoughts_that_the_client_sent_itself_are_not_put_back_twice() -> None:
    mine = thought("rs_mine", "hm")
    for first in (thought("rs_1"), mine):
        _, new = await world_with_live_calls().resolve((), said("q", "weather?"), first, call("c1", "x"), output("c1"))

        assert new == [said("q", "weather?"), first, call("c1", "x"), output("c1")]


@pytest.mark.parametrize("edited", [call("c1", name="g"), call("c1", arguments='{"x": 1}')])
async def test_an_edited_call_does_not_get_the_thoughts_back(edited: Item) -> None:
    _, new = await world_with_live_calls().resolve((), said("q", "weather?"), edited, output("c1"))

    assert new == [said("q", "weather?"), edited, output("c1")]


async def test_an_edited_custom_call_does_not_get_the_thoughts_back() -> None:
    world, ours = World(), w.CustomToolCall("ctc_1", "c1", "free", "text", "completed")
    world.live.add("ada", TURN, (thought("rs_1"), ours))

    _, same = await world.resolve((), said("q", "x"), ours)
    edited = w.CustomToolCall("ctc_1", "c1", "free", "other", "completed")
    _, changed = await world.resolve((), said("q", "x"), edited)

    assert same == [said("q", "x"), thought("rs_1"), ours]
    assert changed == [said("q", "x"), edited]


async def test_arguments_that_only_differ_in_spelling_are_unchanged() -> None:
    world = World()
    world.live.add("ada", TURN, (thought("rs_1"), call("c1", arguments='{"a": 1, "b": 2}')))

    _, new = await world.resolve((), said("q", "x"), call("c1", arguments='{"b":2,"a":1}'), output("c1"))

    assert thought("rs_1") in new


async def test_the_live_call_of_another_owner_is_not_there() -> None:
    world = world_with_live_calls()

    assert (await world.refuse((), output("c1"), owner="eve")).code == "tool_call_not_found"
    _, new = await world.resolve((), said("q", "x"), call("c1"), owner="eve")
    assert thought("rs_1") not in new


async def test_a_live_call_is_over_when_its_time_is() -> None:
    world = world_with_live_calls()
    world.now = 60

    assert (await world.refuse((), output("c1"))).code == "tool_call_not_found"
    assert len(world.live) == 0


async def test_no_call_is_kept_alive_where_the_time_is_zero() -> None:
    live = LiveCalls(0)
    live.add("ada", TURN, ANSWER)

    assert live.get("ada", "c1") is None


async def test_live_calls_stay_within_their_budget_with_all_that_was_said_before_them() -> None:
    live = LiveCalls(60, max_bytes=100_000)
    before = (said("a", "x" * 30_000),)
    for name in ("c1", "c2", "c3", "c4"):
        live.add("ada", before, (call(name),))
    live.add("ada", (said("a", "x" * 200_000),), (call("c5"),))
    live.add("ada", before, tuple(call(f"d{i}") for i in range(10)))

    kept = [name for name in ("c1", "c2", "c3", "c4", "c5", "d0", "d9") if live.get("ada", name)]
    assert kept == ["c4", "d0", "d9"]


async def test_an_answer_without_calls_keeps_nothing_alive() -> None:
    live = LiveCalls(60)
    live.add("ada", TURN, (said("a", "ok", "assistant"),))

    assert len(live) == 0


async def test_only_the_thoughts_right_before_a_call_belong_to_it() -> None:
    live = LiveCalls(60)
    live.add("ada", TURN, (thought("rs_1"), said("a", "ok", "assistant"), thought("rs_2"), call("c1")))

    kept = live.get("ada", "c1")
    assert kept is not None
    assert kept.reasoning == thought("rs_2")
