"""What operators see: one OpenTelemetry span per response around its program, and Prometheus metrics.

Both are off unless asked for, and then neither library is even imported. No content is recorded: names, counts and
times only. docs/telemetry.md explains every name.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from mellea_responses import __version__
from mellea_responses.runs import Run
from mellea_responses.settings import Settings
from mellea_responses.wire.items import is_call

if TYPE_CHECKING:
    from opentelemetry.trace import Span

logger = logging.getLogger("mellea_responses.telemetry")

OPERATION = "chat"
MEDIA_TYPE = "text/plain; version=0.0.4"  # the form that every Prometheus reads; the framework adds the charset


class Name(StrEnum):
    """Every name that leaves. The GenAI conventions are in development: when they move, this table moves."""

    # Attributes of the span `chat {model}`.
    OPERATION_NAME = "gen_ai.operation.name"
    REQUEST_MODEL = "gen_ai.request.model"
    REQUEST_STREAM = "gen_ai.request.stream"
    REASONING_LEVEL = "gen_ai.request.reasoning.level"
    PREVIOUS_ID = "gen_ai.request.previous_response.id"
    CONVERSATION_ID = "gen_ai.conversation.id"
    RESPONSE_ID = "gen_ai.response.id"
    RESPONSE_MODEL = "gen_ai.response.model"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
    ESTIMATED = "mellea_responses.usage.estimated"
    ERROR_TYPE = "error.type"

    # Metrics; those of the conventions as OpenTelemetry spells them for Prometheus.
    DURATION = "gen_ai_server_request_duration_seconds"
    FIRST_TOKEN = "gen_ai_server_time_to_first_token_seconds"
    PER_TOKEN = "gen_ai_server_time_per_output_token_seconds"
    ENDED = "mellea_responses_ended_total"
    ERRORS = "mellea_responses_errors_total"
    DISCONNECTED = "mellea_responses_streams_disconnected_total"
    EVICTED = "mellea_responses_evictions_total"
    RUNS = "mellea_responses_runs_active"
    WAITING = "mellea_responses_runs_waiting"
    STREAMS = "mellea_responses_streams_open"
    CONNECTIONS = "mellea_responses_connections"
    HELD_BYTES = "mellea_responses_request_bytes"
    TASKS = "mellea_responses_tasks"
    THREADS = "mellea_responses_threads"
    STORED = "mellea_responses_stored_responses"
    LIVE_CALLS = "mellea_responses_live_calls"
    STORE_BYTES = "mellea_responses_store_bytes"

    # Labels of metrics.
    OPERATION_LABEL = "gen_ai_operation_name"
    MODEL_LABEL = "gen_ai_response_model"
    ERROR_LABEL = "error_type"
    END_LABEL = "end"
    REASON_LABEL = "reason"
    STATUS_LABEL = "status"


# The buckets that the conventions advise, in seconds.
DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_TOKEN_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
PER_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)


class Levels(NamedTuple):
    """How full the server is.

    Args:
        gauges: What is there now, by name.
        evicted: Responses that left the store unasked, by reason.
    """

    gauges: Mapping[Name, float]
    evicted: Mapping[str, int]


class Observer:
    """What the service tells of each run: that it starts, and that it is over.

    Args:
        tracing: Makes spans.
        metrics: Counts.
    """

    def __init__(self, tracing: "Tracing | None", metrics: "Metrics | None") -> None:
        self.tracing, self.metrics = tracing, metrics

    @contextmanager
    def starting(self, run: Run) -> Iterator[None]:
        """What begins inside has the run's span as its current one, in whatever thread or loop it goes on."""
        if self.tracing is None or not _is_work(run):
            yield
        else:
            with self.tracing.span(run):
                yield

    def settled(self, run: Run) -> None:
        """The run is over. A failure here is never the client's."""
        if not _is_work(run):
            return
        try:
            if self.tracing is not None:
                self.tracing.end(run)
            if self.metrics is not None:
                self.metrics.count(run)
        except Exception:
            logger.exception("%s could not be recorded", run.id)

    def refused(self, status: int) -> None:
        """A request was answered with an error."""
        if self.metrics is not None:
            self.metrics.refused(status)


