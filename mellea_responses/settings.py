"""Every option of the server, in one frozen object. The command line fills it; docs/options.md explains it."""

from typing import Any, Literal

import msgspec

MIB = 2**20


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an owner can choose.

    Args:
        program: Path or `package.module:function` of a program; None serves a model without one.
        model: Hub id, folder or GGUF file for the built-in program; None is the embedded model.
        device: `auto` takes CUDA, then MPS, then the CPU.
        dtype: `auto` takes the model's own on an accelerator and float32 on the CPU.
        kv_cache: Keep finished turns' key-value caches, so that a next turn costs only its new tokens.
        kv_cache_bytes: Bytes these may take; None takes a share of what the device has.
        trust_remote_code: Run code that a model brings along; safetensors and known architectures only without it.
        host: Address to bind.
        port: Port to bind; 0 takes a free one.
        no_auth: Bind a non-loopback address without keys all the same.
        model_names: Names the server answers to; empty accepts any name.
        response_ttl: Seconds a stored response can be continued; 0 turns storing off.
        store_max_bytes: Bytes the store may hold; the oldest responses go first.
        store_max_entries: Responses the store may hold; the oldest go first.
        max_body_bytes: Bytes of a request's body.
        max_output_tokens: Limit for requests that set none; None leaves what is left of the context.
        max_output_bytes: Bytes of text a program may say in one answer.
        max_runs: Answers made at the same time; more wait in line.
        max_queued: Requests of one owner that may wait for their turn; one more is a 429.
        queue_timeout: Seconds a request may wait for its turn; then it fails as busy.
        threads: Threads for programs that are plain functions.
        exclusive: Run the program's calls one at a time.
        step_timeout: Seconds a program may stay silent; 0 waits for ever.
        run_timeout: Seconds an answer may take in all; 0 sets no limit.
        check_timeout: Seconds a program's `check()` may take.
        max_streams: Streams and WebSockets that one owner may hold open.
        max_held_bytes: Bytes of requests that may be read, wait and be answered at the same time.
        header_timeout: Seconds a connection may take until its first request's headers, or a next one's, are whole.
        body_timeout: Seconds in each of which on the average 1 KiB of an unfinished body must come.
        write_timeout: Seconds a client may read nothing of what waits for it.
        max_connections: Connections at the same time; None takes what the process may open, less a reserve.
        reasoning: `auto` shows reasoning as the client asks; `hidden` never shows it.
        unsupported_tools: What to do with hosted tools nobody here can run: leave them out, or answer 400.
        ping_seconds: Silence on a stream after which a comment keeps the connection open.
        beat_seconds: Silence after which a numbered event tells the client that the run is alive.
        drain_seconds: Seconds open answers may take to end after SIGTERM.
        log_bodies: Write requests' and answers' bodies to the log.
        otel: Make an OpenTelemetry span for each response; None does where the process has set up tracing.
        metrics: Show Prometheus metrics at `/metrics`.
        websocket: Offer WebSockets on `/v1/responses`; switched off, the upgrade is refused with 426.
        cors_origins: Origins whose pages may use this server from a browser.
        api_keys: Keys that may use this server, each `KEY` or `NAME=KEY`; none: everybody who reaches it may.
        api_key_file: File with more of them, one on each line.
        allow_remote_images: Fetch pictures that a request names by their web address, through a guard.
        seal_key: File with the key that seals reasoning and compactions; None makes one that ends with the process.
        strict_replay: Refuse sealed reasoning that cannot be opened instead of leaving it out.
    """

    program: str | None = None
    model: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    kv_cache: bool = True
    kv_cache_bytes: int | None = None
    trust_remote_code: bool = False
    host: str = "127.0.0.1"
    port: int = 8080
    no_auth: bool = False
    model_names: tuple[str, ...] = ()
    response_ttl: float = 3600
    store_max_bytes: int = 256 * MIB
    store_max_entries: int = 100_000
    max_body_bytes: int = 64 * MIB
    max_output_tokens: int | None = None
    max_output_bytes: int = 8 * MIB
    max_runs: int = 1024
    max_queued: int = 256
    queue_timeout: float = 30
    threads: int = 16
    exclusive: bool = False
    step_timeout: float = 600
    run_timeout: float = 0
    check_timeout: float = 30
    max_streams: int = 1024
    max_held_bytes: int = 512 * MIB
    header_timeout: float = 10
    body_timeout: float = 30
    write_timeout: float = 60
    max_connections: int | None = None
    reasoning: Literal["auto", "hidden"] = "auto"
    unsupported_tools: Literal["drop", "reject"] = "drop"
    ping_seconds: float = 10
    beat_seconds: float = 60
    drain_seconds: float = 1
    log_bodies: bool = False
    otel: bool | None = None
    metrics: bool = False
    websocket: bool = True
    cors_origins: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    api_key_file: str | None = None
    allow_remote_images: bool = False
    seal_key: str | None = None
    strict_replay: bool = False

    def __repr__(self) -> str:
        """What differs from the defaults. Keys are only counted: settings end up in logs and tracebacks."""
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same for rich, which draws tracebacks."""
        changed = [field.name for field in msgspec.structs.fields(self) if getattr(self, field.name) != field.default]
        return [(name, len(self.api_keys) if name == "api_keys" else getattr(self, name)) for name in changed]
