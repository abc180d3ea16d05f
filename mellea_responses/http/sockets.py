"""WebSocket connections that are watched."""

from typing import Any, ClassVar

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from mellea_responses.http.watch import Reader, Sender, Watch


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket under watch."""

    watch: ClassVar[Watch]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._reader, self._sender = Reader(self.watch), Sender(self.watch)
        self._sender.begin(self.loop.time())
        self.watch.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.watch.drop(self)
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._reader.moved()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        self._sender.got += len(data)
        super().data_received(data)

    def look(self, now: float) -> None:
        """Ends the socket of a client that neither reads nor finishes its frame."""
        self._reader.look(self.transport, now)
        unfinished = self.frames or self.conn.reader.buffer
        if not unfinished or self.read_paused:
            self._sender.begin(now)
        elif self._sender.late(now):
            self.transport.abort()
