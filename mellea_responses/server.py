"""The process: loads the program, binds, says where it listens, and stops when told to.

A stop ends every open run first, so each stream gets its terminal event, and only then waits for connections. Programs
cannot be killed; the process does not wait for them.
"""

import asyncio
import atexit
import contextlib
import gc
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

import uvicorn

from mellea_responses.access import RawHandler, access
from mellea_responses.http.app import create_app
from mellea_responses.http.connections import protocols
from mellea_responses.http.keys import KeyProblem, read_entries, warnings
from mellea_responses.http.origins import OriginProblem
from mellea_responses.http.security import is_loopback
from mellea_responses.program import Program
from mellea_responses.program.load import LoadError, load_program
from mellea_responses.seal import Sealer
from mellea_responses.settings import Settings
from mellea_responses.telemetry import Name, missing

logger = logging.getLogger("mellea_responses.server")
MOST_DESCRIPTORS = 65_536  # programs that close every possible descriptor would take long over more
TURN_SECONDS = 0.0005
"""Seconds after which a program's thread that computes lets another run. Python's own 5 ms, times the threads that
wait, would hold up every answer and `/health`."""
_TOLD = (
    "ASGI callable returned without completing handshake.",
    "Invalid HTTP request received.",
    "Invalid UTF-8 sequence received from client.",
    "Unsupported upgrade request.",
)
"""What uvicorn says of clients' mistakes. They are told, and the requests among them have a line of ours."""
LAST_SECONDS = 0.3  # what is left for exit handlers before the process ends anyway


class Server(uvicorn.Server):
    """Ends every open run the moment a stop signal arrives, before connections are awaited."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], None], on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._drain, self._on_start = drain, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Tells where the server listens once it does."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        if self.started:
            # What is loaded by now stays. Looking through it again and again for what nobody needs any more would stop
            # the loop each time, with the hundred thousands of objects that a program's libraries are.
            gc.collect()
            gc.freeze()
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal drains; a second one ends the process at once."""
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._drain)


def run(settings: Settings) -> None:
    """Serves until a signal ends it.

    Raises:
        SystemExit: the program cannot be loaded or the address cannot be bound; one line says why.
    """
    configure_logging()
    sys.setswitchinterval(TURN_SECONDS)
    _check_access(settings)
    if (lack := missing(settings)) is not None:
        _refuse(lack)
    try:
        program = load(settings)
    except LoadError as exc:
        _refuse(str(exc))
    sock = _bind(settings)
    try:
        app = create_app(program, settings)
    except (OriginProblem, KeyProblem) as exc:
        _refuse(str(exc))
    spoken = protocols(settings, _descriptors())
    app.state.service.gauges[Name.CONNECTIONS] = spoken["ws"].watch.__len__
    config = uvicorn.Config(
        app,
        **spoken,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # nothing here asks where a request came from
        server_header=False,
        ws_max_size=2
        * settings.max_body_bytes,  # so that the session, not the transport, says that a frame is too large
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
    )
    address = "http://{}:{}".format(*_printable(sock))
    server = Server(config, app.state.service.drain, lambda: _banner(address, program, settings))
    try:
        server.run(sockets=[sock])
    finally:
        _leave()


def _check_access(settings: Settings) -> None:
    """Refuses to start with keys that cannot be used, or open to other machines without any."""
    try:
        entries = read_entries(settings.api_keys, settings.api_key_file)
    except KeyProblem as exc:
        _refuse(str(exc))
    if not is_loopback(settings.host) and not settings.no_auth and not entries:
        _refuse(
            f"{settings.host} can be reached from outside and nobody would need a key: "
            "add --api-key KEY, or --no-auth if you mean it."
        )
    if settings.seal_key is not None:
        try:
            Sealer.from_file(settings.seal_key)
        except (OSError, ValueError) as exc:
            _refuse(f"the seal key cannot be used: {exc}")
    for warning in warnings(entries, settings.api_key_file):
        logger.warning(warning)


def _descriptors() -> int | None:
    """How many descriptors the process may have, after asking for as many as it may ask for."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def load(settings: Settings) -> Program:
    """The program the settings name, or the built-in one over their model.

    Raises:
        LoadError: it cannot be served.
    """
    if settings.program is not None:
        return load_program(settings.program, settings)
    from mellea_responses.program.builtin import ModelProgram

    return ModelProgram.load(settings)


def configure_logging() -> None:
    """Our own lines at INFO to stderr, everybody else's from WARNING on."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(handler)
    logging.getLogger("mellea_responses").setLevel(logging.INFO)
    access.addHandler(RawHandler())
    access.propagate = False
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg not in _TOLD)


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((settings.host, settings.port))
    except OSError as exc:
        _refuse(f"cannot listen on {settings.host}:{settings.port}: {exc.strerror or exc}")
    return sock


def _printable(sock: socket.socket) -> tuple[str, int]:
    host, port = sock.getsockname()[:2]
    return (f"[{host}]" if ":" in host else host), port


def _banner(address: str, program: Program, settings: Settings) -> None:
    ttl = settings.response_ttl
    kept = f"responses are kept {ttl:g} s, up to {settings.store_max_bytes // 2**20} MiB" if ttl else "nothing is kept"
    lines = [
        f"mellea-responses: {getattr(program, 'description', program.name)}",
        f"  listening on {address}/v1 ({kept})",
        f"  {_try_it(address, settings)}",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _try_it(address: str, settings: Settings) -> str:
    """A command that works on this machine, but for the key."""
    here = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    key = "-H 'authorization: Bearer KEY' " if read_entries(settings.api_keys, settings.api_key_file) else ""
    body = '{"input": "Say hello."}'
    return f"curl {here}/v1/responses {key}-H 'content-type: application/json' -d '{body}'"


def _refuse(reason: str) -> NoReturn:
    print(f"mellea-responses: {reason}", file=sys.stderr)
    raise SystemExit(1)


def _leave() -> None:
    """Programs' threads may never end, and taking a large heap apart takes seconds: exit handlers, then out."""
    timer = threading.Timer(LAST_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