def observer(settings: Settings, levels: Callable[[], Levels]) -> Observer | None:
    """The observer that the settings ask for; None when nobody wants to know.

    Raises:
        ImportError: what is asked for needs a package that is not installed.
    """
    lack = missing(settings)
    if lack:
        raise ImportError(lack)
    traced = _is_traced() if settings.otel is None else settings.otel
    if not traced and not settings.metrics:
        return None
    return Observer(Tracing() if traced else None, Metrics(levels) if settings.metrics else None)


def missing(settings: Settings) -> str | None:
    """What to install for what the settings ask for, if it is not there."""
    if settings.otel and find_spec("opentelemetry") is None:
        return "--otel needs OpenTelemetry: pip install 'mellea-responses[otel]'"
    if settings.metrics and find_spec("prometheus_client") is None:
        return "--metrics needs prometheus-client: pip install 'mellea-responses[metrics]'"
    return None


def _is_traced() -> bool:
    """Whether somebody set up tracing, which cannot be without an import of it."""
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _is_work(run: Run) -> bool:
    """Whether anything is generated; a request that only wants to be remembered takes no time worth a number."""
    return run.turn.request.generate is not False


def end_of(run: Run) -> str:
    """Why a run ended, in one word: `completed`, a limit, an error's code, or who ended it."""
    return run.cause.replace(" ", "_")


def _error_of(run: Run) -> str | None:
    return end_of(run) if run.response.status in ("failed", "cancelled") else None


# ---------------------------------------------------------------- spans


class Tracing:
    """One span per response, in the tracer provider that the process has set up."""

    def __init__(self) -> None:
        from opentelemetry import context, propagate, trace

        self._context, self._propagate, self._trace = context, propagate, trace
        self._tracer = trace.get_tracer("mellea_responses", __version__)
        self._spans: dict[str, Span] = {}
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            logger.warning("--otel: spans go nowhere before a tracer provider is set up; see docs/telemetry.md")

    @contextmanager
    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        """What begins inside belongs to the caller's trace, unless somebody has opened a span for the request."""
        if self._trace.get_current_span().get_span_context().is_valid:
            yield
            return
        carrier = {key.decode("latin-1"): value.decode("latin-1") for key, value in headers}
        token = self._context.attach(self._propagate.extract(carrier))
        try:
            yield
        finally:
            self._context.detach(token)

    @contextmanager
    def span(self, run: Run) -> Iterator[None]:
        """Begins the run's span and makes it the current one."""
        attributes = dict(_asked(run))
        span = self._tracer.start_span(f"{OPERATION} {attributes[Name.REQUEST_MODEL]}", attributes=attributes)
        self._spans[run.id] = span
        with self._trace.use_span(span):
            yield

    def end(self, run: Run) -> None:
        """Ends it with what came out."""
        span = self._spans.pop(run.id)
        try:
            span.set_attributes(dict(_answered(run)))
            if (error := _error_of(run)) is not None:
                span.set_status(self._trace.StatusCode.ERROR, error)
        finally:
            span.end()


def _asked(run: Run) -> Iterator[tuple[str, Any]]:
    request, response = run.turn.request, run.response
    yield Name.OPERATION_NAME, OPERATION
    yield Name.REQUEST_MODEL, request.model or response.model
    yield Name.REQUEST_STREAM, bool(request.stream)
    yield Name.RESPONSE_ID, run.id
    yield Name.RESPONSE_MODEL, response.model
    if run.turn.options.effort is not None:
        yield Name.REASONING_LEVEL, run.turn.options.effort
    if request.previous_response_id is not None:
        yield Name.PREVIOUS_ID, request.previous_response_id
    if run.turn.conversation is not None:
        yield Name.CONVERSATION_ID, run.turn.conversation


def _answered(run: Run) -> Iterator[tuple[str, Any]]:
    usage, error = run.response.usage, _error_of(run)
    if error is None:
        yield Name.FINISH_REASONS, (_finish_reason(run),)
    else:
        yield Name.ERROR_TYPE, error
    if usage is not None:
        yield Name.INPUT_TOKENS, usage.input_tokens
        yield Name.OUTPUT_TOKENS, usage.output_tokens
        yield Name.CACHED_TOKENS, usage.input_tokens_details.cached_tokens
        yield Name.REASONING_TOKENS, usage.output_tokens_details.reasoning_tokens
    if _is_estimated(run):
        yield Name.ESTIMATED, True


