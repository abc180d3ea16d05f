"""One request to a server, and what it cost there."""

import http.client
import json
import time
from typing import Any

from benchmarks.common import Server, cpu_seconds

SETTLE = 0.02  # what the server does after its last byte is its cost too


def request(server: Server, path: str, body: Any) -> tuple[Any, float]:
    """The answer, and the CPU time that the server spent on it."""
    content = json.dumps(body)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=1200)
    began = cpu_seconds(server.pid)
    connection.request("POST", path, content, {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    time.sleep(SETTLE)
    spent = cpu_seconds(server.pid) - began
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}: {text[:500]!r}")
    return json.loads(text), spent
