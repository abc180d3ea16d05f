"""Spans and metrics are what docs/telemetry.md says, programs' own spans lie below, and nothing costs while off."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websockets
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from mellea_responses import server, telemetry
from mellea_responses.settings import Settings
from mellea_responses.telemetry import Levels, Name, missing, observer
from mellea_responses.turn import Call, CallArgs, CallEnd, Stop, Text, Turn, Usage
from support.raw import Request, ask, exchange, get, post, posting
from support.serving import build_app, serving

PAGE = (Path(__file__).parents[1] / "docs" / "telemetry.md").read_text("utf-8")
ASK = {"model": "asked", "input": "a secret", "stream": True}
Numbers = dict[str, dict[tuple[tuple[str, str], ...], float]]
"""Values by metric and labels."""

USAGE = Usage(12, 5, cached_tokens=8, reasoning_tokens=2)


def rows(section: str) -> list[list[str]]:
    """The cells of the last table of a section, without its head."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    table = text.rsplit("\n\n| ", 1)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table]


def quoted(cell: str) -> tuple[str, ...]:
    return tuple(re.findall("`([^`]+)`", cell))


async def telling(turn: Turn) -> AsyncIterator[Any]:
    """Answers, breaks, or goes on for ever, as its instructions say."""
    yield Text("another secret")
    if turn.instructions == "break":
        raise RuntimeError("a third secret")
    if turn.instructions == "wait":
        await asyncio.Event().wait()
    yield USAGE
    yield Stop()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What a process that has set up tracing exports."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # the public way can be gone once in a process
    return exporter


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110  # the server is not ours to wait on
            await asyncio.sleep(0.005)


async def finished(spans: InMemorySpanExporter, count: int = 1) -> list[ReadableSpan]:
    await until(lambda: len(spans.get_finished_spans()) >= count)
    return list(spans.get_finished_spans())


async def leave(url: str, body: Any) -> str:
    """Asks for a stream and leaves after its first word; the response's id."""
    async with exchange(url, posting({**body, "instructions": "wait"})) as opened:
        response_id = ""
        async for frame in opened.frames():
            if frame.is_event and "response" in frame.json:
                response_id = frame.json["response"]["id"]
            elif frame.is_event and frame.json["type"] == "response.output_text.delta":
                break
    return response_id


async def scraped(url: str) -> Numbers:
    """The page's numbers by name and labels; buckets and times of creation left out."""
    answer = await get(url, "/metrics")
    assert answer.status == 200
    found: Numbers = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


async def scraped_until(url: str, name: str, value: float) -> Numbers:
    async with asyncio.timeout(10):
        while (numbers := await scraped(url))[name][()] != value:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.01)
    return numbers


# ---------------------------------------------------------------- the page


def test_the_page_and_the_table_of_names_are_one() -> None:
    attributes = {row[0].strip("`") for row in rows("Traces")}
    metrics = {row[0].strip("`") for row in rows("Metrics")}
    labels = {label for row in rows("Metrics") for label in quoted(row[2])}

    assert attributes | metrics | labels == set(Name)


# ---------------------------------------------------------------- spans


async def test_a_streamed_response_is_one_span_with_what_the_page_lists(spans: InMemorySpanExporter) -> None:
    async with serving(telling) as url:
        first = await post(url, ASK)
        asked = {**ASK, "previous_response_id": first.response["id"], "reasoning": {"effort": "low"}}
        second = await post(url, asked)
        told = await finished(spans, 2)

    span = told[1]
    assert (span.name, span.kind, span.status.status_code.name) == ("chat asked", trace.SpanKind.INTERNAL, "UNSET")
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "asked",
        "gen_ai.response.model": "program",
        "gen_ai.request.stream": True,
        "gen_ai.request.reasoning.level": "low",
        "gen_ai.request.previous_response.id": first.response["id"],
        "gen_ai.response.id": second.response["id"],
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 8,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }
    always = {quoted(row[0])[0] for row in rows("Traces") if row[1] in ("always", "at the end")}
    assert always <= set(span.attributes)


