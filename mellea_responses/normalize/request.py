"""A decoded request → a `Turn`, still without its history."""

from typing import Any

from mellea_responses.errors import InvalidRequest
from mellea_responses.limits import MAX_STRICT_BYTES, MAX_TOOLS
from mellea_responses.normalize.items import Reference, Trigger, normalize_input
from mellea_responses.normalize.tools import count_tools, normalize_choice, normalize_loose_tools, normalize_tools
from mellea_responses.normalize.tools import merge_tools as merge_tools
from mellea_responses.schemas import Schema
from mellea_responses.turn import Format, Options, Turn
from mellea_responses.wire import items as w
from mellea_responses.wire import tools as t
from mellea_responses.wire.decode import decode_tool_param
from mellea_responses.wire.request import CreateResponse, FormatParam
from mellea_responses.wire.shape import check_depth, check_number

MAX_STOPS = 16


class Normalized(Turn, frozen=True):
    """A turn whose input may still hold references to stored items.

    Args:
        loose: Input in order, with references and triggers among the items.
    """

    loose: tuple[w.Item | Reference | Trigger, ...] = ()


def normalize(request: CreateResponse, *, reject_unsupported: bool = False) -> Normalized:
    """The request in canonical form.

    Raises:
        InvalidRequest: what is wrong, with its path.
    """
    _check_start(request)
    loose = normalize_input(request.input)
    tools, unsupported = normalize_tools(request.tools)
    strict = check_tools(tools, "tools")
    for i, item in enumerate(loose):
        if isinstance(item, w.AdditionalTools | w.ToolSearchOutput):
            more, hosted = normalize_loose_tools(item.tools, f"input[{i}].tools")
            strict = check_tools(more, f"input[{i}].tools", strict)
            tools, unsupported = merge_tools(tools, more), unsupported + hosted
    check_number(count_tools(tools), MAX_TOOLS, "tools")
    if reject_unsupported and unsupported:
        raise InvalidRequest(
            f"This server cannot run the hosted tool `{unsupported[0][:64]}`.",
            param=_tool_path(request, unsupported[0]),
        )
    return Normalized(
        request=request,
        input=(),
        loose=loose,
        instructions=request.instructions,
        tools=tools,
        # A chain may have found tools that the choice names; `history` judges it when they are known.
        tool_choice="auto" if _chained(request) else normalize_choice(request.tool_choice, tools, unsupported),
        parallel_tool_calls=request.parallel_tool_calls is not False,
        max_tool_calls=request.max_tool_calls,
        format=normalize_format(request),
        options=normalize_options(request),
        unsupported_tools=tuple(dict.fromkeys(unsupported)),
    )


def _check_start(request: CreateResponse) -> None:
    if request.previous_response_id is not None and request.conversation is not None:
        raise InvalidRequest(
            "previous_response_id and conversation cannot be used together.", param="previous_response_id"
        )
    if request.input is None and not _chained(request):
        raise InvalidRequest("Missing required field `input`: a string or a list of items.", param="input")
    if request.input == [] and not _chained(request):
        raise InvalidRequest("input must not be an empty list.", param="input")
    for key in request.metadata or {}:
        if len(key) > 64:
            raise InvalidRequest("Keys of metadata may have 64 characters at most.", param="metadata")
    if "chat_template" in (request.chat_template_kwargs or {}):
        raise InvalidRequest("A chat template comes from the model only.", param="chat_template_kwargs.chat_template")
    check_depth(request.chat_template_kwargs or {}, "chat_template_kwargs")


def _chained(request: CreateResponse) -> bool:
    return request.previous_response_id is not None or request.conversation is not None


def _tool_path(request: CreateResponse, kind: str) -> str:
    for i, raw in enumerate(request.tools or ()):
        tool = decode_tool_param(raw, f"tools[{i}]")
        if isinstance(tool, dict) and tool["type"] == kind:
            return f"tools[{i}].type"
    return "input"


def check_tools(tools: tuple[t.Tool, ...], path: str, strict: int = 0) -> int:
    """Two tools of one name could not be told apart, and a strict tool's schema must be one.

    Args:
        tools: What is declared in one place.
        path: That place.
        strict: Bytes of strict schemas that were declared elsewhere.

    Returns:
        Bytes of all strict schemas so far.

    Raises:
        InvalidRequest: a name is declared twice, a schema is broken, or strict ones are too large together.
    """
    seen: set[tuple[str, str]] = set()
    for i, tool in enumerate(tools):
        inner = tool.tools if isinstance(tool, t.NamespaceTool) else [tool]
        space = tool.name if isinstance(tool, t.NamespaceTool) else ""
        for one in inner:
            name = "tool_search" if isinstance(one, t.ToolSearchTool) else one.name
            if (space, name) in seen:
                raise InvalidRequest(f"The tool `{name}` is declared twice.", param=f"{path}[{i}].name")
            seen.add((space, name))
            if isinstance(one, t.FunctionTool) and one.parameters and one.strict:
                strict += Schema(one.parameters, f"{path}[{i}].parameters").size
                if strict > MAX_STRICT_BYTES:
                    raise InvalidRequest(
                        f"The schemas of strict tools are larger than {MAX_STRICT_BYTES} bytes together.", param=path
                    )
    return strict


def normalize_format(request: CreateResponse) -> Format:
    """`text.format`, or the same at the top level in Responses or chat spelling; the first of them holds."""
    if request.text is not None and request.text.format is not None:
        return _format(request.text.format, "text.format")
    if request.format is not None:
        return _format(request.format, "format")
    if request.response_format is not None:
        return _format(request.response_format, "response_format")
    return Format()


def _format(param: FormatParam, path: str) -> Format:
    if param.type == "text":
        return Format()
    if param.type == "json_object":
        return Format("json_object")
    if param.type == "grammar":
        raise InvalidRequest("text.format must be text, json_object or json_schema.", param=f"{path}.type")
    name, schema, strict, description = param.name, param.schema, param.strict, param.description
    if param.json_schema is not None:  # chat spelling
        path = f"{path}.json_schema"
        name, schema = _get(param.json_schema, "name", str, path), _get(param.json_schema, "schema", dict, path)
        strict, description = (
            _get(param.json_schema, "strict", bool, path),
            _get(param.json_schema, "description", str, path),
        )
    if not name:
        raise InvalidRequest("A json_schema format needs a `name`.", param=f"{path}.name")
    if schema is None:
        raise InvalidRequest("A json_schema format needs a `schema`.", param=f"{path}.schema")
    check_depth(schema, f"{path}.schema")
    Schema(schema, f"{path}.schema")
    return Format("json_schema", name=name, schema=schema, strict=bool(strict), description=description)


def _get(source: dict[str, Any], key: str, kind: type, path: str) -> Any:
    value = source.get(key)
    if value is not None and not isinstance(value, kind):
        raise InvalidRequest(f"`{key}` has the wrong type.", param=f"{path}.{key}")
    return value


def normalize_options(request: CreateResponse) -> Options:
    """How to generate; nothing that the client did not send."""
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    if len(stop) > MAX_STOPS:
        raise InvalidRequest(f"stop may hold {MAX_STOPS} texts at most.", param="stop")
    return Options(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        repetition_penalty=request.repetition_penalty,
        seed=request.seed,
        stop=tuple(text for text in stop if text),
        max_output_tokens=request.max_output_tokens,
        top_logprobs=request.top_logprobs,
        logprobs="message.output_text.logprobs" in (request.include or ()),
        effort=request.reasoning.effort if request.reasoning else None,
        chat_template_kwargs=request.chat_template_kwargs or {},
    )
