"""Chat messages before a template sees them: from the request's spelling to what the template can take."""

import json
import secrets
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from mellea_responses.errors import InvalidRequest

Message = dict[str, Any]

_TEXT_PARTS = {"text", "input_text", "output_text"}


class Traits(msgspec.Struct, frozen=True):
    """What a chat template can take, found by rendering probes.

    Args:
        system: A system message at the front.
        late_system: System messages at other places.
        repeats: Two messages of one role in a row.
        tools: Tool definitions, calls and results.
        arguments: Whether the template wants the arguments of calls as a mapping or as JSON text.
        short_ids: Calls only by ids of nine letters and digits, as Mistral's templates have it.
        reasoning: Message keys in which the template looks for earlier reasoning.
    """

    system: bool = True
    late_system: bool = True
    repeats: bool = True
    tools: bool = True
    arguments: str = "mapping"
    short_ids: bool = False
    reasoning: tuple[str, ...] = ()


def plain(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """One spelling: content as text, arguments as mappings, `developer` as `system`, an assistant turn in one message.

    Raises:
        InvalidRequest: A part that is no text, such as an image; nothing is left out in silence.
    """
    spelled: list[Message] = []
    for message in messages:
        role = "system" if message["role"] == "developer" else message["role"]
        new: Message = {**message, "role": role, "content": _text(message.get("content"))}
        if calls := message.get("tool_calls"):
            new["tool_calls"] = [_parsed(call) for call in calls]
        if spelled and role == "assistant" and _continues(spelled[-1], new):
            spelled[-1] = _merged(spelled[-1], new)
        else:
            spelled.append(new)
    return spelled


def _parsed(call: Mapping[str, Any]) -> Message:
    return {**call, "function": {**call["function"], "arguments": arguments_of(call)}}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(map(_part, content))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type", "text")
    if kind in _TEXT_PARTS:
        return str(part.get("text") or "")
    if kind == "refusal":
        return str(part.get("refusal") or "")
    what = "images" if "image" in kind else f"content of type '{kind}'"
    raise InvalidRequest(f"This model reads text only and cannot take {what}.", param=part.get("param") or "input")


def _continues(before: Message, now: Message) -> bool:
    """Whether two assistant messages are one turn: reasoning, then words, then calls, in this order."""
    if before["role"] != "assistant":
        return False
    said = bool(before["content"] or before.get("tool_calls"))
    return not said or (not now["content"] and not now.get("reasoning_content") and bool(now.get("tool_calls")))


def _merged(first: Message, second: Message) -> Message:
    merged = {**first, **{key: value for key, value in second.items() if value}}
    merged["content"] = first["content"] + second["content"]
    if calls := [*(first.get("tool_calls") or ()), *(second.get("tool_calls") or ())]:
        merged["tool_calls"] = calls
    return merged


def arguments_of(call: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments as a mapping, whatever the client made of them."""
    given = call["function"].get("arguments")
    if isinstance(given, str):
        try:
            parsed = json.loads(given)
        except (ValueError, RecursionError):
            parsed = given
        given = parsed
    return dict(given) if isinstance(given, Mapping) else {} if given in (None, "") else {"arguments": given}


def canonical(message: Message) -> bytes:
    """What of a message the reader can see, in bytes that are equal only when it is the same."""
    calls = [[call.get("id"), call["function"]["name"], arguments_of(call)] for call in message.get("tool_calls") or ()]
    seen = [message["role"], message["content"], calls, message.get("tool_call_id")]
    try:
        # In ASCII, since a model may write half a surrogate pair.
        return json.dumps(seen, sort_keys=True, default=str).encode()
    except RecursionError:
        return secrets.token_bytes()  # arguments too deep to compare are like no others


def digests(messages: Sequence[Message], start: bytes = b"") -> list[bytes]:
    """A digest for the conversation up to and with each message; hidden reasoning does not count."""
    chain: list[bytes] = []
    for message in messages:
        start = blake2b(start + canonical(message), digest_size=16).digest()
        chain.append(start)
    return chain


def parts_of(message: Message) -> tuple[str, ...]:
    """What a template shows of an assistant message in this order: reasoning, words, names of calls."""
    names = [call["function"]["name"] for call in message.get("tool_calls") or ()]
    said = (part.strip() for part in [message.get("reasoning_content") or "", message["content"], *names])
    return tuple(part for part in said if part)


def fitted(messages: Sequence[Message], traits: Traits) -> list[Message]:
    """The messages as this template takes them; nothing said is lost."""
    fit = [_spoken(message, traits) for message in messages]
    fit = _systems(fit, traits)
    return fit if traits.repeats else _joined(fit)


def _spoken(message: Message, traits: Traits) -> Message:
    message = dict(message)
    reasoning = message.pop("reasoning_content", None)
    if reasoning:
        message.update(dict.fromkeys(traits.reasoning, reasoning))
    if not message.get("tool_calls"):
        message.pop("tool_calls", None)
    elif traits.tools:
        message["tool_calls"] = [_call(call, traits) for call in message["tool_calls"]]
    else:
        message["content"] = "\n".join(filter(None, [message["content"], *map(call_text, message.pop("tool_calls"))]))
    if message["role"] == "tool" and not traits.tools:
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    if message["role"] == "tool" and traits.short_ids:
        message["tool_call_id"] = _short_id(message.get("tool_call_id"))
    return message


def _call(call: Mapping[str, Any], traits: Traits) -> Message:
    arguments: Any = arguments_of(call)
    if traits.arguments == "string":
        arguments = json.dumps(arguments, ensure_ascii=False)
    spelled = {**call, "type": "function", "function": {**call["function"], "arguments": arguments}}
    return {**spelled, "id": _short_id(call.get("id"))} if traits.short_ids else spelled


def _short_id(id_: Any) -> str:
    """Nine letters and digits: the id itself where it is that, else always the same for one id."""
    text = str(id_)
    return text if len(text) == 9 and text.isalnum() else blake2b(text.encode(errors="replace")).hexdigest()[:9]


def call_text(call: Mapping[str, Any]) -> str:
    """A call as a model without a notation of its own is taught to write it."""
    body = {"name": call["function"]["name"], "arguments": arguments_of(call)}
    return f"<tool_call>\n{json.dumps(body, ensure_ascii=False)}\n</tool_call>"


def _systems(messages: list[Message], traits: Traits) -> list[Message]:
    """Systems at the front become one, with the later ones if the template takes none there, or go to the user."""
    lead = next((n for n, message in enumerate(messages) if message["role"] != "system"), len(messages))
    moved = [m for n, m in enumerate(messages) if m["role"] == "system" and (n < lead or not traits.late_system)]
    rest = [m for n, m in enumerate(messages) if m["role"] != "system" or (n >= lead and traits.late_system)]
    text = "\n\n".join(filter(None, (message["content"] for message in moved)))
    if not moved:
        return rest
    if traits.system:
        return [{"role": "system", "content": text}, *rest]
    first = next((n for n, message in enumerate(rest) if message["role"] == "user"), None)
    if first is None:
        return [{"role": "user", "content": text}, *rest]
    user = {**rest[first], "content": f"{text}\n\n{rest[first]['content']}" if text else rest[first]["content"]}
    return [*rest[:first], user, *rest[first + 1 :]]


def _joined(messages: list[Message]) -> list[Message]:
    """Neighbours of one role as one message, for templates that insist on user and assistant in turns.

    Somebody who goes on after a call without waiting for the answer gets an empty one.
    """
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1]["role"] == "tool" and message["role"] == "user":
            joined.append({"role": "assistant", "content": ""})
        plain_pair = joined and joined[-1]["role"] == message["role"] and not (joined[-1].keys() & {"tool_calls"})
        if plain_pair and message["role"] != "tool" and "tool_calls" not in message:
            joined[-1] = {**joined[-1], "content": f"{joined[-1]['content']}\n\n{message['content']}"}
        else:
            joined.append(message)
    return joined


def tools_block(tools: Sequence[Mapping[str, Any]], choice: Any, parallel: bool) -> str:
    """The tools in words, for templates that have no place for them."""
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    must = {"auto": "", "required": "You must call a function in your answer.\n"}.get(str(choice), "")
    if name := named(choice):
        must = f"You must call the function {name} in your answer.\n"
    most = "one or more functions" if parallel else "at most one function"
    return (
        f"# Tools\n\nYou may call {most} to help with the user's request. These are the functions:\n"
        f"<tools>\n{listed}\n</tools>\n\n{must}"
        "To call a function, answer with its name and arguments as JSON within <tool_call></tool_call> tags:\n"
        '<tool_call>\n{"name": "function name", "arguments": {"parameter": "value"}}\n</tool_call>'
    )


def named(choice: Any) -> str | None:
    """The name in a named tool choice, in any of its spellings."""
    if isinstance(choice, Mapping):
        inner = choice.get("function")
        name = inner.get("name") if isinstance(inner, Mapping) else choice.get("name")
    else:
        name = getattr(choice, "name", None)
    return name if isinstance(name, str) else None
