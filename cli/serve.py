"""`mellea-responses serve`: every field of `Settings` as an option and an environment variable."""

from typing import Annotated, Any, Literal

import typer

from mellea_responses.cli.values import read_size, seconds, show_size
from mellea_responses.settings import Settings

DEFAULT = Settings()

MODEL = "Model"
ADDRESS = "Address"
STORE = "Store"
LIMITS = "Limits"
PROTOCOL = "Protocol"
STREAMS = "Streams and stopping"
LOG = "Log and telemetry"

EXAMPLES = """
Examples:

`mellea-responses serve` — the embedded model

`mellea-responses serve my_program.py --response-ttl 600` — the function `serve` of a file

`mellea-responses serve package.module:function --port 9000` — a function of an installed package

`mellea-responses serve --model ./model.gguf --device cpu` — a model without a program
"""


def _envvar(field: str) -> str:
    return f"MELLEA_RESPONSES_{field.upper()}"


def _option(field: str, *names: str, panel: str, help: str, **more: Any) -> Any:
    # The variables follow one rule that the command's own help states once; repeated, they drown the page.
    return typer.Option(*names, envvar=_envvar(field), show_envvar=False, rich_help_panel=panel, help=help, **more)


def _flag(field: str, name: str, *, panel: str, help: str) -> Any:
    return _option(field, name, panel=panel, help=help, show_default=False)


def _seconds(field: str, *, panel: str, help: str, minimum: float = 0) -> Any:
    default = f"{getattr(DEFAULT, field):g}"
    return _option(field, panel=panel, help=help, parser=seconds(minimum), metavar="SECONDS", show_default=default)


def _bytes(field: str, *, panel: str, help: str) -> Any:
    default = show_size(getattr(DEFAULT, field))
    return _option(field, panel=panel, help=help, parser=read_size, metavar="SIZE", show_default=default)


