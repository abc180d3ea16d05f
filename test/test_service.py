"""The use cases without HTTP: what is answered, kept, forgotten, refused, and how a run ends."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mellea_responses import service as service_module
from mellea_responses.errors import ApiError, Busy, Draining, InvalidRequest, ModelNotFound, NotFound
from mellea_responses.pages import page
from mellea_responses.program.user import UserProgram
from mellea_responses.runs import Run
from mellea_responses.service import Service
from mellea_responses.settings import Settings
from mellea_responses.turn import Call, CallArgs, CallEnd, Facts, ItemDone, Stop, Text, Thought, Turn, Usage
from mellea_responses.wire import items as w
from mellea_responses.wire.decode import decode_create
from support.recogniser import rebuild, recognise

Json = dict[str, Any]


@asynccontextmanager
async def serving(serve: Any, check: Any = None, **settings: Any) -> AsyncIterator[Service]:
    chosen = Settings(**settings)
    service = Service(UserProgram(serve, check=check, settings=chosen), chosen)
    await service.open()
    try:
        yield service
    finally:
        await service.close()


async def ask(service: Service, owner: str = "ada", **body: Any) -> Run:
    return await service.create(decode_create(json.dumps({"input": "hi", **body}).encode()), owner)


async def events(run: Run) -> list[Json]:
    return [json.loads(event) async for batch in run.log.batches() for event in batch]


def says(*steps: Any) -> Any:
    async def serve(turn: Turn) -> AsyncIterator[Any]:
        for step in steps:
            yield step

    return serve


async def forever(turn: Turn) -> AsyncIterator[str]:
    yield "a"
    await asyncio.Event().wait()


async def spoken(run: Run) -> None:
    """Until the first word is out."""
    async for batch in run.log.batches():
        if any(b"output_text.delta" in event for event in batch):
            return


# ---------------------------------------------------------------- answers


async def test_an_answer_is_the_response_of_the_terminal_event() -> None:
    async with serving(says("hello", Usage(3, 1))) as service:
        run = await ask(service)
        response = await run.result()

        told = await events(run)
        assert told[-1]["response"] == recognise(told) == json.loads(await service.stored.retrieve("ada", run.id))
        assert (response.status, response.usage.total_tokens if response.usage else 0) == ("completed", 4)


async def test_the_opening_events_are_there_at_once() -> None:
    async with serving(forever) as service:
        run = await ask(service)

        assert len(run.log) == 2


async def test_an_answer_without_a_word_is_one_empty_message_also_when_it_is_replayed() -> None:
    async with serving(says()) as service:
        run = await ask(service)
        [message] = (await run.result()).output

        assert isinstance(message, w.Message)
        assert message.content == [w.OutputText("")]
        replayed = [event async for batch in (await service.stored.events("ada", run.id)).batches() for event in batch]
        assert replayed == [event async for batch in run.log.batches() for event in batch]


async def test_a_program_that_counts_nothing_gets_an_estimate_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mellea_responses.access")
    async with serving(says(Thought("four"), "eight888")) as service:
        usage = (await (await ask(service, input="12345678")).result()).usage

    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.output_tokens_details.reasoning_tokens) == (2, 3, 1)
    assert "usage=estimated" in caplog.text


async def test_the_access_line_tells_the_end_and_no_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mellea_responses.access")
    async with serving(says("a secret answer", Usage(3, 1), Stop("length"))) as service:
        run = await ask(service, input="a secret question", metadata={"k": "a secret tag"})
        await run.log.wait_closed()

    [line] = [record.getMessage() for record in caplog.records if record.name == "mellea_responses.access"]
    assert line.startswith(f"{run.id} owner=ada end=max_output_tokens")
    assert "secret" not in line


async def test_a_program_may_say_several_steps_after_which_it_fails_and_no_number_is_missing() -> None:
    bad: list[Any] = [
        Text(None),
        Text("b", 5),
        Text("b", (5,)),
        Text("b", phase="x"),
        Thought(5),
        Call("k", 5),
        CallArgs("k", None),
        Usage("a", 1),
        ItemDone(5),
        CallEnd("nobody"),
        object(),
    ]  # type: ignore[arg-type]  # on purpose
    for wrong in bad:

        def serve(turn: Turn, wrong: Any = wrong) -> Iterator[Any]:
            yield "a"
            yield wrong

        async with serving(serve) as service:
            told = await events(await ask(service))

        final = recognise(told)
        assert rebuild(told) == final
        assert (final["status"], final["error"]["code"]) == ("failed", "server_error"), wrong
        assert final["output"][0]["content"][0]["text"].startswith("a"), wrong


# ---------------------------------------------------------------- failures


async def test_an_error_of_the_program_is_a_server_error_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    def serve(turn: Turn) -> str:
        raise ValueError("a secret cause")

    async with serving(serve) as service:
        run = await ask(service)
        with pytest.raises(ApiError) as caught:
            await run.result()
        stored = json.loads(await service.stored.retrieve("ada", run.id))

    assert (caught.value.status, caught.value.code) == (500, "server_error")
    assert "secret" not in json.dumps(await events(run)) + caught.value.message
    assert "a secret cause" in caplog.text
    assert (stored["status"], stored["error"]["code"]) == ("failed", "server_error")


async def test_an_invalid_request_that_the_program_raises_is_the_client_s_mistake() -> None:
    def serve(turn: Turn) -> str:
        raise InvalidRequest("Ask for less.", param="input", code="too_much")

    async with serving(serve) as service:
        run = await ask(service)
        with pytest.raises(InvalidRequest) as caught:
            await run.result()

    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "too_much", "input")


async def test_a_failure_of_the_guard_is_the_failure_of_the_answer() -> None:
    async with serving(says(Call("k", "undeclared"), CallEnd("k"))) as service:
        run = await ask(service)
        with pytest.raises(ApiError) as caught:
            await run.result()

    assert (caught.value.type, caught.value.code, caught.value.status) == ("model_error", "invalid_tool_call", 500)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
async def test_a_program_that_would_end_the_process_only_fails(error: BaseException) -> None:
    def serve(turn: Turn) -> str:
        raise error

    async with serving(serve) as service:
        final = recognise(await events(await ask(service)))
        assert final["status"] == "failed"
        assert len(service.runs) == 0


async def test_check_s_facts_pass_and_its_errors_come_before_anything_runs() -> None:
    ran = []

    def serve(turn: Turn) -> str:
        ran.append(1)
        return "ok"

    def check(turn: Turn) -> Facts:
        if turn.instructions == "refuse":
            raise InvalidRequest("No.", param="instructions")
        if turn.instructions == "break":
            raise ValueError("a secret cause")
        return Facts(1)

    async with serving(serve, check) as service:
        await (await ask(service)).result()
        with pytest.raises(InvalidRequest):
            await ask(service, instructions="refuse")
        with pytest.raises(ApiError) as caught:
            await ask(service, instructions="break")

        assert ran == [1]
        assert (caught.value.status, "secret" in caught.value.message) == (500, False)
        assert len(service.runs) == 0


# ---------------------------------------------------------------- time


async def test_a_program_that_goes_silent_fails_with_timeout() -> None:
    async with serving(forever, step_timeout=0.05) as service:
        run = await ask(service)
        told = await events(run)

        assert recognise(told)["error"]["code"] == "timeout"
        assert run.cause == "timeout"
        with pytest.raises(ApiError, match="said nothing"):
            await run.result()


async def test_a_program_that_never_ends_fails_with_timeout() -> None:
    async def serve(turn: Turn) -> AsyncIterator[str]:
        while True:
            yield "a"
            await asyncio.sleep(0.001)

    async with serving(serve, run_timeout=0.1) as service:
        told = await events(await ask(service))

    assert recognise(told)["error"]["code"] == "timeout"


async def test_a_silent_run_beats_with_what_was_said_so_far() -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def serve(turn: Turn) -> Iterator[str]:
        yield "so far"
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        yield ""

    async with serving(serve, beat_seconds=0.02) as service:
        run = await ask(service)
        beats = []
        async for batch in run.log.batches():
            beats += [event for event in map(json.loads, batch) if event["type"] == "response.in_progress"]
            if len(beats) > 1:
                release.set()

        told = await events(run)
        assert beats[1]["response"]["output"][0]["content"][0]["text"] == "so far"
        assert recognise(told)["status"] == "completed"
        replayed = [
            json.loads(event)
            async for batch in (await service.stored.events("ada", run.id)).batches()
            for event in batch
        ]
        assert replayed == told


# ---------------------------------------------------------------- ends from outside


async def test_a_cancelled_run_ends_cancelled_and_is_stored_so() -> None:
    async with serving(forever) as service:
        run = await ask(service)
        await spoken(run)
        run.cancel("client left")
        run.cancel("again")
        await run.log.wait_closed()

        stored = json.loads(await service.stored.retrieve("ada", run.id))
        assert (stored["status"], stored["output"][0]["content"][0]["text"]) == ("cancelled", "a")
        assert (run.cause, run.current.cancelled.is_set()) == ("client left", True)


async def test_a_run_that_is_cancelled_before_it_began_still_has_a_terminal_event() -> None:
    async with serving(forever) as service:
        run = await ask(service)
        run.cancel("client left")

        assert recognise(await events(run))["status"] == "cancelled"


async def test_a_run_that_is_over_is_not_cancelled() -> None:
    async with serving(says("a")) as service:
        run = await ask(service)
        await run.result()
        run.cancel("too late")

        assert json.loads(await service.stored.retrieve("ada", run.id))["status"] == "completed"


async def test_draining_ends_every_run_with_its_terminal_event_and_takes_no_new_one() -> None:
    async with serving(forever) as service:
        runs = [await ask(service) for _ in range(3)]
        await spoken(runs[0])
        service.drain()

        for run in runs:
            final = recognise(await events(run))
            assert (final["status"], final["error"]["code"]) == ("failed", "server_draining")
        with pytest.raises(Draining):
            await ask(service)
        assert len(service.runs) == 0


async def test_a_blocked_thread_does_not_hold_up_the_end_of_its_run() -> None:
    release = threading.Event()

    def serve(turn: Turn) -> str:
        release.wait()
        return "late"

    async with serving(serve) as service:
        run = await ask(service)
        service.drain()
        assert recognise(await events(run))["status"] == "failed"
        release.set()


async def test_with_no_line_more_runs_than_allowed_are_busy() -> None:
    async with serving(forever, max_runs=2, max_queued=0) as service:
        runs = [await ask(service), await ask(service)]
        with pytest.raises(Busy):
            await ask(service)
        runs[0].cancel("left")
        await runs[0].log.wait_closed()

        assert await ask(service)


async def test_a_run_in_line_has_its_opening_events_and_goes_on_when_its_turn_comes() -> None:
    async with serving(forever, max_runs=1) as service:
        first, second = await ask(service), await ask(service)
        assert [event["type"] for event in await opening(second)] == ["response.created", "response.in_progress"]
        assert second.waiting

        first.cancel("left")
        await spoken(second)

        assert not second.waiting
        assert (service.admission.active, service.admission.waiting) == (1, 0)


async def opening(run: Run) -> list[Json]:
    batch = await anext(run.log.batches())  # type: ignore[arg-type]  # an async generator
    return [json.loads(event) for event in batch]


async def test_owners_take_turns_in_the_line() -> None:
    async with serving(forever, max_runs=1) as service:
        first = await ask(service)
        waiting = [await ask(service, owner) for owner in ("ada", "ada", "bob")]

        order = []
        run = first
        for _ in range(3):
            run.cancel("left")
            await run.log.wait_closed()
            run = next(one for one in waiting if not one.waiting)
            waiting.remove(run)
            order.append(run.current.owner)

    assert order == ["ada", "bob", "ada"]


@pytest.mark.parametrize("cause", ["client left", "cancelled", "shutdown"])
async def test_a_run_that_ends_in_line_leaves_it(cause: str) -> None:
    async with serving(forever, max_runs=1) as service:
        first, second, third = [await ask(service) for _ in range(3)]
        second.cancel(cause)

        assert recognise(await events(second))["status"] == "cancelled"
        assert (service.admission.active, service.admission.waiting) == (1, 1)
        first.cancel("left")
        await spoken(third)


async def test_what_waits_too_long_fails_as_busy() -> None:
    async with serving(says(Text("a")), max_runs=1, queue_timeout=0.2) as service:
        place = service.admission.enter("bob")
        late = await ask(service)
        with pytest.raises(Busy):
            await late.result()
        place.leave()

    assert late.cause == "server_busy"
    assert late.response.error is not None
    assert late.response.error.code == "server_busy"
    assert (service.admission.active, service.admission.waiting) == (0, 0)


async def test_neither_limit_of_time_counts_what_was_spent_in_line() -> None:
    async with serving(says(Text("a")), max_runs=1, step_timeout=0.1, run_timeout=0.1) as service:
        place = service.admission.enter("bob")
        run = await ask(service)
        await asyncio.sleep(0.3)
        place.leave()

        assert (await run.result()).status == "completed"


@pytest.mark.parametrize("body", [{"model": "x"}, {"previous_response_id": "resp_gone"}, {"background": True}])
async def test_a_request_that_is_refused_gives_its_place_back(body: Json) -> None:
    async with serving(forever, max_runs=1, model_names=("a",), response_ttl=0) as service:
        with pytest.raises(ApiError):
            await ask(service, **body)

        assert (service.admission.active, service.admission.waiting) == (0, 0)


async def test_a_check_that_fails_gives_its_place_back() -> None:
    def check(turn: Turn) -> None:
        raise InvalidRequest("No.")

    async with serving(forever, check, max_runs=1) as service:
        with pytest.raises(InvalidRequest):
            await ask(service)
        with pytest.raises(InvalidRequest):
            await service.count(decode_create(b'{"input":"a"}'), "ada")

        assert service.admission.active == 0


async def test_answers_of_a_plain_function_wait_for_its_threads() -> None:
    release = threading.Event()

    def serve(turn: Turn) -> str:
        release.wait()
        return "done"

    async with serving(serve, threads=1) as service:
        runs = [await ask(service) for _ in range(3)]
        assert [run.waiting for run in runs] == [False, True, True]
        release.set()

        assert [(await run.result()).status for run in runs] == ["completed"] * 3


async def test_a_thread_that_a_run_left_behind_is_counted_until_it_returns() -> None:
    release, entered = threading.Event(), threading.Event()

    def serve(turn: Turn) -> str:
        entered.set()
        release.wait()
        return "late"

    async with serving(serve, threads=1) as service:
        left, waits = await ask(service), await ask(service)
        assert await asyncio.to_thread(entered.wait, 60)
        left.cancel("client left")
        await left.log.wait_closed()

        assert waits.waiting
        with pytest.raises(Busy):
            await ask(service)
        release.set()
        assert (await waits.result()).status == "completed"


# ---------------------------------------------------------------- what is stored


async def test_a_response_is_there_while_it_is_made_and_afterwards() -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def serve(turn: Turn) -> Iterator[str]:
        yield "half"
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        yield " whole"

    async with serving(serve) as service:
        run = await ask(service)
        await spoken(run)
        live = json.loads(await service.stored.retrieve("ada", run.id))
        assert (live["status"], live["output"][0]["content"][0]["text"]) == ("in_progress", "half")
        assert await service.stored.events("ada", run.id) is run.log
        with pytest.raises(NotFound):
            await service.stored.retrieve("eve", run.id)

        release.set()
        await run.log.wait_closed()
        assert json.loads(await service.stored.retrieve("ada", run.id))["status"] == "completed"


async def test_whoever_hears_the_end_can_continue_at_once() -> None:
    async with serving(says("a")) as service:
        run = await ask(service)
        async for batch in run.log.batches():
            if any(b'"response.completed"' in event for event in batch):
                assert await ask(service, previous_response_id=run.id)


@pytest.mark.parametrize("body", [{"store": False}, {}])
async def test_what_is_not_to_be_stored_is_never_there(body: Json) -> None:
    async with serving(says("a"), response_ttl=600 if body else 0) as service:
        run = await ask(service, **body)
        response = await run.result()

        assert response.store is False
        for gone in (
            service.stored.retrieve("ada", run.id),
            service.stored.events("ada", run.id),
            service.stored.delete("ada", run.id),
        ):
            with pytest.raises(NotFound):
                await gone
        assert len(service.store) == 0  # type: ignore[arg-type]  # the memory store's


async def test_without_storing_nothing_can_be_continued() -> None:
    async with serving(says("a"), response_ttl=0) as service:
        run = await ask(service)
        await run.result()
        with pytest.raises(InvalidRequest) as caught:
            await ask(service, previous_response_id=run.id)

        assert caught.value.code == "previous_response_not_found"


async def test_a_response_larger_than_the_store_is_answered_all_the_same_and_says_that_it_is_not_stored() -> None:
    async with serving(says("x" * 5000), store_max_bytes=2000) as service:
        run = await ask(service)
        final = recognise(await events(run))

        assert (final["status"], final["store"]) == ("completed", False)
        with pytest.raises(NotFound):
            await service.stored.retrieve("ada", run.id)
        assert len(service.runs) == 0


async def test_a_store_that_fails_does_not_fail_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*_args: object) -> None:
        raise OSError("the disk is full")

    async with serving(says("a")) as service:
        service.store.put = broken
        run = await ask(service)
        final = recognise(await events(run))

    assert (final["status"], final["store"]) == ("completed", False)
    assert (await run.result()).store is False
    assert "the disk is full" in caplog.text


async def test_a_deleted_response_is_gone_and_deleting_it_again_says_so() -> None:
    async with serving(says("a")) as service:
        run = await ask(service)
        await run.result()
        with pytest.raises(NotFound):
            await service.stored.delete("eve", run.id)
        await service.stored.delete("ada", run.id)

        for gone in (
            service.stored.delete("ada", run.id),
            service.stored.retrieve("ada", run.id),
            service.stored.events("ada", run.id),
        ):
            with pytest.raises(NotFound) as caught:
                await gone
            assert (caught.value.status, caught.value.type) == (404, "not_found_error")


async def test_deleting_a_response_that_is_made_ends_it_and_leaves_nothing() -> None:
    async with serving(forever) as service:
        run = await ask(service)
        await spoken(run)
        await service.stored.delete("ada", run.id)

        assert recognise(await events(run))["status"] == "cancelled"
        with pytest.raises(NotFound):
            await service.stored.retrieve("ada", run.id)
        assert (len(service.runs), len(service.store)) == (0, 0)  # type: ignore[arg-type]  # the memory store's


async def test_an_id_carries_the_root_of_its_chain() -> None:
    async with serving(says("a")) as service:
        first = await ask(service)
        await first.result()
        second = await ask(service, previous_response_id=first.id)

        assert first.id.startswith("resp_")
        assert first.id != second.id
        assert first.id[:21] == second.id[:21]


# ---------------------------------------------------------------- input items

ITEMS: list[w.Item] = [w.Message(f"m{n}", "completed", "user", [w.InputText(str(n))]) for n in range(5)]


@pytest.mark.parametrize(
    ("ask_for", "ids", "more"),
    [
        ({}, ["m4", "m3", "m2", "m1", "m0"], False),
        ({"order": "asc"}, ["m0", "m1", "m2", "m3", "m4"], False),
        ({"limit": 2}, ["m4", "m3"], True),
        ({"limit": 2, "after": "m3"}, ["m2", "m1"], True),
        ({"limit": 2, "after": "m2"}, ["m1", "m0"], False),
        ({"order": "asc", "after": "m3"}, ["m4"], False),
        ({"order": "asc", "before": "m2"}, ["m0", "m1"], False),
        ({"order": "asc", "after": "m0", "before": "m3"}, ["m1", "m2"], False),
        ({"after": "m0"}, [], False),
    ],
)
def test_a_page_of_items(ask_for: Json, ids: list[str], more: bool) -> None:
    cut = page(ITEMS, **{"after": None, "before": None, "limit": 20, "order": "desc", **ask_for})

    assert [w.item_id(item) for item in cut.data] == ids
    assert (cut.first_id, cut.last_id) == ((ids[0], ids[-1]) if ids else ("", ""))
    assert cut.has_more is more


@pytest.mark.parametrize("param", ["after", "before"])
def test_a_page_beside_an_item_that_is_not_there_is_refused(param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        page(ITEMS, **{"after": None, "before": None, "limit": 20, "order": "asc", param: "nobody"})

    assert caught.value.param == param


async def test_input_items_are_those_of_this_request_and_not_of_the_chain() -> None:
    async with serving(says("a")) as service:
        first = await ask(service, input="1")
        await first.result()
        second = await ask(
            service,
            input=[{"role": "user", "content": "2"}, {"role": "user", "content": "3"}],
            previous_response_id=first.id,
        )
        live = await service.stored.input_items("ada", second.id, after=None, before=None, limit=20, order="asc")
        await second.result()
        kept = await service.stored.input_items("ada", second.id, after=None, before=None, limit=20, order="asc")

        assert kept == live
        assert [item.content[0].text for item in kept.data] == ["2", "3"]  # type: ignore[union-attr]  # messages of one text
        with pytest.raises(NotFound):
            await service.stored.input_items("eve", second.id, after=None, before=None, limit=20, order="asc")


# ---------------------------------------------------------------- models


async def test_any_model_is_answered_under_the_program_s_name_where_none_are_listed() -> None:
    async with serving(says("a")) as service:
        assert (await (await ask(service, model="gpt-9")).result()).model == "program"
        assert [model.id for model in service.models().data] == ["program"]
        assert service.model("program").id == "program"
        with pytest.raises(ModelNotFound):
            service.model("gpt-9")


async def test_only_listed_models_are_answered_each_under_its_name() -> None:
    async with serving(says("a"), model_names=("one", "two")) as service:
        assert (await (await ask(service, model="two")).result()).model == "two"
        assert (await (await ask(service)).result()).model == "one"
        with pytest.raises(ModelNotFound) as caught:
            await ask(service, model="three")

        assert (caught.value.status, caught.value.code, caught.value.param) == (404, "model_not_found", "model")
        assert [model.id for model in service.models().data] == ["one", "two"]


async def test_what_is_over_is_freed_though_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(turn: Turn) -> list[Any]:
        return [Call("k", "f"), CallArgs("k", "{}"), CallEnd("k")]

    monkeypatch.setattr(service_module, "SWEEP_SECONDS", 0.01)
    async with serving(serve, response_ttl=0.05) as service:
        await (await ask(service, tools=[{"type": "function", "name": "f"}], store=False)).result()
        await service.conversations.create("ada", None, None)
        kept: Any = service.live._calls
        while kept._Cache__data or service.conversation_store.bytes:  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0.01)
