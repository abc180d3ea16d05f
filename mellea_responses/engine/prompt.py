"""From a request to the tokens to feed, without touching the model: everything that can be refused is refused here."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mellea_responses.engine.fence import FENCE, fence_of
from mellea_responses.engine.messages import Message, digests, fitted, parts_of, plain, tools_block
from mellea_responses.engine.recall import Recall
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.engine.shorten import droppable, shortest, without_oldest
from mellea_responses.engine.splice import Codec, Prompt, Trace, common_length, splice
from mellea_responses.engine.template import ChatTemplate
from mellea_responses.errors import ContextLengthExceeded, InvalidRequest

log = logging.getLogger(__name__)


class Prompter:
    """Makes prompts for one model. Safe to call from any thread.

    Args:
        tokenizer: A transformers tokenizer.
        context_length: Tokens of prompt and answer together.
        recall: Reasoning of earlier turns.
    """

    def __init__(self, tokenizer: Any, context_length: int, recall: Recall) -> None:
        self.template = ChatTemplate(tokenizer)
        self.fence = fence_of(tokenizer, self.template.between_turns())
        special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        self.codec = Codec(tokenizer, self.template.closer(special))
        self._context_length, self._recall = context_length, recall

    def prepare(self, request: GenerateRequest, traces: Iterable[Trace] = ()) -> Prompt:
        """Render, splice and count.

        Args:
            request: What is asked.
            traces: What this owner's finished turns left.

        Raises:
            InvalidRequest: There is nothing to answer, a part cannot be read, or the template refuses the messages.
            ContextLengthExceeded: The prompt leaves no room for an answer and `truncation` is off.
        """
        if not request.messages:
            raise InvalidRequest("There are no messages to answer.", param="input")
        messages = plain(request.messages)
        chain = digests(messages)
        earlier = [pair for pair in zip(chain, messages, strict=True) if pair[1]["role"] == "assistant"]
        turns = {digest: self._put_back(request.owner, digest, message) for digest, message in earlier}
        shown = [self.fence.message(message) for message in messages]
        text = self._text(request, shown)
        prompt = splice(
            text, turns, traces, self.codec, self._bound(request, text, dict(zip(chain, shown, strict=True)))
        )
        room = self._context_length - 1
        if len(prompt.tokens) > room:
            prompt = self._shortened(request, shown, len(prompt.tokens))
        return msgspec.structs.replace(prompt, turn=chain[-1])

    def continued(self, text: str) -> Prompt:
        """A prompt as it stands, without a template.

        Raises:
            InvalidRequest: It is empty.
            ContextLengthExceeded: It leaves no room for an answer.
        """
        prompt = splice(text, {}, (), self.codec)
        if not prompt.tokens:
            raise InvalidRequest("There is nothing to continue.", param="input")
        if len(prompt.tokens) > self._context_length - 1:
            raise _too_long(len(prompt.tokens), self._context_length)
        return prompt

    def teaches(self, request: GenerateRequest) -> bool:
        """Whether the prompt tells the model in words how to call, because its template has no place for tools."""
        return request.raw is None and bool(offered(request)) and not self.template.traits.tools

    def _put_back(self, owner: str, turn: bytes, message: Message) -> bool:
        """Give an assistant message the reasoning that the client left out; True if there was some."""
        if message.get("reasoning_content"):
            return False
        if reasoning := self._recall.find(owner, turn):
            message["reasoning_content"] = reasoning
        return bool(reasoning)

    def _text(self, request: GenerateRequest, messages: Sequence[Message]) -> str:
        traits, tools = self.template.traits, self.fence.value(offered(request))
        kwargs = self.fence.value(request.options.chat_template_kwargs)
        options = msgspec.structs.replace(request.options, chat_template_kwargs=kwargs)
        if self.teaches(request):
            block = tools_block(tools, request.tool_choice, request.parallel_tool_calls)
            messages, tools = _with_system(messages, block), []
        return self.template.render(fitted(messages, traits), tools, options)

    def _bound(self, request: GenerateRequest, text: str, shown: Mapping[bytes, Message]) -> Callable[[Trace], int]:
        """Where in the text the answer of a trace is over: what changes with the words of others comes after it.

        Others may repeat what the model thought, and a template need not show it.
        """

        def common(before: Sequence[Message], changed: Iterable[Message], after: Iterable[Message] = ()) -> int:
            try:
                return common_length(text, self._text(request, [*before, *changed, *after]))
            except InvalidRequest:
                return 0

        def bound(trace: Trace) -> int:
            messages, at = list(shown.values()), list(shown).index(trace.turn)
            before, answer, after = messages[:at], messages[at], messages[at + 1 :]
            if parts_of(answer) != trace.parts:
                return 0  # the client changed the reasoning
            other = {**answer, "reasoning_content": FENCE}
            if answer.get("reasoning_content") and common(before, [other], after) == len(text):
                return 0  # the template shows none
            return common([*before, answer], ({**message, "content": FENCE} for message in after))

        return bound

    def _shortened(self, request: GenerateRequest, messages: Sequence[Message], tokens: int) -> Prompt:
        """Leave out the oldest turns until there is room for an answer.

        Raises:
            ContextLengthExceeded: It is not wanted, or the newest turn alone is too long.
        """
        length = self._context_length
        answer = min(request.options.max_output_tokens or length // 4, length // 4)
        made: dict[int, Prompt] = {}

        def fits(drop: int) -> bool:
            made[drop] = splice(self._text(request, without_oldest(messages, drop)), {}, (), self.codec)
            return len(made[drop].tokens) + max(answer, 1) <= length

        most = droppable(messages) if request.truncation == "auto" else 0
        drop = shortest(most, fits) if most else 0
        if not most or not (fits(drop) or len(made[drop].tokens) < length):
            raise _too_long(tokens, length)
        log.info("left out the oldest %d of %d turns to fit the context", drop, most)
        return made[drop]


def offered(request: GenerateRequest) -> Sequence[Mapping[str, Any]]:
    """The tools that the model is told of."""
    return () if request.tool_choice == "none" else request.tools


def _too_long(tokens: int, length: int) -> ContextLengthExceeded:
    return ContextLengthExceeded(
        f"The prompt is {tokens} tokens and the model's context holds {length}, which must leave room for an answer. "
        "Shorten the input or start a new conversation.",
        param="input",
        tokens=tokens,
    )


def _with_system(messages: Sequence[Message], block: str) -> list[Message]:
    """Add a block of text to the system message at the front, or make one."""
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": block}, *messages]
    text = f"{messages[0]['content']}\n\n{block}" if messages[0]["content"] else block
    return [{**messages[0], "content": text}, *messages[1:]]
