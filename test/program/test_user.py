"""A user's `serve()` in every form: what it says is heard, its failures are told, and it learns when nobody listens."""

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from mellea_responses.errors import ApiError, Busy, InvalidRequest
from mellea_responses.program.channel import MOST
from mellea_responses.program.returns import UnknownReturn, to_steps
from mellea_responses.program.user import UserProgram
from mellea_responses.runs import new_current
from mellea_responses.settings import Settings
from mellea_responses.turn import CurrentRun, Facts, Step, Stop, Text, Thought, Turn, current_run
from mellea_responses.wire import items as w
from mellea_responses.wire.request import CreateResponse

TURN = Turn(CreateResponse(), (w.Message("msg_1", "completed", "user", [w.InputText("hi")]),))


def a_run(name: str = "resp_1") -> CurrentRun:
    return new_current("ada", name, TURN)


async def hear(program: UserProgram, current: CurrentRun | None = None, heard: list[Step] | None = None) -> list[Step]:
    heard = [] if heard is None else heard
    async for batch in program.run(current or a_run()):
        heard += batch
    return heard


async def until(holds: Callable[[], bool]) -> None:
    """Waits for what another thread does and nothing tells."""
    while not holds():  # noqa: ASYNC110  # any condition, none of them signalled
        await asyncio.sleep(0)


async def said_by(serve: Any, **settings: Any) -> list[Step]:
    program = UserProgram(serve, settings=Settings(**settings))
    try:
        return await hear(program)
    finally:
        program.close()


# ---------------------------------------------------------------- forms


def function(turn: Any) -> str:
    return "ab"


def generator(turn: Any) -> Iterator[str]:
    yield "a"
    yield "b"


def iterator(turn: Any) -> Iterator[str]:
    return iter(["a", "b"])


async def coroutine(turn: Any) -> str:
    await asyncio.sleep(0)
    return "ab"


async def async_generator(turn: Any) -> AsyncIterator[str]:
    yield "a"
    await asyncio.sleep(0)
    yield "b"


def returns_a_coroutine(turn: Any) -> Any:
    return coroutine(turn)


def returns_an_async_generator(turn: Any) -> Any:
    return async_generator(turn)


async def gives_an_async_generator(turn: Any) -> Any:
    return async_generator(turn)


class Plain:
    def __call__(self, turn: Any) -> str:
        return "ab"


class Async:
    async def __call__(self, turn: Any) -> str:
        return "ab"


class Streaming:
    async def serve(self, turn: Any) -> AsyncIterator[str]:
        yield "a"
        yield "b"


FORMS = [
    function, generator, iterator, coroutine, async_generator, returns_a_coroutine, returns_an_async_generator,
    gives_an_async_generator, Plain(), Async(), Streaming().serve,
]  # fmt: skip


@pytest.mark.parametrize("serve", FORMS, ids=lambda serve: getattr(serve, "__qualname__", type(serve).__name__))
@pytest.mark.parametrize("exclusive", [False, True])
async def test_every_form_of_serve_is_heard_out(serve: Any, exclusive: bool) -> None:
    steps = await said_by(serve, exclusive=exclusive)

    assert "".join(step.text for step in steps if isinstance(step, Text)) == "ab"


class Answer(BaseModel):
    n: int


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        ("a", [Text("a")]),
        ("", [Text("")]),
        (None, []),
        (Thought("hm"), [Thought("hm")]),
        ([Thought("hm"), Text("a")], [Thought("hm"), Text("a")]),
        ((Text("a"), Stop("length")), [Text("a"), Stop("length")]),
        (Answer(n=1), [Text('{"n":1}')]),
        ({"n": [1, None]}, [Text('{"n":[1,null]}')]),
        ([], [Text("[]")]),
        ([1, "a"], [Text('[1,"a"]')]),
        (5, [Text("5")]),
        (True, [Text("true")]),
    ],
)
def test_a_value_says_what_it_is(value: Any, steps: list[Step]) -> None:
    assert list(to_steps(value)) == steps


@pytest.mark.parametrize("value", [object(), {1, object()}, lambda: None, {"a": object()}])
def test_a_value_that_is_no_answer_is_named_by_its_type(value: Any) -> None:
    with pytest.raises(UnknownReturn, match=type(value).__name__):
        list(to_steps(value))


def test_a_value_that_holds_itself_is_no_answer() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(UnknownReturn):
        list(to_steps(loop))


