"""Made-up requests by our own OpenAPI document, right ones and wrong ones, against a real server.

The examples are the same in every run. Each is answered as the document says, in the shape of errors where it is
refused, and never by a failure of the server.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from litestar import Litestar
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mellea_responses.http.openapi import document
from support import oracle
from support.serving import build_app, running

EXAMPLES = 6
"""Of each operation, right and wrong ones together."""
HANG = 30.0
UNVERSIONED = frozenset({"/health", "/ready", "/openapi.json"})
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@contextmanager
def in_a_thread(app: Litestar) -> Iterator[str]:
    """The address of a server for `app` in a loop of its own, since the calls here block."""
    address: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        async with running(app) as url:
            address.set_result((url, asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    url, loop, stop = address.result(timeout=HANG)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=HANG)


def serve(input: Any) -> str:
    return "All done."


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with in_a_thread(build_app(serve)) as address:
        yield address


@pytest.fixture(scope="module")
def known(url: str) -> dict[str, str]:
    """What the server holds, by the names of the parameters that ask for it."""
    response = httpx2.post(f"{url}/v1/responses", json={"input": "x", "background": True}).json()
    items = {"items": [{"id": "msg_1", "role": "user", "content": "x"}]}
    conversation = httpx2.post(f"{url}/v1/conversations", json=items).json()
    return {"response_id": response["id"], "conversation_id": conversation["id"], "item": "msg_1", "model": "program"}


described = schemathesis.openapi.from_dict(json.loads(document()))
described.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
described.config.phases.coverage.enabled = False  # hundreds of cases for every spelling of an item


@described.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@pytest.mark.timeout(300)
def test_whatever_is_asked_is_answered_as_described(url: str, known: dict[str, str], case: Any) -> None:
    if case.meta.generation.mode is GenerationMode.POSITIVE:
        point_at_what_is_there(case, known)
    root = "" if case.path in UNVERSIONED else "/v1"
    answer = case.call(base_url=url + root, timeout=HANG)

    case.validate_response(answer, checks=CHECKS)
    if answer.status_code >= 400:
        oracle.check_error(answer.json())


def point_at_what_is_there(case: Any, known: dict[str, str]) -> None:
    """Half of the made-up ids become true ones, and bodies lose what points at nothing: else most would be refused
    for that alone.
    """
    for name, value in (case.path_parameters or {}).items():
        if len(value) % 2 and case.method != "DELETE":
            case.path_parameters[name] = known[name]
    body = case.body
    if isinstance(body, dict):
        body |= {key: int(value) for key, value in body.items() if isinstance(value, float) and value.is_integer()}
        body |= {key: None for key in ("previous_response_id", "conversation", "tool_choice") if key in body}
        for key in ("input", "items"):
            if isinstance(body.get(key), list):
                body[key] = [item for item in body[key] if not points(item)] or [{"role": "user", "content": ""}]


def points(item: Any) -> bool:
    """Whether an input item needs another one that a made-up request does not have."""
    kind = item.get("type")
    if kind is None:
        return "role" not in item and "name" not in item
    return str(kind).endswith("_output") or kind in ("item_reference", "compaction", "compaction_trigger")
