"""The routes of `/v1/responses`. Each also answers without `/v1`."""

from typing import Any

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, RawBody
from litestar.response import Stream
from litestar.types import ASGIApp

from mellea_responses.http import sse
from mellea_responses.http.body import json_body
from mellea_responses.http.create import CreateRoute, result_unless_gone, unless_gone
from mellea_responses.http.errors import REQUEST_ID, request_id
from mellea_responses.http.holds import hold_of
from mellea_responses.http.paths import paths
from mellea_responses.http.query import flag, number, one_of
from mellea_responses.runs import Run
from mellea_responses.service import Service
from mellea_responses.wire.decode import decode_create
from mellea_responses.wire.response import DeletedResponse
from mellea_responses.wire.response import Response as Answer

AnyRequest = Request[Any, Any, Any]
_encode = msgspec.json.Encoder().encode


@post(paths("/responses"), status_code=200, name="create_response")
async def create(creation: NamedDependency[CreateRoute]) -> ASGIApp:
    """Makes a response: as JSON, or as events with `stream: true`."""
    return creation.answer


async def finished(run: Run, request: AnyRequest) -> Answer:
    """The response at its end. The connection is watched meanwhile: nobody to answer, nothing to generate."""
    return await result_unless_gone(run, request.receive)


@post(paths("/responses/compact"), status_code=200, name="compact_response")
async def compact(request: AnyRequest, body: RawBody, service: NamedDependency[Service]) -> Response[bytes]:
    """Folds a conversation into one sealed item."""
    asked = decode_create(json_body(request, body, service.settings.max_body_bytes))
    made = service.compact(asked, owner_of(request), request_id(request))
    return json_answer(await unless_gone(made, request.receive), request)  # None goes to nobody


@post(paths("/responses/input_tokens"), status_code=200, name="count_input_tokens")
async def input_tokens(request: AnyRequest, body: RawBody, service: NamedDependency[Service]) -> Response[bytes]:
    """How many tokens a request would really feed."""
    asked = decode_create(json_body(request, body, service.settings.max_body_bytes))
    made = service.count(asked, owner_of(request))
    return json_answer(await unless_gone(made, request.receive), request)


@get(paths("/responses/{response_id:str}"), name="get_response")
async def retrieve(
    request: AnyRequest,
    response_id: FromPath[str],
    service: NamedDependency[Service],
    stream: FromQuery[str | None] = None,
    starting_after: FromQuery[str | None] = None,
) -> Response[bytes] | Stream:
    """A stored response: the object, or with `stream=true` its events after `starting_after`."""
    owner, headers = owner_of(request), {REQUEST_ID: request_id(request)}
    if not flag(stream, "stream"):
        return Response(
            await service.stored.retrieve(owner, response_id), media_type="application/json", headers=headers
        )
    hold_of(request.scope).stream()
    start = number(starting_after, "starting_after", -1, None, default=-1) + 1
    log = await service.stored.events(owner, response_id)
    body = sse.frames(log, start, service.settings.ping_seconds)
    return Stream(body, media_type=sse.MEDIA_TYPE, headers={**sse.HEADERS, **headers})


@post(paths("/responses/{response_id:str}/cancel"), status_code=200, name="cancel_response")
async def cancel(request: AnyRequest, response_id: FromPath[str], service: NamedDependency[Service]) -> Response[bytes]:
    """Ends a background response within one token."""
    body = await service.stored.cancel(owner_of(request), response_id)
    return Response(body, media_type="application/json", headers={REQUEST_ID: request_id(request)})


@delete(paths("/responses/{response_id:str}"), status_code=200, name="delete_response")
async def remove(request: AnyRequest, response_id: FromPath[str], service: NamedDependency[Service]) -> Response[bytes]:
    """Forgets a stored response. Responses that continue it keep working."""
    await service.stored.delete(owner_of(request), response_id)
    return json_answer(DeletedResponse(response_id), request)


@get(paths("/responses/{response_id:str}/input_items"), name="list_input_items")
async def input_items(
    request: AnyRequest,
    response_id: FromPath[str],
    service: NamedDependency[Service],
    after: FromQuery[str | None] = None,
    before: FromQuery[str | None] = None,
    limit: FromQuery[str | None] = None,
    order: FromQuery[str | None] = None,
) -> Response[bytes]:
    """The items a response was asked with, newest first unless `order=asc`."""
    items = await service.stored.input_items(
        owner_of(request),
        response_id,
        after=after,
        before=before,
        limit=number(limit, "limit", 1, 100, default=20),
        order=one_of(order, "order", ("desc", "asc")),
    )
    return json_answer(items, request)


def owner_of(request: AnyRequest) -> str:
    """Whose request it is. Without keys everybody is the one owner."""
    return str(request.scope["state"].get("owner", ""))


def json_answer(value: Any, request: AnyRequest) -> Response[bytes]:
    """A value of ours as an answer."""
    return Response(_encode(value), media_type="application/json", headers={REQUEST_ID: request_id(request)})
