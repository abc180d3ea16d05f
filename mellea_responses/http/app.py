"""The application: routes, one error handler, and the service behind them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar
from litestar._asgi.routing_trie import traversal
from litestar.di import Provide
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin

from mellea_responses.errors import ApiError, NotFound
from mellea_responses.http import chat, conversations, models, responses
from mellea_responses.http.create import CREATE_PATHS, CreateRoute
from mellea_responses.http.errors import handle
from mellea_responses.http.holds import Holds
from mellea_responses.http.security import Doors, Judge
from mellea_responses.http.websocket import responses_socket
from mellea_responses.program import Program
from mellea_responses.service import Service
from mellea_responses.settings import Settings
from mellea_responses.store import Store
from mellea_responses.telemetry import Name, Tracing


class Application(Litestar):
    """Litestar behind the doors, with the shortest way to the one route that every turn takes."""

    creation: CreateRoute
    doors: Doors
    holds: Holds
    tracing: Tracing | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One connection."""
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
        elif self.tracing is None:
            await self.doors(scope, receive, send)
        else:
            with self.tracing.caller(scope["headers"]):
                await self.doors(scope, receive, send)

    async def inside(self, scope: Any, receive: Any, send: Any) -> None:
        """One connection that may enter."""
        if scope["type"] == "http" and scope["method"] == "HEAD":  # the server sends no body; and nothing is streamed
            scope = {**scope, "method": "GET", "query_string": b""}
        hold = scope["state"]["hold"] = self.holds.enter(scope["state"]["owner"])
        try:
            if scope["type"] == "websocket":
                try:
                    if scope["path"].rstrip("/") not in CREATE_PATHS:
                        raise NotFound(f"There is no WebSocket at {scope['path'][:200]}.", code="route_not_found")
                    hold.stream()
                except ApiError as error:
                    await self.doors.refuse(scope, send, error)
                else:
                    await super().__call__(scope, receive, send)
            elif scope["method"] == "POST" and scope["path"] in CREATE_PATHS:
                await self.creation.answer(scope, receive, send)
            else:
                await super().__call__(scope, hold.counting(receive), send)
        finally:
            hold.release()

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        """Without those for pydantic and attrs, whose libraries would cost nine megabytes and serve nothing here."""
        return [*plugins, MsgspecDIPlugin()]


def _forget_paths(app: Litestar) -> None:
    """Takes its memory of paths from the framework's router.

    They hold ids, and whoever asks for what another has asked for would be answered sooner.
    """
    router: Any = app.asgi_router
    router.handle_routing = router._handle_routing
    parser: Any = traversal.parse_path_params
    traversal.parse_path_params = getattr(parser, "__wrapped__", parser)


def create_app(program: Program, settings: Settings | None = None, store: Store | None = None) -> Litestar:
    """The ASGI application that serves `program`.

    Args:
        program: What answers.
        settings: Every option; the defaults if left out.
        store: Where finished responses live; memory if left out.
    """
    settings = settings or Settings()
    service = Service(program, settings, store)

    @asynccontextmanager
    async def lifespan(_app: Litestar) -> AsyncIterator[None]:
        await service.open()
        try:
            yield
        finally:
            await service.close()

    creation = CreateRoute(service)
    app = Application(
        [
            responses.create,
            responses.compact,
            responses.input_tokens,
            responses.retrieve,
            responses.cancel,
            responses.remove,
            responses.input_items,
            responses_socket,
            chat.create,
            *conversations.ROUTES,
            models.models,
            models.model,
            models.health,
            models.ready,
            models.openapi,
            *([models.metrics] if settings.metrics else []),
        ],
        dependencies={
            "service": Provide(lambda: service, sync_to_thread=False),
            "creation": Provide(lambda: creation, sync_to_thread=False),
        },
        exception_handlers={Exception: handle},
        lifespan=[lifespan],
        request_max_body_size=settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    _forget_paths(app)
    app.state.service = service
    app.tracing = service.observer.tracing if service.observer is not None else None
    # Two bodies of the largest size always fit: a client may have half of what there is.
    app.holds = Holds(max(settings.max_held_bytes, 2 * settings.max_body_bytes), settings.max_streams)
    service.gauges |= {
        Name.STREAMS: lambda: app.holds.streams,
        Name.HELD_BYTES: lambda: app.holds.bytes,
        Name.TASKS: lambda: len(asyncio.all_tasks()),
        Name.THREADS: threading.active_count,
    }
    app.creation, app.doors = creation, Doors(app.inside, Judge(settings), service.refused)
    return app