async def test_after_a_stop_the_program_is_not_asked_again() -> None:
    asked = []

    def serve(turn: Any) -> Iterator[Any]:
        try:
            for n in range(3):
                asked.append(n)
                yield [Text("a"), Stop()]
        finally:
            asked.append("closed")

    assert await said_by(serve) == [Text("a"), Stop()]
    assert asked == [0, "closed"]


# ---------------------------------------------------------------- where it runs


@pytest.mark.parametrize("serve_is_async", [False, True])
async def test_a_program_never_runs_on_the_loop_that_serves_http(serve_is_async: bool) -> None:
    seen = []

    def plain(turn: Any) -> str:
        seen.append(threading.current_thread())
        return ""

    async def on_a_loop(turn: Any) -> str:
        seen.append(threading.current_thread())
        return ""

    await said_by(on_a_loop if serve_is_async else plain)

    assert seen[0] is not threading.current_thread()
    assert seen[0].daemon


async def test_a_program_that_blocks_its_loop_does_not_block_this_one() -> None:
    release = threading.Event()

    async def serve(turn: Any) -> str:
        release.wait()
        return "done"

    heard = asyncio.create_task(said_by(serve))
    await asyncio.sleep(0)
    assert not heard.done()
    release.set()

    assert await heard == [Text("done")]


async def test_the_current_run_is_known_in_threads_on_the_loop_and_in_threads_from_there() -> None:
    def plain(turn: Any) -> str:
        return getattr(current_run.get(), "response_id", "")

    async def on_a_loop(turn: Any) -> AsyncIterator[str]:
        yield plain(turn)
        yield await asyncio.to_thread(plain, turn)

    def generator(turn: Any) -> Iterator[str]:
        yield plain(turn)
        yield plain(turn)

    for serve, times in ((plain, 1), (on_a_loop, 2), (generator, 2), (lambda turn: on_a_loop(turn), 2)):
        assert await said_by(serve) == [Text("resp_1")] * times
    assert current_run.get() is None


async def test_two_runs_on_one_loop_know_their_own_run_only() -> None:
    count = []

    async def serve(turn: Any) -> str:
        count.append(1)
        await until(lambda: len(count) == 2)
        run = current_run.get()
        assert run is not None
        return run.response_id

    program = UserProgram(serve)
    first, second = await asyncio.gather(hear(program, a_run("r1")), hear(program, a_run("r2")))
    program.close()

    assert (first, second) == ([Text("r1")], [Text("r2")])


async def test_a_context_of_the_request_reaches_the_program() -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
    tenant.set("ada")

    assert await said_by(lambda turn: tenant.get()) == [Text("ada")]


@pytest.mark.parametrize("serve_is_async", [False, True])
async def test_exclusive_programs_run_one_at_a_time(serve_is_async: bool) -> None:
    inside: list[int] = []
    most: list[int] = []

    def plain(turn: Any) -> Iterator[str]:
        inside.append(1)
        most.append(len(inside))
        yield "a"
        time.sleep(0.005)
        inside.pop()

    async def on_a_loop(turn: Any) -> AsyncIterator[str]:
        inside.append(1)
        most.append(len(inside))
        yield "a"
        await asyncio.sleep(0.005)
        inside.pop()

    program = UserProgram(on_a_loop if serve_is_async else plain, settings=Settings(exclusive=True))
    await asyncio.gather(*(hear(program, a_run(f"r{n}")) for n in range(4)))
    program.close()

    assert most == [1, 1, 1, 1]


# ---------------------------------------------------------------- slots


async def test_with_every_slot_taken_the_answer_is_busy_and_a_slot_that_is_free_again_is_used() -> None:
    release = threading.Event()
    program = UserProgram(lambda turn: release.wait() and "done", settings=Settings(threads=1))
    waiting = asyncio.create_task(hear(program))
    await until(lambda: program._pool.busy == 1)

    with pytest.raises(Busy):
        await hear(program)
    release.set()
    assert await waiting == [Text("done")]
    await until(lambda: program._pool.busy == 0)
    assert await hear(program) == [Text("done")]
    program.close()


async def test_an_abandoned_thread_keeps_its_slot_until_it_returns() -> None:
    release, entered = threading.Event(), threading.Event()

    def serve(turn: Any) -> str:
        entered.set()
        release.wait()
        return "late"

    program = UserProgram(serve, settings=Settings(threads=1))
    listening = asyncio.create_task(hear(program))
    await until(entered.is_set)
    found = threading.Event()
    program.on_freed(found.set)
    assert program.capacity() == 1
    listening.cancel()
    await asyncio.wait([listening])

    assert program.capacity() == 0
    with pytest.raises(Busy):
        await hear(program)
    release.set()
    assert await asyncio.to_thread(found.wait, 60)
    assert program.capacity() == 1
    assert await hear(program) == [Text("late")]
    program.close()


