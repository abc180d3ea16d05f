"""The response object as a run starts: every setting as it really holds."""

from typing import Any

import msgspec
from msgspec import UNSET

from mellea_responses.turn import Format, Turn
from mellea_responses.wire.response import ConversationRef, FormatBody, ReasoningBody, Response, TextBody


class StoredBase(Response, frozen=True, kw_only=True):
    """A response as it started, read back for a replay.

    Open unions cannot be decoded, and need not be: what is only echoed is kept as plain JSON.
    """

    output: list[Any] = []
    tools: list[Any] = []
    tool_choice: Any = "auto"


decode_base = msgspec.json.Decoder(StoredBase).decode


def new_response(turn: Turn, response_id: str, model: str, created_at: int, *, store: bool) -> Response:
    """A response `in_progress`, or `queued` for the background, without output."""
    request, options = turn.request, turn.options
    reasoning = request.reasoning
    verbosity = (request.text.verbosity if request.text else None) or "medium"
    return Response(
        id=response_id,
        created_at=created_at,
        status="queued" if request.background else "in_progress",
        background=bool(request.background),
        model=model,
        instructions=turn.instructions,
        max_output_tokens=options.max_output_tokens,
        max_tool_calls=turn.max_tool_calls,
        parallel_tool_calls=turn.parallel_tool_calls,
        previous_response_id=request.previous_response_id,
        conversation=ConversationRef(turn.conversation) if turn.conversation else UNSET,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=ReasoningBody(
            effort=options.effort, summary=(reasoning.summary or reasoning.generate_summary) if reasoning else None
        ),
        safety_identifier=request.safety_identifier,
        store=store,
        temperature=1.0 if options.temperature is None else options.temperature,
        text=TextBody(format=_format(turn.format), verbosity=verbosity),
        tool_choice=turn.tool_choice,
        tools=list(turn.tools),
        top_logprobs=options.top_logprobs or 0,
        top_p=1.0 if options.top_p is None else options.top_p,
        presence_penalty=options.presence_penalty or 0.0,
        frequency_penalty=options.frequency_penalty or 0.0,
        truncation=request.truncation or "disabled",
        metadata=request.metadata or {},
    )


def _format(form: Format) -> FormatBody:
    if form.kind != "json_schema":
        return FormatBody(form.kind)
    schema = form.schema if form.schema is not None else UNSET
    return FormatBody("json_schema", form.name, form.description, schema, form.strict)