def serve(
    program: Annotated[
        str | None,
        typer.Argument(
            envvar=_envvar("program"),
            metavar="PROGRAM",
            show_envvar=False,
            show_default=False,
            help="A Python file that defines `serve()`, or `package.module:function`. "
            "Without it a model is served on its own.",
        ),
    ] = DEFAULT.program,
    model: Annotated[
        str | None,
        _option(
            "model",
            panel=MODEL,
            metavar="ID_OR_PATH",
            show_default="the embedded model",
            help="What to serve without a program: a Hugging Face id, a folder, or a GGUF file.",
        ),
    ] = DEFAULT.model,
    device: Annotated[
        str,
        _option(
            "device",
            panel=MODEL,
            metavar="DEVICE",
            help="Where the model runs: `cpu`, `cuda`, `cuda:1`, `mps`; `auto` takes the first of CUDA, MPS and CPU "
            "that is there.",
        ),
    ] = DEFAULT.device,
    dtype: Annotated[
        str,
        _option(
            "dtype",
            panel=MODEL,
            metavar="DTYPE",
            help="Number format of the weights, as torch names it (`float32`, `bfloat16`, `float16`); `auto` takes the "
            "model's own on an accelerator and `float32` on the CPU.",
        ),
    ] = DEFAULT.dtype,
    kv_cache: Annotated[
        bool,
        _option(
            "kv_cache",
            "--kv-cache/--no-kv-cache",
            panel=MODEL,
            help="Keep the key-value caches of finished turns, so that the next turn of a conversation costs only its "
            "new tokens. Switched off, every turn is computed anew.",
        ),
    ] = DEFAULT.kv_cache,
    kv_cache_bytes: Annotated[
        int | None,
        _option(
            "kv_cache_bytes",
            panel=MODEL,
            parser=read_size,
            metavar="SIZE",
            show_default="a share of the device's memory",
            help="Memory that these caches may take; the ones unused for longest go first.",
        ),
    ] = DEFAULT.kv_cache_bytes,
    trust_remote_code: Annotated[
        bool,
        _flag(
            "trust_remote_code",
            "--trust-remote-code",
            panel=MODEL,
            help="Run Python code that the model brings along, and read weights that are pickles. Without it only "
            "architectures that transformers knows, and safetensors.",
        ),
    ] = DEFAULT.trust_remote_code,
    host: Annotated[str, _option("host", panel=ADDRESS, metavar="HOST", help="Address to listen on.")] = DEFAULT.host,
    port: Annotated[
        int,
        _option("port", panel=ADDRESS, metavar="PORT", min=0, max=65535, help="Port to listen on; 0 takes a free one."),
    ] = DEFAULT.port,
    no_auth: Annotated[
        bool,
        _flag(
            "no_auth",
            "--no-auth",
            panel=ADDRESS,
            help="Listen on an address that other machines reach although nobody is asked for a key.",
        ),
    ] = DEFAULT.no_auth,
    model_names: Annotated[
        list[str] | None,
        _option(
            "model_names",
            "--model-name",
            panel=PROTOCOL,
            metavar="NAME",
            show_default="any name",
            help="A name clients may ask for; repeat it for several. Any other name is then a 404. The variable is "
            "`MELLEA_RESPONSES_MODEL_NAMES`, with spaces between the names.",
        ),
    ] = None,
    response_ttl: Annotated[
        float,
        _seconds(
            "response_ttl",
            panel=STORE,
            help="How long a response can be continued and retrieved; 0 turns storing off.",
        ),
    ] = DEFAULT.response_ttl,
    store_max_bytes: Annotated[
        int, _bytes("store_max_bytes", panel=STORE, help="What the store may hold; the oldest responses go first.")
    ] = DEFAULT.store_max_bytes,
    store_max_entries: Annotated[
        int,
        _option(
            "store_max_entries",
            panel=STORE,
            metavar="N",
            min=1,
            help="Responses the store may hold; the oldest go first.",
        ),
    ] = DEFAULT.store_max_entries,
    max_body_bytes: Annotated[
        int, _bytes("max_body_bytes", panel=LIMITS, help="Largest body of a request; a larger one is a 413.")
    ] = DEFAULT.max_body_bytes,
    max_output_tokens: Annotated[
        int | None,
        _option(
            "max_output_tokens",
            panel=LIMITS,
            metavar="N",
            min=1,
            show_default="what is left of the context",
            help="Limit of a served model for requests that set no `max_output_tokens`; an answer that reaches it is "
            "`incomplete`.",
        ),
    ] = DEFAULT.max_output_tokens,
    max_output_bytes: Annotated[
        int,
        _bytes(
            "max_output_bytes",
            panel=LIMITS,
            help="Text a program may say in one answer; what reaches it is `incomplete`.",
        ),
    ] = DEFAULT.max_output_bytes,
    max_runs: Annotated[
        int,
        _option(
            "max_runs",
            panel=LIMITS,
            metavar="N",
            min=1,
            help="Answers made at the same time; further requests wait in a line that is fair between keys.",
        ),
    ] = DEFAULT.max_runs,
    max_queued: Annotated[
        int,
        _option(
            "max_queued",
            panel=LIMITS,
            metavar="N",
            min=0,
            help="Requests of one key that may wait for their turn; one more is a 429. 0 lets none wait.",
        ),
    ] = DEFAULT.max_queued,
    queue_timeout: Annotated[
        float,
        _seconds(
            "queue_timeout",
            panel=LIMITS,
            minimum=0.1,
            help="How long a request may wait for its turn before it is a 429, or in a stream that has begun the "
            "code `server_busy`.",
        ),
    ] = DEFAULT.queue_timeout,
    threads: Annotated[
        int,
        _option(
            "threads",
            panel=LIMITS,
            metavar="N",
            min=1,
            help="Threads for programs that are plain functions, and so the most answers they give at the same time. "
            "A call that never returns keeps its thread; when all do, the answer is 429.",
        ),
    ] = DEFAULT.threads,
    exclusive: Annotated[
        bool,
        _flag(
            "exclusive",
            "--exclusive",
            panel=LIMITS,
            help="Run the program's calls one at a time, for programs that are not safe to run beside themselves.",
        ),
    ] = DEFAULT.exclusive,
    step_timeout: Annotated[
        float,
        _seconds(
            "step_timeout",
            panel=LIMITS,
            help="How long a program may say nothing before its answer fails with code `timeout`; 0 waits for ever.",
        ),
    ] = DEFAULT.step_timeout,
    run_timeout: Annotated[
        float,
        _seconds(
            "run_timeout",
            panel=LIMITS,
            help="How long an answer may take in all before it fails with code `timeout`; 0 sets no limit.",
        ),
    ] = DEFAULT.run_timeout,
    check_timeout: Annotated[
        float,
        _seconds(
            "check_timeout",
            panel=LIMITS,
            minimum=0.1,
            help="How long a program's `check()` may take before its request is refused.",
        ),
    ] = DEFAULT.check_timeout,
    max_streams: Annotated[
        int,
        _option(
            "max_streams",
            panel=LIMITS,
            metavar="N",
            min=1,
            help="Streams and WebSockets that one key may hold open; one more is a 429, or a refused upgrade.",
        ),
    ] = DEFAULT.max_streams,
    max_held_bytes: Annotated[
        int,
        _bytes(
            "max_held_bytes",
            panel=LIMITS,
            help="Bytes of requests that are read, wait or are answered at the same time. No key may hold more than is "
            "left free; what does not fit is a 429.",
        ),
    ] = DEFAULT.max_held_bytes,
    header_timeout: Annotated[
        float,
        _seconds(
            "header_timeout",
            panel=LIMITS,
            minimum=0.1,
            help="How long a connection may take until a request's headers are whole before it is closed.",
        ),
    ] = DEFAULT.header_timeout,
    body_timeout: Annotated[
        float,
        _seconds(
            "body_timeout",
            panel=LIMITS,
            minimum=0.1,
            help="How long a body may come with less than 1 KiB a second before the request is a 408.",
        ),
    ] = DEFAULT.body_timeout,
    write_timeout: Annotated[
        float,
        _seconds(
            "write_timeout",
            panel=LIMITS,
            minimum=0.1,
            help="How long a client may read nothing of what waits for it before its connection is closed.",
        ),
    ] = DEFAULT.write_timeout,
    max_connections: Annotated[
        int | None,
        _option(
            "max_connections",
            panel=LIMITS,
            metavar="N",
            min=1,
            show_default="what the process may open, less a reserve",
            help="Connections at the same time. One more takes the place of the oldest that has sent no request yet, "
            "or is refused.",
        ),
    ] = DEFAULT.max_connections,
    reasoning: Annotated[
        Literal["auto", "hidden"],
        _option(
            "reasoning",
            panel=PROTOCOL,
            metavar="auto|hidden",
            help="`auto` shows reasoning in the form the client asks for; `hidden` never shows it.",
        ),
    ] = DEFAULT.reasoning,
    unsupported_tools: Annotated[
        Literal["drop", "reject"],
        _option(
            "unsupported_tools",
            panel=PROTOCOL,
            metavar="drop|reject",
            help="Hosted tools that nobody here can run: `drop` leaves them out and names them in the header "
            "`x-mellea-unsupported-tools`; `reject` makes each a 400.",
        ),
    ] = DEFAULT.unsupported_tools,
    ping_seconds: Annotated[
        float,
        _seconds(
            "ping_seconds",
            panel=STREAMS,
            minimum=0.1,
            help="Silence on a stream after which a comment keeps the connection open; at least 0.1.",
        ),
    ] = DEFAULT.ping_seconds,
    beat_seconds: Annotated[
        float,
        _seconds(
            "beat_seconds",
            panel=STREAMS,
            help="Silence after which a `response.in_progress` event tells the client that the answer is alive; 0 "
            "sends none.",
        ),
    ] = DEFAULT.beat_seconds,
    drain_seconds: Annotated[
        float,
        _seconds(
            "drain_seconds",
            panel=STREAMS,
            minimum=1,
            help="How long connections may take to close after SIGTERM, in whole seconds from 1 on; every open answer "
            "is ended at once.",
        ),
    ] = DEFAULT.drain_seconds,
    api_keys: Annotated[
        list[str] | None,
        _option(
            "api_keys",
            "--api-key",
            panel=ADDRESS,
            metavar="KEY",
            show_default="none",
            help="A key that may use the server, or `NAME=KEY`; repeatable. Each name sees only its own responses, and "
            "so does each key without one. Without any, everybody who reaches the address may use it.",
        ),
    ] = None,
    api_key_file: Annotated[
        str | None,
        _option(
            "api_key_file",
            panel=ADDRESS,
            metavar="FILE",
            show_default="none",
            help="File with more of these, one on each line; `#` begins a comment. Unlike options, it is not in the "
            "machine's list of processes.",
        ),
    ] = DEFAULT.api_key_file,
    cors_origins: Annotated[
        list[str] | None,
        _option(
            "cors_origins",
            "--cors-origin",
            panel=ADDRESS,
            metavar="ORIGIN",
            show_default="none",
            help="An origin whose pages may use the server from a browser, such as `https://app.example`; repeatable.",
        ),
    ] = None,
    websocket: Annotated[
        bool,
        _option(
            "websocket",
            "--websocket/--no-websocket",
            panel=PROTOCOL,
            help="Offer WebSockets on `/v1/responses`. Switched off, the upgrade is refused with 426, which makes "
            "clients change to HTTP.",
        ),
    ] = DEFAULT.websocket,
    allow_remote_images: Annotated[
        bool,
        _flag(
            "allow_remote_images",
            "--allow-remote-images",
            panel=PROTOCOL,
            help="Fetch images that requests name by http and https addresses, from public hosts only. Without it such "
            "an image is a 400.",
        ),
    ] = DEFAULT.allow_remote_images,
    seal_key: Annotated[
        str | None,
        _option(
            "seal_key",
            panel=PROTOCOL,
            metavar="FILE",
            show_default="a fresh key",
            help="File with the key that seals reasoning and compactions: 64 hex digits or 32 bytes. A fresh key ends "
            "with the process, and what it sealed with it.",
        ),
    ] = DEFAULT.seal_key,
    strict_replay: Annotated[
        bool,
        _flag(
            "strict_replay",
            "--strict-replay",
            panel=PROTOCOL,
            help="Answer 400 to sealed reasoning that cannot be opened. Without it such reasoning is left out.",
        ),
    ] = DEFAULT.strict_replay,
    log_bodies: Annotated[
        bool,
        _flag("log_bodies", "--log-bodies", panel=LOG, help="Write the bodies of requests and answers to the log."),
    ] = DEFAULT.log_bodies,
    otel: Annotated[
        bool | None,
        _option(
            "otel",
            "--otel/--no-otel",
            panel=LOG,
            show_default="on where the process has set up tracing",
            help="Make an OpenTelemetry span for each response, with the spans of the program below it. Needs "
            "`mellea-responses[otel]`.",
        ),
    ] = DEFAULT.otel,
    metrics: Annotated[
        bool,
        _flag(
            "metrics",
            "--metrics",
            panel=LOG,
            help="Show Prometheus metrics at `/metrics`, which needs a key where the other routes do. Needs "
            "`mellea-responses[metrics]`.",
        ),
    ] = DEFAULT.metrics,
) -> None:
    """Serve a program, or a model on its own, at `/v1/responses`.

    Every option is also an environment variable, `--response-ttl` for example `MELLEA_RESPONSES_RESPONSE_TTL`; the
    command line wins.
    """
    if program is not None and model is not None:
        raise typer.BadParameter("a program chooses its own model; give PROGRAM or --model, not both")
    settings = Settings(
        program=program,
        model=model,
        device=device,
        dtype=dtype,
        kv_cache=kv_cache,
        kv_cache_bytes=kv_cache_bytes,
        trust_remote_code=trust_remote_code,
        host=host,
        port=port,
        no_auth=no_auth,
        model_names=tuple(model_names or ()),
        response_ttl=response_ttl,
        store_max_bytes=store_max_bytes,
        store_max_entries=store_max_entries,
        max_body_bytes=max_body_bytes,
        max_output_tokens=max_output_tokens,
        max_output_bytes=max_output_bytes,
        max_runs=max_runs,
        max_queued=max_queued,
        queue_timeout=queue_timeout,
        threads=threads,
        exclusive=exclusive,
        step_timeout=step_timeout,
        run_timeout=run_timeout,
        check_timeout=check_timeout,
        max_streams=max_streams,
        max_held_bytes=max_held_bytes,
        header_timeout=header_timeout,
        body_timeout=body_timeout,
        write_timeout=write_timeout,
        max_connections=max_connections,
        reasoning=reasoning,
        unsupported_tools=unsupported_tools,
        ping_seconds=ping_seconds,
        beat_seconds=beat_seconds,
        drain_seconds=drain_seconds,
        log_bodies=log_bodies,
        otel=otel,
        metrics=metrics,
        websocket=websocket,
        cors_origins=tuple(cors_origins or ()),
        api_keys=tuple(api_keys or ()),
        api_key_file=api_key_file,
        allow_remote_images=allow_remote_images,
        seal_key=seal_key,
        strict_replay=strict_replay,
    )
    # The server, and with it Litestar, Mellea or torch, loads only when something is really served.
    from mellea_responses.server import run

    run(settings)