async def test_who_hears_the_end_finds_the_thread_free() -> None:
    program = UserProgram(function, settings=Settings(threads=1))

    for _ in range(50):
        assert await hear(program) == [Text("ab")]

    program.close()


@pytest.mark.parametrize(
    ("serve", "settings", "capacity"),
    [
        (function, {"threads": 3}, 3),
        (function, {"threads": 3, "exclusive": True}, 1),
        (coroutine, {"threads": 3}, None),
        (coroutine, {"exclusive": True}, 1),
    ],
)
def test_a_program_says_how_many_runs_it_can_take(serve: Any, settings: Any, capacity: int | None) -> None:
    program = UserProgram(serve, settings=Settings(**settings))

    assert program.capacity() == capacity
    program.close()


async def test_a_check_waits_for_a_thread_and_one_that_was_given_up_is_never_made() -> None:
    release, made = threading.Event(), []

    def check(turn: Turn) -> None:
        made.append(1)
        release.wait()

    program = UserProgram(function, check=check, settings=Settings(threads=1))
    first = asyncio.create_task(program.check(TURN, "ada"))
    await until(lambda: made == [1])
    given_up, second = (asyncio.create_task(program.check(TURN, "ada")) for _ in range(2))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    release.set()

    assert [await first, await second] == [None, None]
    assert made == [1, 1]
    program.close()


async def test_with_every_check_left_behind_the_next_one_is_busy() -> None:
    release = threading.Event()
    program = UserProgram(function, check=lambda turn: release.wait(), settings=Settings(threads=1, check_timeout=0.05))
    with pytest.raises(ApiError, match="too long"):
        await program.check(TURN, "ada")

    with pytest.raises(Busy):
        await program.check(TURN, "ada")
    release.set()
    program.close()


# ---------------------------------------------------------------- nobody listens


async def listen_once_and_leave(serve: Any) -> None:
    program = UserProgram(serve)
    answer = program.run(a_run())
    async for _ in answer:
        break
    await answer.aclose()  # type: ignore[attr-defined]  # an async generator
    program.close()


async def test_an_endless_generator_stops_when_nobody_listens() -> None:
    ended = threading.Event()

    def serve(turn: Any) -> Iterator[str]:
        try:
            while True:
                yield "a"
        except Exception:
            yield "a program that catches everything"
        finally:
            ended.set()

    await listen_once_and_leave(serve)

    assert await asyncio.to_thread(ended.wait, 60)


async def test_an_endless_async_generator_stops_when_nobody_listens() -> None:
    ended = threading.Event()

    async def serve(turn: Any) -> AsyncIterator[str]:
        try:
            while True:
                yield "a"
                await asyncio.sleep(0)
        finally:
            ended.set()

    await listen_once_and_leave(serve)

    assert await asyncio.to_thread(ended.wait, 60)


async def test_a_silent_async_program_is_cancelled_when_nobody_listens() -> None:
    ended = threading.Event()

    async def serve(turn: Any) -> AsyncIterator[str]:
        try:
            yield "a"
            await asyncio.Event().wait()
        finally:
            ended.set()

    await listen_once_and_leave(serve)

    assert await asyncio.to_thread(ended.wait, 60)


async def test_a_program_that_says_everything_at_once_lets_others_have_their_turn() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    program = UserProgram(lambda turn: [Text("x")] * 100 * MOST)
    beside = asyncio.create_task(others())
    heard = await hear(program)
    beside.cancel()
    program.close()

    assert len(heard) == 100 * MOST
    assert turns > 90


async def test_a_fast_program_waits_for_a_slow_listener() -> None:
    said = 0

    def serve(turn: Any) -> Iterator[str]:
        nonlocal said
        while True:
            said += 1
            yield "x"

    program = UserProgram(serve)
    answer = program.run(a_run())
    await anext(answer)  # type: ignore[arg-type]  # an async generator
    seen = -1
    while seen != said:
        seen = said
        await asyncio.sleep(0.05)
    await answer.aclose()
    program.close()

    assert said < 20_000


# ---------------------------------------------------------------- failures


class OwnError(Exception):
    pass


def fails_at_once(error: BaseException) -> list[Any]:
    def plain(turn: Any) -> str:
        raise error

    async def on_a_loop(turn: Any) -> str:
        raise error

    return [plain, on_a_loop]