async def test_a_failed_and_a_cancelled_response_say_why_and_never_what(spans: InMemorySpanExporter) -> None:
    async with serving(telling) as url:
        await post(url, {**ASK, "instructions": "break"})
        await leave(url, ASK)
        failed, left = await finished(spans, 2)

    assert [dict(span.attributes or {})["error.type"] for span in (failed, left)] == ["server_error", "client_left"]
    assert [(span.status.status_code.name, span.status.description) for span in (failed, left)] == [
        ("ERROR", "server_error"),
        ("ERROR", "client_left"),
    ]
    for span in (failed, left):
        assert "gen_ai.response.finish_reasons" not in (span.attributes or {})
        assert (span.attributes or {})["mellea_responses.usage.estimated"] is True
        assert (span.events, "secret" in span.to_json()) == ((), False)


async def test_chunks_of_a_chat_and_events_of_a_socket_are_streams_too(spans: InMemorySpanExporter) -> None:
    async with serving(telling) as url:
        for stream in (True, False):
            body = {"messages": [{"role": "user", "content": "x"}], "stream": stream}
            await post(url, {"model": "m", **body}, "/v1/chat/completions")
        async with websockets.connect(f"{url.replace('http', 'ws')}/v1/responses") as socket:
            await socket.send(json.dumps({"type": "response.create", "model": "m", "input": "x"}))
            told = await finished(spans, 3)

    assert [(span.attributes or {})["gen_ai.request.stream"] for span in told] == [True, False, True]


async def test_a_background_response_that_is_cancelled_says_so(spans: InMemorySpanExporter) -> None:
    async with serving(telling) as url:
        asked = await post(url, {"input": "x", "background": True, "instructions": "wait"})
        await post(url, {}, f"/v1/responses/{asked.json['id']}/cancel")
        (span,) = await finished(spans)

    assert (span.attributes or {})["error.type"] == "cancelled"
    assert (span.name, (span.attributes or {})["gen_ai.request.model"]) == ("chat program", "program")


async def test_a_conversation_and_a_call_are_on_the_span(spans: InMemorySpanExporter) -> None:
    def calling(turn: Turn) -> Iterator[Any]:
        yield from (Call("a", "look"), CallArgs("a", "{}"), CallEnd("a"))

    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    async with serving(calling) as url:
        conversation = (await post(url, {}, "/v1/conversations")).json["id"]
        await post(url, {"input": "x", "tools": [tool], "conversation": conversation})
        (span,) = await finished(spans)

    assert (span.attributes or {})["gen_ai.conversation.id"] == conversation
    assert (span.attributes or {})["gen_ai.response.finish_reasons"] == ("tool_calls",)


def in_a_thread(turn: Turn) -> str:
    with trace.get_tracer("program").start_as_current_span("inside"):
        return "done"


def in_a_generator(turn: Turn) -> Iterator[str]:
    with trace.get_tracer("program").start_as_current_span("inside"):
        yield "done"


async def on_the_loop(turn: Turn) -> str:
    with trace.get_tracer("program").start_as_current_span("inside"):
        await asyncio.sleep(0)
        return "done"


async def in_an_async_generator(turn: Turn) -> AsyncIterator[str]:
    with trace.get_tracer("program").start_as_current_span("inside"):
        yield "done"


async def aside(turn: Turn) -> str:
    return await asyncio.to_thread(in_a_thread, turn)


@pytest.mark.parametrize("serve", [in_a_thread, in_a_generator, on_the_loop, in_an_async_generator, aside])
async def test_what_a_program_traces_lies_below_its_own_response(serve: Any, spans: InMemorySpanExporter) -> None:
    async with serving(serve) as url:
        await asyncio.gather(*(post(url, {"input": "x"}) for _ in range(3)))
        told = await finished(spans, 6)

    outer = {span.context.span_id: span for span in told if span.name == "chat program"}
    inner = [span.parent.span_id for span in told if span.name == "inside" and span.parent]
    assert (len(outer), sorted(inner)) == (3, sorted(outer))
    assert all(span.parent is None for span in outer.values())


