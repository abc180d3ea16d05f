"""The route of `/v1/chat/completions`: the same service, another spelling."""

import time
from collections.abc import AsyncIterator

import msgspec
from litestar import Response, post
from litestar.di import NamedDependency
from litestar.params import RawBody
from litestar.response import Stream

from mellea_responses.chat import Chunks, to_completion
from mellea_responses.errors import ApiError, Conflict
from mellea_responses.http import sse
from mellea_responses.http.body import json_body
from mellea_responses.http.create import unless_gone
from mellea_responses.http.errors import REQUEST_ID, error_body, request_id
from mellea_responses.http.holds import hold_of
from mellea_responses.http.paths import paths
from mellea_responses.http.responses import AnyRequest, finished, owner_of
from mellea_responses.http.unsupported import unsupported
from mellea_responses.normalize.chat import from_chat
from mellea_responses.runs import Run
from mellea_responses.service import Service
from mellea_responses.wire.chat import CreateChat
from mellea_responses.wire.completion import ChatChunk
from mellea_responses.wire.decode import decode
from mellea_responses.wire.response import ErrorAnswer
from mellea_responses.wire.response import Response as Answer

_encode = msgspec.json.Encoder().encode


@post(paths("/chat/completions"), status_code=200, name="create_chat_completion")
async def create(request: AnyRequest, body: RawBody, service: NamedDependency[Service]) -> Response[bytes] | Stream:
    """Makes an answer: as JSON, or as chunks with `stream: true`."""
    plain = json_body(request, body, service.settings.max_body_bytes)
    chat = decode(plain, CreateChat)
    asked, places = from_chat(chat, plain)
    if chat.stream:
        hold_of(request.scope).stream()
    with places.named():
        run = await unless_gone(service.create(asked, owner_of(request), request_id(request)), request.receive)
    if run is None:
        return Response(b"")  # to nobody
    headers = {REQUEST_ID: request_id(request), **unsupported(run.turn)}
    if chat.stream:
        chunks = Chunks(
            run.response,
            thoughts=service.settings.reasoning != "hidden",
            logprobs=run.turn.options.logprobs,
            usage=bool(chat.stream_options and chat.stream_options.include_usage),
        )
        body_stream = _attached(run, chunks, service.settings.ping_seconds)
        return Stream(body_stream, media_type=sse.MEDIA_TYPE, headers={**sse.HEADERS, **headers})
    with places.named():
        answer = _ended(await finished(run, request))
    completion = to_completion(answer, logprobs=run.turn.options.logprobs)
    return Response(_encode(completion), media_type="application/json", headers=headers)


async def _attached(run: Run, chunks: Chunks, ping: float) -> AsyncIterator[bytes]:
    """The answer's chunks; a client that leaves ends the run."""
    try:
        async for piece in _frames(run, chunks, ping):
            yield piece
    finally:
        run.cancel("client left")


async def _frames(run: Run, chunks: Chunks, ping: float) -> AsyncIterator[bytes]:
    """The stream's body. The log says when there is something new; what it is stands in the run's steps."""
    yield _frame(chunks.start())
    heard, written = 0, time.monotonic()
    async for batch in run.log.batches(0, idle=ping or None):
        fresh = run.said[heard:]
        heard += len(fresh)
        body = b"".join([_frame(chunk) for said in fresh if (chunk := chunks.hear(said)) is not None])
        if not body and (not batch or (ping and time.monotonic() - written >= ping)):
            body = sse.PING  # nothing that shows, such as a call's arguments
        if body:
            written = time.monotonic()
            yield body
    yield _last(run, chunks) + sse.DONE


def _last(run: Run, chunks: Chunks) -> bytes:
    try:
        if run.error is not None:
            raise run.error
        return b"".join([_frame(chunk) for chunk in chunks.end(_ended(run.response))])
    except ApiError as error:
        return b"data: %b\n\n" % _encode(ErrorAnswer(error_body(error)))


def _ended(response: Answer) -> Answer:
    if response.status == "cancelled":
        raise Conflict("The answer was cancelled.", code="cancelled")
    return response


def _frame(chunk: ChatChunk) -> bytes:
    return b"data: %b\n\n" % _encode(chunk)
