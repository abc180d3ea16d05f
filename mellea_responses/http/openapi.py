"""Our own OpenAPI document, from the msgspec types: what we read and write, not what we wish."""

from functools import cache
from typing import Any

import msgspec

from mellea_responses import __version__
from mellea_responses.http.operation import HEADERS, error_answers
from mellea_responses.http.operations import operations
from mellea_responses.http.schemas import component_schemas, ref

Json = dict[str, Any]


@cache
def document() -> bytes:
    """The document as JSON; made once, when somebody first asks."""
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "mellea-responses",
                "version": __version__,
                "description": "The OpenAI Responses API over a Mellea program or a Hugging Face model. "
                "`/v1/responses` is also a WebSocket, which OpenAPI cannot describe.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [
                {"url": "/v1", "description": "The version most clients ask for."},
                {"url": "/", "description": "The same without the version."},
            ],
            "security": [{"key": []}, {}],
            "paths": operations(),
            "components": {
                "schemas": _schemas(),
                "responses": error_answers(),
                "headers": HEADERS,
                "securitySchemes": {
                    "key": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "One of the server's keys; a server without keys asks for none.",
                    }
                },
            },
        }
    )


def _schemas() -> Json:
    schemas = component_schemas()
    schemas["ServerSentEvent"] = {
        "title": "ServerSentEvent",
        "description": "One event of a stream. The last one is `[DONE]`, without a name. Lines that begin with a colon "
        "keep the connection open and mean nothing.",
        "type": "object",
        "properties": {
            "event": {"enum": [*schemas["Event"]["discriminator"]["mapping"]], "description": "The `type` in `data`."},
            "data": {
                "anyOf": [
                    {"const": "[DONE]"},
                    {"type": "string", "contentMediaType": "application/json", "contentSchema": ref("Event")},
                ]
            },
        },
        "required": ["data"],
    }
    schemas["ChatServerSentEvent"] = {
        "title": "ChatServerSentEvent",
        "description": "One event of a chat's stream, without a name. An error ends the chunks; last comes `[DONE]`.",
        "type": "object",
        "properties": {
            "data": {
                "anyOf": [
                    {"const": "[DONE]"},
                    *(
                        {"type": "string", "contentMediaType": "application/json", "contentSchema": ref(name)}
                        for name in ("ChatChunk", "ErrorAnswer")
                    ),
                ]
            }
        },
        "required": ["data"],
    }
    return schemas
