"""A chat request in the spelling of Responses: from here on both take the same way.

Nothing is judged here that `normalize` judges anyway. Its complaints name fields of Responses; `Places` knows what the
client called them.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_never

import msgspec
from msgspec import Raw

from mellea_responses.errors import ApiError, InvalidRequest
from mellea_responses.ids import new_id
from mellea_responses.wire import chat as c
from mellea_responses.wire import params as p
from mellea_responses.wire.request import CreateResponse, ReasoningParam, TextParam, ToolChoiceParam

_encode = msgspec.json.Encoder().encode
_ITEM = re.compile(r"input\[(\d+)\](.*)", re.DOTALL)
_ANSWER = (c.AssistantMessage, c.ToolMessage, c.FunctionMessage)
_LOGPROBS = "message.output_text.logprobs"
_OWN = {"tool_choice", "store", "requirements", "top_logprobs"}
_SAME = tuple(
    name for name in c.CreateChat.__struct_fields__ if name in CreateResponse.__struct_fields__ and name not in _OWN
)
"""Fields that are spelled alike."""


class Places:
    """Where each item stands in the client's messages, and what the client called its limit."""

    def __init__(self, chat: c.CreateChat) -> None:
        self.items: list[str] = []
        self._limit = "max_tokens" if chat.max_completion_tokens is None else "max_completion_tokens"

    def of(self, param: str) -> str:
        """The client's name for a field of Responses."""
        match = _ITEM.match(param)
        if match and int(match[1]) < len(self.items):
            rest = match[2].replace(".output", ".content", 1).replace(".call_id", ".tool_call_id", 1)
            return self.items[int(match[1])] + rest
        return {"input": "messages", "max_output_tokens": self._limit, "include": "logprobs"}.get(param, param)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Failures inside name the fields as the client does."""
        try:
            yield
        except ApiError as error:
            error.param = self.of(error.param)
            raise


def from_chat(chat: c.CreateChat, body: bytes = b"") -> tuple[c.FromChat, Places]:
    """The request as Responses would spell it, and the way back for its complaints.

    Args:
        chat: The request as decoded.
        body: The same as the client sent it.

    Raises:
        InvalidRequest: it asks for what there is not, with its path.
    """
    _check(chat)
    places = Places(chat)
    items: list[Raw] = []
    for place, item in _Replay().items(chat.messages):
        places.items.append(place)
        items.append(Raw(_encode(item)))
    request = c.FromChat(
        **{name: getattr(chat, name) for name in _SAME},
        input=items,
        max_output_tokens=chat.max_completion_tokens or chat.max_tokens,
        reasoning=ReasoningParam(effort=chat.reasoning_effort) if chat.reasoning_effort else None,
        text=TextParam(verbosity=chat.verbosity) if chat.verbosity else None,
        include=[_LOGPROBS] if chat.logprobs else None,
        top_logprobs=chat.top_logprobs if chat.logprobs else None,
        tool_choice=_choice(chat.tool_choice) if isinstance(chat.tool_choice, c.ChatChoice) else chat.tool_choice,
        requirements=[text for text in chat.requirements or () if text is not None] or None,
        store=chat.store is True,  # kept only when asked; Responses are kept unless refused
        body=body,
    )
    return request, places


def _check(chat: c.CreateChat) -> None:
    if not chat.messages:
        raise InvalidRequest("messages must not be an empty list.", param="messages")
    if chat.n is not None and chat.n > 1:
        raise InvalidRequest(f"This server gives one answer to a request; n must be 1, got {chat.n}.", param="n")
    if chat.functions:
        raise InvalidRequest("functions gave way to tools; send these as tools.", param="functions")
    if chat.top_logprobs and not chat.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs: true.", param="top_logprobs")


def _choice(choice: c.ChatChoice) -> ToolChoiceParam:
    """The choice without chat's nesting."""
    allowed = choice.allowed_tools or choice
    tools = None if allowed.tools is None else [_choice(tool) for tool in allowed.tools]
    called = choice.function or choice.custom
    return ToolChoiceParam(
        type=choice.type, name=choice.name or (called.name if called else None), mode=allowed.mode, tools=tools
    )


