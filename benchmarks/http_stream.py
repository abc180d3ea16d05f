"""CPU of a stream of 200 events, against a bare ASGI route that sends the same bytes with a write for each event."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import Reading, Row, against, fetch, interleaved, main, post, started
from benchmarks.http_apps import EVENTS, commands

PATH, BODY = "/v1/responses", {"model": "m", "input": "Say something about a fox. " * 14, "stream": True}
CLIENTS, PACED_CLIENTS = 16, 4


def measure(quick: bool = False) -> Iterator[Row]:
    count, rounds = (4, 1) if quick else (32, 20)
    floor = "bare-stream"
    readings = _readings(floor, ["builtin-stream", "user-stream"], count, CLIENTS, rounds)
    yield against(readings, floor, "200 events ready together, built-in program", "builtin-stream", 0.8)
    yield against(readings, floor, "200 events ready together, generator on its pool", "user-stream")

    count, rounds = (2, 1) if quick else (8, 16)
    floor = "bare-paced"
    readings = _readings(floor, ["user-paced"], count, PACED_CLIENTS, rounds)
    yield against(readings, floor, "200 events 1 ms apart, async generator on its loop", "user-paced", 2)


def _readings(floor: str, names: list[str], count: int, clients: int, rounds: int) -> dict[str, list[Reading]]:
    with TemporaryDirectory() as folder, started(commands(*names)) as ours:
        answer = Path(folder, "answer.txt")
        for server in ours:
            answer.write_bytes(fetch(server, PATH, BODY))
            assert answer.read_bytes().count(b"event: ") == EVENTS
        with started(commands(floor, answer=answer)) as references:
            servers = [*references, *ours]
            return interleaved(servers, post(PATH, BODY), count=count, clients=clients, rounds=rounds)


if __name__ == "__main__":
    main(measure)