NESTED = """
import asyncio, json
from mellea import MelleaSession
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.mellea_backend import ScriptedBackend, words
from support.raw import post
from support.serving import serving

exporter = InMemorySpanExporter()
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))

def in_a_thread(input, **_):
    return MelleaSession(ScriptedBackend(words("hello there"))).instruct("Greet.")

async def on_the_loop(input, **_):
    return await MelleaSession(ScriptedBackend(words("hello there"))).ainstruct("Greet.")

async def main():
    for serve in (in_a_thread, on_the_loop):
        async with serving(serve) as url:
            await post(url, {"input": "x"})
    spans = exporter.get_finished_spans()
    ours = {span.context.span_id for span in spans if span.name == "chat program"}
    below = [span.name for span in spans if span.parent and span.parent.span_id in ours]
    print(json.dumps([len(ours), sorted(set(below)), len(spans) - len(ours) - len(below)]))

asyncio.run(main())
"""


def test_what_mellea_traces_lies_below_the_response() -> None:
    pytest.importorskip("cpex", reason="Mellea traces only with its extra `telemetry`")
    environment = {**os.environ, "MELLEA_TRACES_ENABLED": "true", "PYTHONPATH": str(Path(__file__).parent)}

    done = subprocess.run(
        [sys.executable, "-c", NESTED], env=environment, capture_output=True, text=True, timeout=100, check=False
    )

    assert done.returncode == 0, done.stderr
    responses, below, elsewhere = json.loads(done.stdout.splitlines()[-1])
    assert (responses, {"action", "chat scripted"} <= set(below), elsewhere) == (2, True, 0)


async def test_the_span_lies_in_the_callers_trace(spans: InMemorySpanExporter) -> None:
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    async with serving(telling) as url:
        await ask(url, posting({"input": "x"}, traceparent=parent))
        (span,) = await finished(spans)

    assert (f"{span.context.trace_id:x}", f"{span.parent.span_id:x}" if span.parent else "") == ("ab" * 16, "cd" * 8)


# ---------------------------------------------------------------- metrics


async def test_one_streamed_one_failed_and_one_cancelled_response_are_counted_as_the_page_says() -> None:
    async with serving(telling, metrics=True) as url:
        await post(url, ASK)
        await post(url, {**ASK, "instructions": "break"})
        await post(url, {"input": 5})
        await leave(url, ASK)
        numbers = await scraped_until(url, "mellea_responses_runs_active", 0)

    listed = {row[0].strip("`"): (row[1], quoted(row[2])) for row in rows("Metrics")}
    shown = {re.sub("_(count|sum)$", "", name) for name in numbers if name.startswith(("gen_ai_", "mellea_"))}
    assert shown == set(listed)
    for name, (kind, labels) in listed.items():
        samples = numbers[f"{name}_count" if kind == "histogram" else name]
        assert all(tuple(sorted(labels)) == tuple(key for key, _ in sample) for sample in samples)
    model = (("gen_ai_operation_name", "chat"), ("gen_ai_response_model", "program"))
    assert numbers["gen_ai_server_request_duration_seconds_count"] == {
        (("error_type", end), *model): 1 for end in ("", "client_left", "server_error")
    }
    assert numbers["gen_ai_server_time_to_first_token_seconds_count"] == {model: 3}
    assert numbers["gen_ai_server_time_per_output_token_seconds_count"] == {model: 1}
    assert numbers["mellea_responses_ended_total"] == {
        (("end", end),): 1 for end in ("completed", "client_left", "server_error")
    }
    assert numbers["mellea_responses_errors_total"] == {(("status", "400"),): 1}
    assert numbers["mellea_responses_streams_disconnected_total"] == {(): 1}
    assert numbers["mellea_responses_stored_responses"] == {(): 3}
    assert numbers["mellea_responses_store_bytes"][()] > 0
    assert numbers["mellea_responses_evictions_total"] == {(("reason", "expired"),): 0, (("reason", "full"),): 0}