def fails_midway(error: BaseException) -> list[Any]:
    def generator(turn: Any) -> Iterator[str]:
        yield "a"
        raise error

    async def async_generator(turn: Any) -> AsyncIterator[str]:
        yield "a"
        raise error

    return [generator, async_generator, lambda turn: async_generator(turn)]


@pytest.mark.parametrize("error", [OwnError("x"), InvalidRequest("no", param="input")], ids=repr)
async def test_what_a_program_raises_is_raised_to_the_run_after_what_it_said(error: Exception) -> None:
    for serves, said in ((fails_at_once(error), []), (fails_midway(error), [Text("a")])):
        for serve in serves:
            heard: list[Step] = []
            program = UserProgram(serve)
            with pytest.raises(type(error)):
                await hear(program, heard=heard)
            program.close()
            assert heard == said


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(), StopIteration()], ids=repr
)
async def test_what_would_end_a_process_or_a_task_is_only_a_failure_of_the_program(error: BaseException) -> None:
    for serve in (*fails_at_once(error), *fails_midway(error)):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # any `Exception`, and nothing else
            await said_by(serve)
        assert not isinstance(caught.value, asyncio.CancelledError)


async def test_a_program_that_failed_hard_leaves_its_slot_in_working_order() -> None:
    answers: list[Any] = [SystemExit(1), "fine"]

    def serve(turn: Any) -> str:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return str(answer)

    program = UserProgram(serve, settings=Settings(threads=1))
    with pytest.raises(Exception):  # noqa: B017, PT011  # whatever it is, it must be an Exception
        await hear(program)
    await until(lambda: program._pool.busy == 0)

    assert await hear(program) == [Text("fine")]
    program.close()


async def test_what_a_program_says_that_is_no_answer_is_a_failure() -> None:
    with pytest.raises(UnknownReturn, match="object"):
        await said_by(lambda turn: object())


# ---------------------------------------------------------------- check


async def checked(check: Any, **settings: Any) -> Facts | None:
    program = UserProgram(function, check=check, settings=Settings(**settings))
    try:
        return await program.check(TURN, "ada")
    finally:
        program.close()


async def test_a_program_without_check_cannot_tell() -> None:
    assert await checked(None) is None


async def test_check_may_be_a_function_or_a_coroutine_and_gives_facts_or_nothing() -> None:
    async def later(turn: Turn) -> Facts:
        return Facts(input_tokens=3)

    assert await checked(lambda turn: Facts(context_length=5)) == Facts(context_length=5)
    assert await checked(later) == Facts(input_tokens=3)
    assert await checked(lambda turn: "whatever") is None


@pytest.mark.parametrize("error", [InvalidRequest("no"), OwnError("x")], ids=repr)
async def test_what_check_raises_is_raised(error: Exception) -> None:
    def check(turn: Turn) -> None:
        raise error

    with pytest.raises(type(error)):
        await checked(check)


@pytest.mark.parametrize(
    "error", [SystemExit(2), KeyboardInterrupt(), StopIteration(), asyncio.CancelledError()], ids=repr
)
async def test_a_check_that_would_end_a_process_is_only_a_failure_of_the_program(error: BaseException) -> None:
    def check(turn: Turn) -> None:
        raise error

    with pytest.raises(Exception) as caught:  # noqa: PT011  # any `Exception`, and nothing else
        await checked(check)
    assert getattr(caught.value, "code", "") != "timeout"


async def test_a_check_that_takes_too_long_is_a_failure_with_that_code() -> None:
    release = threading.Event()
    with pytest.raises(ApiError) as caught:
        await checked(lambda turn: release.wait(), check_timeout=0.01)
    release.set()

    assert caught.value.code == "timeout"


# ---------------------------------------------------------------- a loop that is blocked


async def test_the_log_names_a_program_that_blocks_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mellea_responses.program.pool.BLOCKED_SECONDS", 0.05)
    lines: list[str] = []
    named = threading.Event()

    def note(record: logging.LogRecord) -> bool:
        lines.append(record.getMessage())
        named.set()
        return True

    async def serve(turn: Any) -> str:
        named.wait(60)  # blocks on purpose, until the watch has seen it
        return "done"

    logger = logging.getLogger("mellea_responses.program")
    logger.addFilter(note)
    try:
        assert await said_by(serve) == [Text("done")]
    finally:
        logger.removeFilter(note)

    assert lines[0].startswith("serve() for resp_1 blocks the program loop")
