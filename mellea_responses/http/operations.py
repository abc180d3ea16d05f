"""The operations of our OpenAPI document: every route with what it takes and can answer."""

from typing import Any

from mellea_responses import errors
from mellea_responses.http.operation import answer, operation
from mellea_responses.http.schemas import ref

Json = dict[str, Any]

BODY = (errors.InvalidRequest, errors.RequestTimeout, errors.ContentTooLarge, errors.UnsupportedMediaType)
MAKING = (*BODY, errors.NotFound, errors.Conflict, errors.Busy, errors.Draining)
READING = (errors.InvalidRequest, errors.NotFound)


def _made(description: str, whole: str, event: str) -> Json:
    made = answer(description, ref(whole), "x-mellea-unsupported-tools")
    # OpenAPI 3.1 cannot describe a sequence; as tools read it, and 3.2 says it, this is one event of the stream.
    made["content"]["text/event-stream"] = {"schema": ref(event)}
    return made


def _response() -> Json:
    return _made("The response, or its events.", "Response", "ServerSentEvent")


def _in_path(name: str, description: str) -> list[Json]:
    schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "description": description, "schema": schema}]


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


_ROOT: Json = {"servers": [{"url": "/"}]}
"""Routes that have no version."""

_STREAM: dict[str, tuple[Json, str]] = {
    "stream": ({"type": "boolean", "default": False}, "Whether to answer with the events."),
    "starting_after": (
        {"type": "integer", "minimum": -1, "maximum": 99_999_999_999},
        "Only events with a higher `sequence_number`.",
    ),
}
_PAGE: dict[str, tuple[Json, str]] = {
    "after": ({"type": "string"}, "Begin behind the item with this id."),
    "limit": ({"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "How many items at most."),
    "order": ({"type": "string", "enum": ["asc", "desc"], "default": "desc"}, "Oldest or newest first."),
}


def operations() -> Json:
    """Every path."""
    response = {"parameters": _in_path("response_id", "The id of a stored response.")}
    model = {"parameters": _in_path("model", "The name of a model. A slash in it may be sent as it is.")}
    return {
        "/responses": {
            "post": operation(
                "create_response",
                "Makes a response: as JSON, or as events with `stream: true`.",
                _response(),
                *MAKING,
                body=ref("CreateResponse"),
            )
        },
        "/responses/compact": {
            "post": operation(
                "compact_response",
                "Folds a conversation into one sealed item.",
                answer("What to continue from.", ref("CompactedResponse")),
                *MAKING,
                body=ref("CreateResponse"),
            )
        },
        "/responses/input_tokens": {
            "post": operation(
                "count_input_tokens",
                "How many tokens a request would really feed.",
                answer("The count.", ref("InputTokens")),
                *MAKING,
                body=ref("CreateResponse"),
            )
        },
        "/responses/{response_id}": {
            **response,
            "get": operation(
                "get_response",
                "A stored response: the object, or with `stream=true` its events.",
                _response(),
                *READING,
                query=_STREAM,
            ),
            "delete": operation(
                "delete_response",
                "Forgets a stored response. Responses that continue it keep working.",
                answer("It is forgotten.", ref("DeletedResponse")),
                *READING,
            ),
        },
        "/responses/{response_id}/cancel": {
            **response,
            "post": operation(
                "cancel_response",
                "Ends a background response.",
                answer("The response as it ended.", ref("Response")),
                *READING,
            ),
        },
        "/responses/{response_id}/input_items": {
            **response,
            "get": operation(
                "list_input_items",
                "The items a response was asked with, newest first unless `order=asc`.",
                answer("One page.", ref("ItemList")),
                *READING,
                query={**_PAGE, "before": ({"type": "string"}, "End before the item with this id.")},
            ),
        },
        **_conversations(),
        "/chat/completions": {
            "post": operation(
                "create_chat_completion",
                "Makes an answer to a chat: as JSON, or as chunks with `stream: true`.",
                _made("The answer, or its chunks.", "ChatCompletion", "ChatServerSentEvent"),
                *MAKING,
                body=ref("CreateChat"),
            )
        },
        "/models": {"get": operation("list_models", "Every served name.", answer("The list.", ref("ModelList")))},
        "/models/{model}": {
            **model,
            "get": operation("get_model", "One served model.", answer("The model.", ref("Model")), errors.NotFound),
        },
        "/health": {
            **_ROOT,
            "get": operation(
                "health",
                "Whether the server is alive.",
                answer("It is.", _object(status={"const": "pass"})),
                keyless=True,
            ),
        },
        "/ready": {
            **_ROOT,
            "get": operation(
                "ready",
                "Whether the program is loaded and new requests are taken.",
                answer("It is.", _object(status={"const": "ready"}, model={"type": "string"})),
                errors.Draining,
                keyless=True,
            ),
        },
        "/openapi.json": {
            **_ROOT,
            "get": operation("openapi", "This document.", answer("An OpenAPI document.", {"type": "object"})),
        },
    }


def _conversations() -> Json:
    conversation = _in_path("conversation_id", "The id of a conversation.")
    body, changing = ref("ConversationBody"), (*BODY, errors.NotFound, errors.Conflict)
    return {
        "/conversations": {
            "post": operation(
                "create_conversation",
                "A new conversation, with items or without.",
                answer("The conversation.", body),
                *BODY,
                body=ref("CreateConversation"),
                optional=True,
            )
        },
        "/conversations/{conversation_id}": {
            "parameters": conversation,
            "get": operation(
                "get_conversation",
                "A conversation without its items.",
                answer("The conversation.", body),
                errors.NotFound,
            ),
            "post": operation(
                "update_conversation",
                "Replaces the metadata.",
                answer("The conversation.", body),
                *changing,
                body=ref("UpdateConversation"),
            ),
            "delete": operation(
                "delete_conversation",
                "Forgets a conversation; responses made in it stay.",
                answer("It is forgotten.", ref("DeletedConversation")),
                errors.NotFound,
            ),
        },
        "/conversations/{conversation_id}/items": {
            "parameters": conversation,
            "get": operation(
                "list_conversation_items",
                "The items, newest first unless `order=asc`.",
                answer("One page.", ref("ItemList")),
                *READING,
                query=_PAGE,
            ),
            "post": operation(
                "create_conversation_items",
                "Appends items; those without an id get one.",
                answer("The items as they were added.", ref("ItemPage")),
                *changing,
                body=ref("CreateItems"),
            ),
        },
        "/conversations/{conversation_id}/items/{item}": {
            "parameters": [*conversation, *_in_path("item", "The id of an item.")],
            "get": operation("get_conversation_item", "One item.", answer("The item.", ref("Item")), errors.NotFound),
            "delete": operation(
                "delete_conversation_item",
                "Takes one item out of a conversation.",
                answer("The conversation.", body),
                errors.NotFound,
                errors.Conflict,
            ),
        },
    }
