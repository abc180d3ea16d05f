"""CPU of a plain answer, against a bare ASGI route that sends the same bytes."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import Row, against, fetch, interleaved, main, post, started
from benchmarks.http_apps import commands

PATH, BODY = "/v1/responses", {"model": "m", "input": "Say something about a fox. " * 14}
CLIENTS = 16


def measure(quick: bool = False) -> Iterator[Row]:
    count, rounds = (8, 1) if quick else (160, 24)
    with TemporaryDirectory() as folder, started(commands("builtin", "user", "user-messages")) as ours:
        answer = Path(folder, "answer.json")
        for server in ours:
            answer.write_bytes(fetch(server, PATH, BODY))
        with started(commands("bare", "bare-litestar", answer=answer)) as references:
            servers = [*references, *ours]
            readings = interleaved(servers, post(PATH, BODY), count=count, clients=CLIENTS, rounds=rounds)

    yield against(readings, "bare", "plain answer, bare Litestar + msgspec route", "bare-litestar")
    yield against(readings, "bare", "plain answer, built-in program", "builtin", 4)
    yield against(readings, "bare", "plain answer, `serve(turn)` on its pool", "user", 5)
    yield against(readings, "bare", "plain answer, `serve(input)` on its pool", "user-messages", 5)


if __name__ == "__main__":
    main(measure)