async def test_the_first_token_of_a_stream_has_its_own_time() -> None:
    async def slow(turn: Turn) -> AsyncIterator[str]:
        yield "soon"
        await asyncio.sleep(0.2)
        yield "late"

    async with serving(slow, metrics=True) as url:
        await post(url, ASK)
        numbers = await scraped(url)

    (first,) = numbers["gen_ai_server_time_to_first_token_seconds_sum"].values()
    (whole,) = numbers["gen_ai_server_request_duration_seconds_sum"].values()
    assert whole - first > 0.15


async def test_what_leaves_the_store_unasked_and_what_is_open_is_counted() -> None:
    async with serving(telling, metrics=True, store_max_entries=1, response_ttl=0.3) as url:
        for _ in range(3):
            await post(url, {"input": "x"})
        async with exchange(url, posting({**ASK, "instructions": "wait", "store": False})):
            assert (await scraped(url))["mellea_responses_runs_active"] == {(): 1}
            numbers = await scraped_until(url, "mellea_responses_stored_responses", 0)

    assert numbers["mellea_responses_evictions_total"] == {(("reason", "expired"),): 1, (("reason", "full"),): 2}
    assert numbers["mellea_responses_store_bytes"] == {(): 0}


async def test_the_page_of_metrics_is_there_when_asked_for_and_behind_the_key() -> None:
    async with serving(telling) as url:
        assert (await get(url, "/metrics")).status == 404
    async with serving(telling, metrics=True, api_keys=("k",)) as url:
        assert (await get(url, "/metrics")).status == 401
        opened = await ask(url, Request("GET", "/metrics", headers={"authorization": "Bearer k"}))
        assert (opened.status, opened.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")


# ---------------------------------------------------------------- off


def levels() -> Levels:
    return Levels({}, {})


def test_without_a_word_tracing_follows_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert observer(Settings(), levels) is None

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider())
    found = observer(Settings(), levels)
    assert found is not None
    assert (found.tracing is not None, found.metrics) == (True, None)
    assert observer(Settings(otel=False), levels) is None


def test_spans_that_go_nowhere_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    assert observer(Settings(otel=True), levels) is not None
    assert "tracer provider" in caplog.text


def test_off_means_that_nothing_is_imported() -> None:
    code = (
        "import sys\n"
        "from mellea_responses.http.app import create_app\n"
        "from mellea_responses.program.user import UserProgram\n"
        "app = create_app(UserProgram(lambda turn: 'x'))\n"
        "assert app.state.service.observer is None and app.tracing is None\n"
        # Litestar itself reads a name from `opentelemetry.semconv` where that is installed.
        "print({'opentelemetry.trace', 'opentelemetry.sdk', 'prometheus_client'} & set(sys.modules))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.mark.parametrize(("asked", "extra"), [({"otel": True}, "otel"), ({"metrics": True}, "metrics")])
def test_a_missing_package_is_named_with_its_extra(
    asked: Any, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(telemetry, "find_spec", lambda name: None)
    settings = Settings(**asked)

    assert missing(Settings()) is None
    with pytest.raises(ImportError, match=re.escape(f"pip install 'mellea-responses[{extra}]'")):
        build_app(telling, **asked)
    monkeypatch.setattr(server, "configure_logging", lambda: None)
    with pytest.raises(SystemExit):
        server.run(settings)
    assert f"mellea-responses[{extra}]" in capsys.readouterr().err


async def test_a_failure_to_record_is_not_the_clients(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(run: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(telemetry.Tracing, "end", lambda self, run: fails(run))
    async with serving(telling) as url:
        answer = await post(url, {"input": "x"})

    assert (answer.status, answer.json["status"], "could not be recorded" in caplog.text) == (200, "completed", True)
