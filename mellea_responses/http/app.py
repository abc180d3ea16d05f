"""The application: routes, one error handler, and the service behind them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.di import Provide

from mellea_responses.http import chat, conversations, models, responses
from mellea_responses.http.errors import handle
from mellea_responses.http.security import doors
from mellea_responses.http.websocket import responses_socket
from mellea_responses.program import Program
from mellea_responses.service import Service
from mellea_responses.settings import Settings
from mellea_responses.store import Store


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

    app = Litestar(
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
        ],
        dependencies={"service": Provide(lambda: service, sync_to_thread=False)},
        exception_handlers={Exception: handle},
        middleware=[doors(settings)],
        cors_config=CORSConfig(allow_origins=list(settings.cors_origins)) if settings.cors_origins else None,
        lifespan=[lifespan],
        request_max_body_size=settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    app.state.service = service
    return app
