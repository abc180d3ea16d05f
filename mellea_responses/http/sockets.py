"""WebSocket connections that are watched."""

from typing import Any, ClassVar

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from mellea_responses.errors import Busy
from mellea_responses.http.holds import Hold
from mellea_responses.http.watch import Reader, Sender, Watch


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket under watch."""

    watch: ClassVar[Watch]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._reader, self._sender = Reader(self.watch), Sender(self.watch)
        self._sender.begin(self.loop.time())
        self._held = 0  # bytes of a frame that is not whole
        self.watch.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.watch.drop(self)
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._reader.moved()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        self._sender.got += len(data)
        if self.handshake_complete and (hold := self._hold()) is not None:
            try:
                hold.take(len(data))
            except Busy as error:
                self._close(1013, error.code)
                return
            self._held += len(data)
        super().data_received(data)

    def send_receive_event_to_app(self) -> None:
        if (hold := self._hold()) is not None:
            hold.give(self._held)  # the session takes the frame
        self._held = 0
        super().send_receive_event_to_app()

    def look(self, now: float) -> None:
        """Ends the socket of a client that neither reads nor finishes its frame."""
        self._reader.look(self.transport, now)
        unfinished = self.frames or self.conn.reader.buffer
        if not unfinished or self.read_paused:
            self._sender.begin(now)
        elif self._sender.late(now):
            self._close(1008, "request_timeout")

    def _hold(self) -> Hold | None:
        return self.scope["state"].get("hold")

    def _close(self, code: int, reason: str) -> None:
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()
