"""One answer in the spelling of chat completions: whole, or in chunks. Pure: no clock, no tasks.

The whole answer is read off the finished response. Chunks follow the same steps that the builder heard: text, thoughts
and refusals at once. Calls and citations wait for the end and leave whole, in one chunk: chat has no event that says
"this call was checked", and there are clients that run a call as soon as its arguments can be parsed.
"""

from collections.abc import Iterable, Iterator

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mellea_responses.turn import Refusal, Said, Text, Thought
from mellea_responses.wire import completion as c
from mellea_responses.wire import items as w
from mellea_responses.wire.response import Response, UsageBody


def chat_id(response_id: str) -> str:
    """The answer's id in chat; the same digits after another prefix."""
    return f"chatcmpl-{response_id.removeprefix('resp_')}"


def to_completion(response: Response, *, logprobs: bool = False) -> c.ChatCompletion:
    """A finished response as a chat completion.

    Args:
        response: Completed or incomplete.
        logprobs: Whether the client asked for them.
    """
    parts = [part for item in response.output if isinstance(item, w.Message) for part in item.content]
    calls = _calls(response.output)
    text = "".join(part.text for part in parts if isinstance(part, w.OutputText))
    refusal = "".join(part.refusal for part in parts if isinstance(part, w.RefusalPart))
    message = c.AnswerMessage(
        content=text if text or not (calls or refusal) else None,
        refusal=refusal or None,
        annotations=_notes(parts),
        reasoning_content=_thoughts(response.output) or UNSET,
        tool_calls=calls or UNSET,
    )
    probable = [one for part in parts if isinstance(part, w.OutputText) for one in part.logprobs]
    choice = c.Choice(
        message=message,
        logprobs=c.ChoiceLogprobs(probable) if logprobs and probable else None,
        finish_reason=_finish(response, bool(calls)),
    )
    return c.ChatCompletion(
        id=chat_id(response.id),
        created=response.created_at,
        model=response.model,
        choices=[choice],
        usage=_usage(response.usage),
    )


class Chunks:
    """The chunks of one answer.

    Args:
        response: The response as it starts.
        thoughts: Whether reasoning is shown.
        logprobs: Whether the client asked for them.
        usage: Whether the last chunk gives the counts.
    """

    def __init__(
        self, response: Response, *, thoughts: bool = True, logprobs: bool = False, usage: bool = False
    ) -> None:
        self._id, self._created, self._model = chat_id(response.id), response.created_at, response.model
        self._thoughts, self._logprobs, self._with_usage = thoughts, logprobs, usage
        self._wrote = False

    def start(self) -> c.ChatChunk:
        """The chunk that opens every stream. Whether there will be content is not known yet."""
        return self._chunk(c.Delta(role="assistant", content=None))

    def hear(self, said: Said) -> c.ChatChunk | None:
        """The chunk that follows from one step, if it shows."""
        match said:
            case Text(text=text, logprobs=logprobs) if text or (logprobs and self._logprobs):
                self._wrote = self._wrote or bool(text)
                probable = c.ChoiceLogprobs(list(logprobs)) if logprobs and self._logprobs else None
                return self._chunk(c.Delta(content=text or UNSET), probable)
            case Thought(text=text) if text and self._thoughts:
                return self._chunk(c.Delta(reasoning_content=text))
            case Refusal(text=text) if text:
                return self._chunk(c.Delta(refusal=text))
            case _:
                return None

    def end(self, response: Response) -> Iterator[c.ChatChunk]:
        """What follows the last step: calls, why it ended, and the counts.

        Args:
            response: As it ended, completed or incomplete.
        """
        whole = to_completion(response)
        message, reason = whole.choices[0].message, whole.choices[0].finish_reason
        if message.content == "" and not self._wrote:
            yield self._chunk(c.Delta(content=""))
        if message.annotations:
            yield self._chunk(c.Delta(annotations=message.annotations))
        if message.tool_calls:
            numbered = [replace(call, index=i) for i, call in enumerate(message.tool_calls)]
            yield self._chunk(c.Delta(tool_calls=numbered))
        yield replace(self._chunk(c.Delta()), choices=[c.ChunkChoice(delta=c.Delta(), finish_reason=reason)])
        if self._with_usage:
            yield replace(self._chunk(c.Delta()), choices=[], usage=whole.usage)

    def _chunk(self, delta: c.Delta, logprobs: c.ChoiceLogprobs | None = None) -> c.ChatChunk:
        return c.ChatChunk(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[c.ChunkChoice(delta=delta, logprobs=logprobs)],
            usage=None if self._with_usage else UNSET,
        )


def _calls(output: Iterable[w.Item]) -> list[c.CallBody]:
    """The calls that are whole; one that was cut was never checked, and nobody should run it."""
    calls: list[c.CallBody] = []
    for item in output:
        match item:
            case w.FunctionCall(status="completed"):
                function = c.CalledFunction(_name(item.name, item.namespace), item.arguments)
                calls.append(c.FunctionCallBody(id=item.call_id, function=function))
            case w.CustomToolCall(status="completed"):
                custom = c.CalledCustom(_name(item.name, item.namespace), item.input)
                calls.append(c.CustomCallBody(id=item.call_id, custom=custom))
            case _:
                pass  # words, thoughts, and the receipts of tools that ran here
    return calls


def _name(name: str, namespace: str | UnsetType) -> str:
    return f"{namespace}.{name}" if namespace else name


def _thoughts(output: Iterable[w.Item]) -> str:
    return "".join(part.text for item in output if isinstance(item, w.Reasoning) for part in item.content or ())


def _notes(parts: Iterable[w.Part]) -> list[c.CitationNote]:
    """The citations of all texts, their offsets counted from the start of the whole content."""
    notes: list[c.CitationNote] = []
    before = 0
    for part in parts:
        if isinstance(part, w.OutputText):
            for note in part.annotations:
                citation = c.Citation(note.url, note.title, before + note.start_index, before + note.end_index)
                notes.append(c.CitationNote(citation))
            before += len(part.text)
    return notes


def _finish(response: Response, called: bool) -> c.FinishReason:
    if response.incomplete_details is not None:
        return "content_filter" if response.incomplete_details.reason == "content_filter" else "length"
    return "tool_calls" if called else "stop"


def _usage(counted: UsageBody | None) -> c.ChatUsage | None:
    if counted is None:
        return None
    read, written = counted.input_tokens_details, counted.output_tokens_details
    return c.ChatUsage(
        prompt_tokens=counted.input_tokens,
        completion_tokens=counted.output_tokens,
        total_tokens=counted.total_tokens,
        prompt_tokens_details=c.PromptDetails(read.cached_tokens, read.cache_write_tokens),
        completion_tokens_details=c.CompletionDetails(written.reasoning_tokens),
    )
