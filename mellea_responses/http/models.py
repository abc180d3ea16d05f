"""Models, health, metrics and the API's own description."""

from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from mellea_responses.errors import Draining
from mellea_responses.http.openapi import document
from mellea_responses.http.paths import paths
from mellea_responses.service import Service

_encode = msgspec.json.Encoder().encode


def _json(value: Any) -> Response[bytes]:
    return Response(_encode(value), media_type="application/json")


@get(paths("/models"), name="list_models")
async def models(service: NamedDependency[Service]) -> Response[bytes]:
    """Every name the server answers to."""
    return _json(service.models())


@get(paths("/models/{model:path}"), name="get_model")
async def model(model: FromPath[str], service: NamedDependency[Service]) -> Response[bytes]:
    """One of them; hub names hold a slash."""
    return _json(service.model(model.removeprefix("/")))


@get("/health", name="health")
async def health() -> Response[bytes]:
    """Alive: the loop that serves HTTP turns."""
    return _json({"status": "pass"})


@get("/ready", name="ready")
async def ready(service: NamedDependency[Service]) -> Response[bytes]:
    """Ready: the program is loaded and new requests are taken."""
    if service.draining or not service.ready:
        raise Draining("The server is not ready.")
    return _json({"status": "ready", "model": service.program.name})


@get("/metrics", name="metrics")
async def metrics(service: NamedDependency[Service]) -> Response[bytes]:
    """What Prometheus collects. Registered only when asked for."""
    assert service.observer is not None
    assert service.observer.metrics is not None
    page, media_type = service.observer.metrics.page()
    return Response(page, media_type=media_type)


@get("/openapi.json", name="openapi")
async def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """This API's own description, made from the types it decodes and encodes."""
    return Response(document(), media_type="application/json")