class _Replay:
    """Messages → items, one after the other.

    Items are tied by their call ids alone, chat messages also by their place: some servers number the calls of each
    answer from zero, so an id that comes again gets a new one here, and so does what answers it.
    """

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # what the client calls a call → what we call it
        self._by_name: dict[str, str] = {}  # the last call of each function, for messages of the old form

    def items(self, messages: list[c.ChatMessage]) -> Iterator[tuple[str, p.ItemParam]]:
        """Every item with the place of what it was made of."""
        for i, message in enumerate(messages):
            place = f"messages[{i}]"
            match message:
                case c.SystemMessage():
                    yield place, p.MessageParam(role="system", content=_content(message.content))
                case c.DeveloperMessage():
                    yield place, p.MessageParam(role="developer", content=_content(message.content))
                case c.UserMessage():
                    yield place, p.MessageParam(role="user", content=_content(message.content))
                case c.AssistantMessage():
                    yield from self._assistant(message, place, i > 0 and isinstance(messages[i - 1], _ANSWER))
                case c.ToolMessage(tool_call_id=call_id):
                    call_id = self._ids.get(call_id, call_id)
                    yield place, p.FunctionCallOutputParam(call_id=call_id, output=_content(message.content))
                case c.FunctionMessage(name=name):
                    if name not in self._by_name:
                        raise InvalidRequest(f"No call of `{name[:64]}` stands before its result.", param=place)
                    yield (
                        place,
                        p.FunctionCallOutputParam(call_id=self._by_name[name], output=_content(message.content)),
                    )
                case _:
                    assert_never(message)

    def _assistant(
        self, message: c.AssistantMessage, place: str, after_answer: bool
    ) -> Iterator[tuple[str, p.ItemParam]]:
        if message.reasoning_content:
            yield f"{place}.reasoning_content", p.ReasoningItemParam(content=message.reasoning_content)
        calls = message.tool_calls or []
        content = _content(message.content)
        if message.refusal:
            said = [p.OutputTextParam(content)] if isinstance(content, str) and content else content or []
            content = [*said, p.RefusalParam(message.refusal)]
        if content or not (calls or message.function_call):
            yield place, p.MessageParam(role="assistant", content=content)
        elif after_answer and not message.reasoning_content:
            yield place, p.MessageParam(role="assistant", content="")  # or these calls would join those before
        for n, call in enumerate(calls):
            yield f"{place}.tool_calls[{n}]", self._call(call, f"{place}.tool_calls[{n}]")
        if message.function_call:
            old = c.ReplayedCall(id=new_id("call"), function=message.function_call)
            yield f"{place}.function_call", self._call(old, place)

    def _call(self, call: c.ReplayedCall, place: str) -> p.ItemParam:
        call_id = new_id("call") if call.id in self._ids else call.id
        self._ids[call.id] = call_id
        if call.function is not None:
            self._by_name[call.function.name] = call_id
            return p.FunctionCallParam(call_id=call_id, name=call.function.name, arguments=call.function.arguments)
        if call.custom is not None:
            return p.CustomToolCallParam(call_id=call_id, name=call.custom.name, input=call.custom.input)
        raise InvalidRequest("A call needs its `function`.", param=f"{place}.function")


def _content(content: c.Content | None) -> str | list[p.PartParam] | None:
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: c.ChatPart) -> p.PartParam:
    match part:
        case c.FilePart(file=file):
            return p.InputFileParam(filename=file.filename, file_data=file.file_data, file_id=file.file_id)
        case c.VideoPart(video_url=video):
            return p.InputVideoParam(video.url)
        case _:
            return part
