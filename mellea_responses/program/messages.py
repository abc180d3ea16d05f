"""A turn → chat messages, in the shape chat templates and Mellea programs know.

The calls of one turn are one assistant message; each output follows the message of its call, whatever order the
items came in. What was said between a call and its output stands before the call, so that the output has the last word.
Thoughts travel with the assistant message after them as `reasoning_content`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mellea_responses.catalog import Catalog
from mellea_responses.media.images import is_picture
from mellea_responses.turn import Turn
from mellea_responses.wire import items as w
from mellea_responses.wire import tools as t
from mellea_responses.wire.items import Item, is_call_output, item_call_id

NO_OUTPUT = "(no output: the call was interrupted)"
NO_FILE = "(this file can no longer be read)"
NO_IMAGE = "(an image that can no longer be read)"
_MARKUP = re.compile(r"[\x00-\x1f\x7f<>\"]+")
_NAME_CHARACTERS = 255


def to_messages(turn: Turn, *, as_written: bool = False) -> list[dict[str, Any]]:
    """The turn's instructions and items as messages.

    Each has a `role` (`system`, `developer`, `user`, `assistant`, `tool`) and `content`: a string, or a list of parts
    where there is more than text. An assistant's may have `tool_calls` and `reasoning_content`; a tool's has
    `tool_call_id` and `name`. A call's arguments are a mapping, since templates iterate them; `as_written` gives the
    text the model wrote.
    """
    outputs = {item_call_id(item): item for item in turn.items if is_call_output(item)}
    chat = _Chat(outputs, as_written, turn.media)
    if turn.instructions:
        chat.messages.append({"role": "system", "content": turn.instructions})
    for item in turn.items:
        chat.add(item)
    chat.close()
    return chat.messages


class _Chat:
    """Collects what belongs to one assistant message until something else is said."""

    def __init__(self, outputs: dict[str | None, Item], as_written: bool, media: Mapping[w.Part, str]) -> None:
        self.messages: list[dict[str, Any]] = []
        self._as_written = as_written
        self._media = media
        self._outputs = outputs
        self._thoughts: list[str] = []
        self._held: list[str] = []  # thoughts after words, whose place is not known yet
        self._text: str | list[dict[str, Any]] | None = None
        self._calls: list[Item] = []
        self._awaited: set[str | None] = set()  # those of them whose outputs come later
        self._meanwhile: list[dict[str, Any]] = []  # what is said until then
        self._answered: set[str | None] = set()  # calls whose outputs have come by

    def add(self, item: Item) -> None:
        match item:
            case w.Message() if self._awaited:
                glue = "" if item.role == "assistant" else "\n"
                self._meanwhile.append({"role": item.role, "content": self._content(item.content, glue)})
            case w.Message(role="assistant"):
                if self._text is not None or self._calls:
                    self.flush()
                self._text = self._content(item.content, "")
            case w.Message():
                self.close()
                self.messages.append({"role": item.role, "content": self._content(item.content, "\n")})
            case w.Reasoning():
                if self._calls:
                    self.flush()
                # After words it belongs to the calls that follow, or else to the next message: wait and see.
                (self._thoughts if self._text is None else self._held).append(thoughts_of(item))
            case w.FunctionCall() | w.CustomToolCall() | w.ToolSearchCall():
                if self._calls and all(item_call_id(call) in self._answered for call in self._calls):
                    self.flush()  # the next step of a loop, not one more of the same moment
                self._thoughts += self._held
                self._held = []
                self._calls.append(item)
                if item.call_id in self._outputs and item.call_id not in self._answered:
                    self._awaited.add(item.call_id)
            case w.FunctionCallOutput() | w.CustomToolCallOutput() | w.ToolSearchOutput():
                self._answered.add(item.call_id)  # its message follows its call
                self._awaited.discard(item.call_id)
            case _:
                pass  # receipts, declarations and sealed items are not for the model

    def close(self) -> None:
        """Ends whatever is open."""
        while self._text is not None or self._calls or self._thoughts:
            self.flush()

    def flush(self) -> None:
        """Ends the assistant message, with the outputs of its calls."""
        thoughts = "\n".join(thought for thought in self._thoughts if thought)
        if self._text is None and not self._calls and not thoughts:
            self._thoughts = []
            return
        message: dict[str, Any] = {"role": "assistant", "content": self._text if self._text is not None else ""}
        if thoughts:
            message["reasoning_content"] = thoughts
        if self._calls:
            message["tool_calls"] = [_call(call, self._as_written) for call in self._calls]
        self.messages += [*self._meanwhile, message, *map(self._output, self._calls)]
        self._thoughts, self._text, self._calls = self._held, None, []
        self._held, self._meanwhile, self._awaited = [], [], set()

    def _output(self, call: Item) -> dict[str, Any]:
        call_id, name = item_call_id(call), _name(call)
        item = self._outputs.get(call_id)
        content: str | list[dict[str, Any]] = NO_OUTPUT
        if isinstance(item, w.FunctionCallOutput | w.CustomToolCallOutput):
            content = item.output if isinstance(item.output, str) else self._content(item.output, "")
        elif isinstance(item, w.ToolSearchOutput):
            content = msgspec.json.encode(item.tools).decode()
        return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}

    def _content(self, parts: Iterable[w.Part], glue: str) -> str | list[dict[str, Any]]:
        """One string where there is only text; pieces of an answer join without glue, blocks of a prompt by a line."""
        shaped = [_part(part, self._media) for part in parts]
        if all(part["type"] == "text" for part in shaped):
            return glue.join(part["text"] for part in shaped)
        return shaped


def thoughts_of(item: w.Reasoning) -> str:
    """The text of a reasoning item: its content, or else its summary."""
    parts: Iterable[w.ReasoningText | w.SummaryText] = item.content or item.summary
    return "\n".join(part.text for part in parts)


def _call(item: Item, as_written: bool) -> dict[str, Any]:
    name, arguments = _name(item), ""
    if isinstance(item, w.FunctionCall):
        arguments = item.arguments
    elif isinstance(item, w.CustomToolCall):
        arguments = msgspec.json.encode({"input": item.input}).decode()
    elif isinstance(item, w.ToolSearchCall):
        arguments = msgspec.json.encode(item.arguments).decode()
    function = {"name": name, "arguments": arguments if as_written else _as_mapping(arguments)}
    return {"id": item_call_id(item) or "", "type": "function", "function": function}


def _name(call: Item) -> str:
    return offered_name(getattr(call, "name", "tool_search"), getattr(call, "namespace", None) or None)


def offered_name(name: str, namespace: str | None) -> str:
    """The name under which a model knows a tool; calls in its history carry the same."""
    return f"{namespace}.{name}" if namespace else name


def _as_mapping(arguments: str) -> dict[str, Any]:
    """Cut or plain text becomes a mapping of one, so that no template fails on it."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        value = arguments
    return value if isinstance(value, dict) else {"arguments": value}


