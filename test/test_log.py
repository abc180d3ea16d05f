"""One writer, many readers from any index, in batches."""

import asyncio
import json

import pytest

from mellea_responses.log import BATCH, EventLog
from mellea_responses.wire.events import ArgumentsDelta, Event


def some(count: int, start: int = 0) -> list[Event]:
    return [ArgumentsDelta(start + n, "fc_1", 0, "x") for n in range(count)]


async def numbers(log: EventLog, start: int = 0) -> list[int]:
    return [json.loads(event)["sequence_number"] async for batch in log.batches(start) for event in batch]


@pytest.mark.parametrize("start", [0, 1, 4, 5, 9])
async def test_a_reader_gets_every_event_from_its_index_on(start: int) -> None:
    log = EventLog()
    log.append(some(5))
    log.close()

    assert await numbers(log, start) == list(range(start, 5))


async def test_readers_that_wait_get_what_comes_later_and_each_gets_everything() -> None:
    log = EventLog()
    readers = [asyncio.create_task(numbers(log, start)) for start in (0, 2, 2)]
    for n in range(4):
        await asyncio.sleep(0)
        log.append(some(1, n))
    log.close()

    assert await asyncio.gather(*readers) == [[0, 1, 2, 3], [2, 3], [2, 3]]


async def test_what_is_ready_comes_together_up_to_a_batch() -> None:
    log = EventLog()
    log.append(some(BATCH + 3))
    log.close()

    assert [len(batch) async for batch in log.batches()] == [BATCH, 3]


async def test_an_event_is_encoded_once_for_all_readers() -> None:
    log = EventLog()
    log.append(some(2))
    log.close()

    first = [event async for batch in log.batches() for event in batch]
    second = [event async for batch in log.batches() for event in batch]
    assert all(one is other for one, other in zip(first, second, strict=True))


async def test_silence_is_told_by_an_empty_batch_and_reading_goes_on() -> None:
    log = EventLog()
    batches = log.batches(idle=0)

    assert await anext(batches) == []
    log.append(some(1))
    assert len(await anext(batches)) == 1
    log.close()
    assert [batch async for batch in batches] == []


async def test_a_reader_that_never_waits_can_still_be_cancelled() -> None:
    log = EventLog()
    log.append(some(10_000))

    reader = asyncio.create_task(numbers(log))
    await asyncio.sleep(0)
    reader.cancel()

    with pytest.raises(asyncio.CancelledError):
        await reader


async def test_waiting_for_the_end_ends_with_it() -> None:
    log = EventLog()
    waiting = asyncio.create_task(log.wait_closed())
    await asyncio.sleep(0)
    log.append(some(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    log.close()
    await waiting

    assert (log.closed, len(log)) == (True, 1)
    await log.wait_closed()


async def test_an_empty_log_that_is_closed_has_nothing_to_read() -> None:
    log = EventLog()
    log.close()

    assert await numbers(log) == []
