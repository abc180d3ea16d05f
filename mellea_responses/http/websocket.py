"""The WebSocket shell on `/v1/responses`: frames in, the same events as SSE out.

One response at a time per socket, in arrival order; later frames wait in a bounded queue. Every failure is an error
frame and the socket stays open. What a turn with `store: false` said is kept here, for the socket's next turn only.
"""

import asyncio
import time
from typing import Any

import msgspec
from litestar import WebSocket, websocket
from litestar.di import NamedDependency
from litestar.exceptions import WebSocketDisconnect

from mellea_responses.errors import ApiError, Busy, ContentTooLarge, InvalidRequest
from mellea_responses.http.body import without_mark
from mellea_responses.http.errors import error_body, own_failure
from mellea_responses.http.holds import Hold, hold_of
from mellea_responses.http.paths import paths
from mellea_responses.ids import new_id
from mellea_responses.limits import MAX_FIELD_BYTES, MAX_SHORT, MAX_VALUES
from mellea_responses.runs import Run
from mellea_responses.service import Service
from mellea_responses.wire.decode import decode_create
from mellea_responses.wire.events import SocketError, SteerFailed
from mellea_responses.wire.items import Item
from mellea_responses.wire.request import CreateResponse
from mellea_responses.wire.shape import Shape

QUEUE = 32
LIFETIME = 60 * 60
FRAME_VALUES = 5 * MAX_VALUES  # a frame is decoded as a whole; its parts are judged as those of a body
HTTP_ONLY = frozenset({"type", "stream", "stream_options", "background", "response"})
_encode = msgspec.json.Encoder().encode

AnySocket = WebSocket[Any, Any, Any]


@websocket(paths("/responses"), name="responses_socket")
async def responses_socket(socket: AnySocket, service: NamedDependency[Service]) -> None:
    """Responses over one socket, for an hour at most."""
    await socket.accept()
    session = Session(socket, service, socket.scope["state"]["owner"], hold_of(socket.scope))
    await session.run()


class ConnectionLimit(ApiError):
    """The socket is an hour old; a new one goes on where the store can."""

    status, type, default_code = 400, "invalid_request_error", "websocket_connection_limit_reached"


class Frame(msgspec.Struct, frozen=True):
    """A `response.create` that waits for its turn."""

    request: CreateResponse
    size: int


class Refusal(msgspec.Struct, frozen=True):
    """A frame that is answered with an error, in its turn: between another's events it would seem to be about them."""

    error: ApiError
    stream_id: str | None