def _finish_reason(run: Run) -> str:
    details = run.response.incomplete_details
    if details is not None:
        return "length" if details.reason == "max_output_tokens" else details.reason
    return "tool_calls" if any(is_call(item) for item in run.response.output) else "stop"


def _is_estimated(run: Run) -> bool:
    return run.current.notes.get("usage") == "estimated"


# ---------------------------------------------------------------- metrics


class Metrics:
    """Counts what the page at `/metrics` shows.

    Args:
        levels: Looks how full the server is.
    """

    def __init__(self, levels: Callable[[], Levels]) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram

        self._registry = own = CollectorRegistry()  # of this server: a process may hold several
        of_model = (Name.OPERATION_LABEL, Name.MODEL_LABEL)
        self._duration = Histogram(
            Name.DURATION,
            "From the start of a response to its end.",
            (*of_model, Name.ERROR_LABEL),
            buckets=DURATION_BUCKETS,
            registry=own,
        )
        self._first = Histogram(
            Name.FIRST_TOKEN,
            "From the start of a response to the first thing it says.",
            of_model,
            buckets=FIRST_TOKEN_BUCKETS,
            registry=own,
        )
        self._per_token = Histogram(
            Name.PER_TOKEN,
            "Between one output token and the next.",
            of_model,
            buckets=PER_TOKEN_BUCKETS,
            registry=own,
        )
        self._ended = Counter(Name.ENDED, "Responses by why they ended.", (Name.END_LABEL,), registry=own)
        self._errors = Counter(Name.ERRORS, "Requests answered with an error.", (Name.STATUS_LABEL,), registry=own)
        self._disconnected = Counter(Name.DISCONNECTED, "Streams that ended because their reader left.", registry=own)
        own.register(_LevelCollector(levels))

    def count(self, run: Run) -> None:
        """Takes in a run that is over."""
        seconds = time.monotonic() - run.started
        labels = (OPERATION, run.response.model)
        self._duration.labels(*labels, _error_of(run) or "").observe(seconds)
        self._ended.labels(end_of(run)).inc()
        if run.first is not None:
            self._first.labels(*labels).observe(run.first)
            usage = run.response.usage
            if usage is not None and usage.output_tokens > 1 and not _error_of(run) and not _is_estimated(run):
                self._per_token.labels(*labels).observe((seconds - run.first) / (usage.output_tokens - 1))
        if run.cause == "client left" and run.turn.request.stream:
            self._disconnected.inc()

    def refused(self, status: int) -> None:
        """Takes in a request that was answered with an error."""
        self._errors.labels(str(status)).inc()

    def page(self) -> tuple[bytes, str]:
        """Everything in Prometheus' text form, and its media type.

        What others in this process count is there, too, such as Mellea with `MELLEA_METRICS_PROMETHEUS`.
        """
        from prometheus_client import REGISTRY, generate_latest

        return generate_latest(self._registry) + generate_latest(REGISTRY), MEDIA_TYPE


class _LevelCollector:
    """Looks at the server when somebody reads the page, so that keeping levels costs nothing in between."""

    def __init__(self, levels: Callable[[], Levels]) -> None:
        self._levels = levels

    def collect(self) -> Iterator[Any]:
        """Every level as a family of its own."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        gauges, evicted = self._levels()
        for name, value in gauges.items():
            yield GaugeMetricFamily(name, _GAUGES[name], value)
        family = CounterMetricFamily(
            Name.EVICTED, "Responses that left the store unasked.", labels=(Name.REASON_LABEL,)
        )
        for reason, count in evicted.items():
            family.add_metric((reason,), count)
        yield family


_GAUGES = {
    Name.RUNS: "Responses being made.",
    Name.WAITING: "Responses that wait for their turn.",
    Name.STREAMS: "Streams and WebSockets that are open.",
    Name.CONNECTIONS: "Connections of clients.",
    Name.HELD_BYTES: "Bytes of requests that are being read or answered.",
    Name.TASKS: "Tasks on the loop that serves HTTP.",
    Name.THREADS: "Threads of the process.",
    Name.STORED: "Responses in the store.",
    Name.LIVE_CALLS: "Calls whose outputs may still come.",
    Name.STORE_BYTES: "What the store holds, in bytes.",
}
