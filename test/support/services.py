"""Stand-ins for what serve programs call: a chat completions server and a transcription route, on loopback."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

Json = dict[str, Any]
TRANSCRIPT = "roses are red and violets are blue"


class _Handler(BaseHTTPRequestHandler):
    heard: ClassVar[list[Json]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path.endswith("/audio/transcriptions"):
            self._json({"text": TRANSCRIPT})
            return
        asked = json.loads(body)
        self.heard.append(asked)
        message = _answer(asked)
        if asked.get("stream"):
            self._stream(message)
        else:
            done = "tool_calls" if message.get("tool_calls") else "stop"
            self._json(_chat("chat.completion", [{"index": 0, "message": message, "finish_reason": done}]))

    def _json(self, value: Json) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, message: Json) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        deltas: list[Json] = [{"role": "assistant"}]
        for number, call in enumerate(message.get("tool_calls", ())):
            text = call["function"]["arguments"]
            name = {"name": call["function"]["name"], "arguments": ""}
            deltas.append({"tool_calls": [{"index": number, "id": call["id"], "type": "function", "function": name}]})
            deltas += [
                {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}
                for piece in (text[:5], text[5:])
            ]  # fmt: skip
        deltas += [{"content": word} for word in (message["content"] or "").replace(" ", " \0").split("\0") if word]
        done = "tool_calls" if message.get("tool_calls") else "stop"
        for delta, end in [*((delta, None) for delta in deltas), ({}, done)]:
            chunk = _chat("chat.completion.chunk", [{"index": 0, "delta": delta, "finish_reason": end}])
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _chat(kind: str, choices: list[Json]) -> Json:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {"id": "c", "object": kind, "created": 1, "model": "stand-in", "choices": choices, "usage": usage}


def _answer(asked: Json) -> Json:
    """A call of the first tool that is offered, or a sentence."""
    if not asked.get("tools"):
        return {"role": "assistant", "content": "a sentence of words"}
    function = asked["tools"][0]["function"]
    arguments = json.dumps(dict.fromkeys(function["parameters"].get("required", ()), "Boston"))
    call = {"id": "call_stand_in", "type": "function", "function": {"name": function["name"], "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@contextmanager
def stand_in() -> Iterator[tuple[str, list[Json]]]:
    """The address, and every chat request that arrives there."""
    heard: list[Json] = []
    handler = type("Handler", (_Handler,), {"heard": heard})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard
    finally:
        server.shutdown()
        server.server_close()