def _part(part: w.Part, media: Mapping[w.Part, str]) -> dict[str, Any]:
    match part:
        case w.InputText() | w.OutputText() | w.SummaryText() | w.ReasoningText():
            return {"type": "text", "text": part.text}
        case w.RefusalPart():
            return {"type": "text", "text": part.refusal}
        case w.InputImage():
            url = media.get(part) or part.image_url or ""
            if not is_picture(url):
                return {"type": "text", "text": NO_IMAGE}
            return {"type": "image_url", "image_url": {"url": url, "detail": part.detail}}
        case w.InputAudio():
            return {"type": "input_audio", "input_audio": msgspec.to_builtins(part.input_audio)}
        case w.InputFile():
            return {"type": "text", "text": file_text(part.filename or "", media.get(part))}
        case w.InputVideo():
            return {"type": "video_url", "video_url": {"url": part.video_url}}


def file_text(name: str, text: str | None) -> str:
    """A file as a model is shown it, with its name at the front where it has one."""
    name = _MARKUP.sub("_", name)[:_NAME_CHARACTERS]
    head = f'<file name="{name}">' if name else "<file>"
    return f"{head}\n{NO_FILE if text is None else text}\n</file>"


def to_chat_tools(turn: Turn) -> list[dict[str, Any]]:
    """The offered tools in chat shape; a tool in a namespace is called `namespace.name`, free text is `input`."""
    shaped: list[dict[str, Any]] = []
    for tool in turn.tools:
        if isinstance(tool, t.NamespaceTool):
            shaped.extend(_tool(inner, offered_name(inner.name, tool.name)) for inner in tool.tools)
        elif isinstance(tool, t.ToolSearchTool):
            if tool.execution == "client":
                shaped.append(
                    _function("tool_search", tool.description or "Search for more tools.", tool.parameters or None)
                )
        else:
            shaped.append(_tool(tool, tool.name))
    return shaped


def to_chat_choice(turn: Turn) -> Any:
    """The choice in chat shape, with the names under which the tools are offered."""
    choice = turn.tool_choice
    if isinstance(choice, str):
        return choice
    refs, mode = (choice.tools, choice.mode) if isinstance(choice, t.AllowedTools) else ([choice], "required")
    tools = [tool for tool in Catalog(turn.tools) if any(tool.is_meant_by(ref) for ref in refs)]
    named = [{"type": "function", "function": {"name": offered_name(tool.name, tool.namespace)}} for tool in tools]
    if isinstance(choice, t.ToolRef) and len(named) == 1:
        return named[0]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


def _tool(tool: Any, name: str) -> dict[str, Any]:
    if isinstance(tool, t.CustomTool):
        schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        return _function(name, tool.description or "", schema)
    return _function(name, tool.description or "", tool.parameters)


def _function(name: str, description: str, parameters: dict[str, Any] | None) -> dict[str, Any]:
    schema = {"type": "object", "properties": {}, **(parameters or {})}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
