"""HTTP connections that are watched: what never becomes a request is answered here, in the shape of every error."""

from enum import Enum
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mellea_responses.errors import ApiError, Busy, HeadersTooLarge, InvalidRequest, RequestTimeout
from mellea_responses.http.upgrades import without_offer
from mellea_responses.http.watch import Reader, Sender, Watch, answer

LINGER = 3.0
"""Seconds that a client whose request is answered before it was read may go on to send it."""
MAX_AHEAD = 32
"""Requests that a connection may send before the one ahead of them is answered; hardly a client sends any."""
MANY_PIECES = 4096
LEAST_PIECE = 8
"""Bytes that many chunks of a body must have on the average: each costs as much as kilobytes in one."""
MAX_HEADERS = 128
MAX_HEAD = 64 * 1024
"""Bytes of a request's line and headers."""


class Stage(Enum):
    """What the connection waits for."""

    HEAD = "the rest of a request's line and headers"
    BODY = "the rest of its body"
    REST = "the next request"
    OVER = "nothing: the client has its answer and may stop to send"


class HttpConnection(HttpToolsProtocol):
    """A connection under watch."""

    watch: ClassVar[Watch]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._reader, self._sender = Reader(self.watch), Sender(self.watch)
        self._refusal: ApiError | None = None
        self._answered: Any = None  # the request whose answer is due; those behind it wait
        self._barren = 0  # bytes of a body's that were in no chunk since its last one
        self._fresh, self._heard = True, False  # no request has come, not one byte has
        self._enter(Stage.HEAD)
        if self.watch.room():
            self.watch.add(self, fresh=True)
        else:
            self.refuse(Busy("The server has as many connections as it may have. Try again shortly."))
            self.transport.close()  # at once: there is no room to linger

    def connection_lost(self, exc: Exception | None) -> None:
        self.watch.drop(self)
        self._hang_up()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._reader.moved()
        super().resume_writing()

    def handle_websocket_upgrade(self) -> None:
        if self.scope["method"] != "GET":  # came in pieces, so that the offer was not passed over; the body is lost
            self.refuse(InvalidRequest("Only GET can become a WebSocket.", code="invalid_http"))
            return
        self.watch.drop(self)  # the socket's own protocol takes over
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        if self._stage is Stage.OVER:
            return
        if self._stage is Stage.BODY:
            self._more_of_the_body(data)
            return
        self._heard = True
        if self._stage is Stage.REST:
            self._enter(Stage.HEAD)
        self._sender.got += len(data)
        if self._sender.got > MAX_HEAD + len(data):  # what came before already was too much
            self.refuse(_too_large())
            return
        super().data_received(without_offer(data))

    def _more_of_the_body(self, data: bytes) -> None:
        """Goes on; what is in no chunk (trailers, extensions) is kept by the parser or costs time, and has a bound."""
        before = self._sender.got
        super().data_received(data)
        if self._stage is Stage.BODY:
            self._barren = self._barren + len(data) if self._sender.got == before else 0
            if self._barren > MAX_HEAD:
                self.refuse(_too_large())

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage is Stage.HEAD:  # a trailer is no header: the head has been judged without it
            super().on_header(name, value)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._stage is not Stage.HEAD:
            self._enter(Stage.HEAD)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MAX_AHEAD:  # thousands fit into what the system hands over at once
            self.transport.abort()
            raise ValueError
        if self._fresh:
            self._fresh = False
            self.watch.asked(self)
        if len(self.headers) > MAX_HEADERS or (self._sender.got > MAX_HEAD and self._head_size() > MAX_HEAD):
            self._refusal = _too_large()
            raise ValueError  # what the parser passes on as a message it cannot take
        self._enter(Stage.BODY)
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is before:  # it becomes a WebSocket
            return
        if before is None or before.response_complete:
            self._answered = self.cycle
        if not self.cycle.keep_alive:
            self.cycle.transport = _Parting(self)  # type: ignore[assignment]  # all of a transport that it uses

    def on_body(self, body: bytes) -> None:
        self._sender.got += len(body)
        self._pieces += 1
        self._brought += len(body)
        if self._pieces > MANY_PIECES and self._brought < self._pieces * LEAST_PIECE:
            self._refusal = InvalidRequest("The request's body comes in too many small pieces.", code="invalid_http")
            raise ValueError
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stage = Stage.REST
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """The parser has met what it cannot take."""
        if self.transport.is_closing():
            return
        self.refuse(self._refusal or InvalidRequest("This is no HTTP request.", code="invalid_http"))

    def refuse(self, error: ApiError) -> None:
        """Ends the connection, with the error where an answer is still due."""
        due = self._answered
        if due is None or due.response_complete or not due.response_started:
            self.transport.write(answer(error))
        self._hang_up()
        self._linger()

    def _hang_up(self) -> None:
        """Nothing the application says may follow; it learns that the client has left."""
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def part(self) -> None:
        """Ends the connection after an answer."""
        if self._stage is Stage.BODY:
            self._linger()
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        if self._stage is Stage.OVER:
            return
        if self.pipeline:
            self._answered = self.pipeline[-1][0]
        super().on_response_complete()

    def shutdown(self) -> None:
        if self._stage is Stage.OVER:
            self.transport.close()
        else:
            super().shutdown()

    def look(self, now: float) -> None:
        """Ends the connection of a client that neither reads nor finishes its request."""
        self._reader.look(self.transport, now)
        if self.transport.is_closing():
            return
        if self._stage is Stage.OVER:
            if now - self._sender.since > LINGER:
                self.transport.close()
            return
        made = self.cycle is not None and not self.cycle.response_complete  # an answer is being made
        if self.flow.read_paused or (made and self._stage is Stage.HEAD):
            self._sender.since = now  # it is the server that lets it wait
        elif self._stage is Stage.HEAD and now - self._sender.since > self.watch.header:
            if self._heard:
                self.refuse(RequestTimeout("The request's headers did not come in time."))
            else:
                self.transport.close()
        elif self._stage is Stage.BODY and self._sender.late(now):
            self.refuse(RequestTimeout("The request's body came too slowly."))

    def _linger(self) -> None:
        """Says that nothing follows, and throws away what still comes until the client has noticed.

        To close with bytes unread resets the connection, and the answer may be lost with it.
        """
        self._enter(Stage.OVER)
        self.flow.resume_reading()
        self.transport.write_eof()

    def _enter(self, stage: Stage) -> None:
        self._stage, self._barren, self._pieces, self._brought = stage, 0, 0, 0
        self._sender.begin(self.loop.time())

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)


class _Parting:
    """What the answer of a connection that ends with it writes to."""

    def __init__(self, connection: HttpConnection) -> None:
        self.write, self.is_closing = connection.transport.write, connection.transport.is_closing
        self.close = connection.part


def _too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"A request may have {MAX_HEADERS} headers, and {MAX_HEAD} bytes before its body.")
