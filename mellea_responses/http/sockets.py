"""WebSocket connections that are watched."""

import time
from typing import Any, ClassVar

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from mellea_responses.errors import ApiError, Busy, InvalidRequest
from mellea_responses.http.holds import Hold
from mellea_responses.http.turns import SECONDS, SLICE
from mellea_responses.http.watch import Reader, Sender, Watch, answer


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket under watch."""

    watch: ClassVar[Watch]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._reader, self._sender = Reader(self.watch), Sender(self.watch)
        self._sender.begin(self.loop.time())
        self._held = 0  # bytes of a frame that is not whole
        self._rest = bytearray()  # what has come and is not parsed
        self._waits = False  # for its turn
        self.watch.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.watch.drop(self)
        self._rest.clear()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._reader.moved()
        super().resume_writing()

    def handle_connect(self, event: Any) -> None:
        if self.conn.accept(event).status_code == 101:
            super().handle_connect(event)
        else:
            self._refuse(_no_handshake())

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)
            if not (self.handshake_initiated or self.transport.is_closing()):  # not even a request to the library
                self._refuse(_no_handshake())
            return
        self._sender.got += len(data)
        if self.handshake_complete and (hold := self._hold()) is not None:
            try:
                hold.take(len(data))
            except Busy as error:
                self._close(1013, error.code)
                return
            self._held += len(data)
        if len(data) <= SLICE and not self._rest and not self.read_paused:
            super().data_received(data)
            return
        self._rest += data
        if self.transport.is_reading():
            self.transport.pause_reading()
        self._wait()

    async def receive(self) -> Any:
        """What the client says next; what lies behind it is parsed only then."""
        message = await super().receive()
        if self._rest:
            self._wait()
        return message

    def _wait(self) -> None:
        if not self._waits:
            self._waits = True
            self.watch.turns.wait(self._parse)

    def _parse(self) -> None:
        """Parses what has come, until a message is whole or the turn is over."""
        self._waits = False
        until = time.monotonic() + SECONDS
        while self._rest and not self.read_paused and not self.transport.is_closing():
            piece = bytes(self._rest[:SLICE])
            del self._rest[:SLICE]
            super().data_received(piece)
            if time.monotonic() > until:
                break
        if self.transport.is_closing():
            self._rest.clear()
        elif self._rest and not self.read_paused:
            self._wait()
        elif not self._rest and not self.read_paused and not self.transport.is_reading():
            self.transport.resume_reading()

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:  # a client that does not read: what it is owed would pile up
            self.conn.data_to_send()

    def send_receive_event_to_app(self) -> None:
        if (hold := self._hold()) is not None:
            hold.give(self._held)  # the session takes the frame
        self._held = 0
        super().send_receive_event_to_app()

    def look(self, now: float) -> None:
        """Ends the socket of a client that neither reads nor finishes its frame."""
        self._reader.look(self.transport, now)
        unfinished = self.frames or self.conn.reader.buffer
        if not unfinished or self.read_paused or self._rest:
            self._sender.begin(now)
        elif self._sender.late(now):
            self._close(1008, "request_timeout")

    def _hold(self) -> Hold | None:
        return self.scope["state"].get("hold")

    def _refuse(self, error: ApiError) -> None:
        self.close_sent = True
        self.transport.write(answer(error))
        self.transport.close()

    def _close(self, code: int, reason: str) -> None:
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()


def _no_handshake() -> InvalidRequest:
    return InvalidRequest(
        "This opens no WebSocket: it takes version 13, one key, no body and no line of more than 8 KiB.",
        code="invalid_http",
    )
