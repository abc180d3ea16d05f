"""The values that go in and out of a program."""

from threading import Event
from typing import get_args

import msgspec
import pytest

from mellea_responses.turn import CurrentRun, Options, Said, Step, Stop, Text, Turn, current_run
from mellea_responses.wire import items as w
from mellea_responses.wire.request import CreateResponse


def message(own_id: str) -> w.Message:
    return w.Message(own_id, "completed", "user", [w.InputText("a")])


def test_a_turn_s_items_are_its_history_and_its_input() -> None:
    turn = Turn(CreateResponse(), (message("c"),), history=(message("a"), message("b")))

    assert [w.item_id(item) for item in turn.items] == ["a", "b", "c"]


def test_what_is_said_has_a_small_stored_form_that_tells_the_steps_apart() -> None:
    names = {kind.__struct_config__.tag for kind in get_args(Said) if isinstance(kind, type)}

    assert msgspec.json.encode(Text("a")) == b'["Text","a",null,null]'
    assert {kind.__struct_config__.tag for kind in get_args(Step)} <= names
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([Text("a"), Stop()]), type=list[Said]) == [Text("a"), Stop()]


@pytest.mark.parametrize("raw", [b'["Text",5]', b'["Nothing said"]', b'["Stop","because"]', b"[]", b'{"text":"a"}'])
def test_what_is_no_step_is_not_read_back(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Said)


def test_steps_and_turns_cannot_be_changed() -> None:
    for value, name in ((Text("a"), "text"), (Turn(CreateResponse(), ()), "input"), (Options(), "seed")):
        with pytest.raises(AttributeError):
            setattr(value, name, None)


def test_nobody_runs_where_no_run_was_set() -> None:
    assert current_run.get() is None

    run = CurrentRun("ada", "resp_1", Turn(CreateResponse(), ()), Event(), {})
    token = current_run.set(run)
    assert current_run.get() is run
    current_run.reset(token)