class Session:
    """One socket.

    Args:
        socket: The accepted connection.
        service: What answers.
        owner: Whose requests these are.
        hold: What they hold.
        clock: Seconds that never go back.
    """

    def __init__(
        self, socket: AnySocket, service: Service, owner: str, hold: Hold, clock: Any = time.monotonic
    ) -> None:
        self._socket, self._service, self._owner, self._hold = socket, service, owner, hold
        self._clock, self._opened = clock, clock()
        self._frames: asyncio.Queue[Frame | Refusal] = asyncio.Queue(QUEUE)
        self._local: dict[str, tuple[Item, ...]] = {}  # the latest response that nothing else keeps
        self._run: Run | None = None

    async def run(self) -> None:
        """Reads frames until the client leaves; then nothing of it goes on."""
        worker = asyncio.create_task(self._work())
        try:
            await self._read()
        except (WebSocketDisconnect, OSError):
            pass
        finally:
            worker.cancel()
            if self._run is not None:
                self._run.cancel("client left")
            await asyncio.gather(worker, return_exceptions=True)

    # In.

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            raw = without_mark(_payload(message))
            frame: dict[str, Any] = {}
            try:
                frame = self._parse(raw)
                await self._take(frame, len(raw))
            except ApiError as error:
                if self._frames.full():
                    await self._send_error(error, _stream_id(frame))
                else:
                    self._frames.put_nowait(Refusal(error, _stream_id(frame)))

    def _parse(self, raw: bytes) -> dict[str, Any]:
        limit = self._service.settings.max_body_bytes
        if len(raw) > limit:
            raise ContentTooLarge(f"The frame is larger than {limit} bytes.")
        if len(raw) > MAX_FIELD_BYTES:
            Shape(FRAME_VALUES).check(raw, "")
        try:
            frame = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            raise InvalidRequest("The frame is not valid JSON.", code="invalid_json") from None
        if not isinstance(frame, dict):
            raise InvalidRequest("A frame must be a JSON object.")
        return frame

    async def _take(self, frame: dict[str, Any], size: int) -> None:
        kind = frame.get("type")
        if kind == "response.steer":
            error = InvalidRequest("A running response takes no new input on this server.", code="steer_not_supported")
            await self._send(SteerFailed(error_body(error), stream_id=_stream_id(frame) or msgspec.UNSET))
        elif kind == "response.create":
            self._enqueue(frame, size)
        elif isinstance(kind, str):
            raise InvalidRequest(f"Unknown frame type {kind[:64]!r}; send response.create.", param="type")
        else:
            raise InvalidRequest("A frame needs a `type`, such as `response.create`.", param="type")

    def _enqueue(self, frame: dict[str, Any], size: int) -> None:
        nested = frame.get("response")
        fields = {**(nested if isinstance(nested, dict) else {}), **frame}
        sent = {key: value for key, value in fields.items() if key not in HTTP_ONLY}
        request = decode_create(_encode({**sent, "stream": True}))  # a socket's answers are events, whatever was said
        if self._frames.full():
            raise Busy(f"More than {QUEUE} requests wait on this socket.")
        self._hold.take(size)
        self._frames.put_nowait(Frame(request, size))

    # Out.

    async def _work(self) -> None:
        try:
            while True:
                frame = await self._frames.get()
                if isinstance(frame, Refusal):
                    await self._send_error(frame.error, frame.stream_id)
                    continue
                if self._clock() - self._opened > LIFETIME:
                    error = ConnectionLimit("This socket is an hour old; open a new one.")
                    await self._send_error(error, frame.request.stream_id)
                    await self._socket.close()
                    return
                await self._answer(frame)
                self._hold.give(frame.size)
        except (WebSocketDisconnect, OSError):
            pass  # the reader learns it too

    async def _answer(self, frame: Frame) -> None:
        request_id, request, stream_id = new_id("req"), frame.request, frame.request.stream_id
        try:
            run = self._run = await self._service.create(request, self._owner, request_id, local=self._local.get)
        except Exception as exc:
            self._evict(request)
            await self._send_error(own_failure(exc, request_id), stream_id)
            return
        tail = b',"stream_id":%b}' % _encode(stream_id) if stream_id is not None else b"}"
        async for batch in run.log.batches():
            for event in batch:
                await self._socket.send_data((event[:-1] + tail).decode(), mode="text")
        self._remember(run)
        self._run = None

    def _remember(self, run: Run) -> None:
        response = run.response
        if response.status not in ("completed", "incomplete"):
            self._evict(run.turn.request)
        elif not response.store:
            self._local = {run.id: run.turn.items + run.builder.kept}

    def _evict(self, request: CreateResponse) -> None:
        """A chain whose continuation failed cannot be trusted to be what the client thinks it is."""
        self._local.pop(request.previous_response_id or "", None)

    async def _send(self, value: Any) -> None:
        await self._socket.send_data(_encode(value).decode(), mode="text")

    async def _send_error(self, error: ApiError, stream_id: str | None) -> None:
        await self._send(SocketError(error.status, error_body(error), stream_id=stream_id or msgspec.UNSET))


def _payload(message: Any) -> bytes:
    data = message.get("bytes")
    return data if data is not None else (message.get("text") or "").encode("utf-8", "replace")


def _stream_id(frame: dict[str, Any]) -> str | None:
    value = frame.get("stream_id")
    return value if isinstance(value, str) and len(value) <= MAX_SHORT else None
