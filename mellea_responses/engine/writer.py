"""One answer as it is written: tokens in, Steps out. Knows nothing of models, caches or threads."""

import secrets
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal, Protocol

import msgspec

from mellea_responses.engine.fence import Fence
from mellea_responses.engine.messages import digests, parts_of
from mellea_responses.engine.splice import Joint, Prompt, Trace
from mellea_responses.engine.text import StopCutter, TokenText
from mellea_responses.turn import Call, CallArgs, Step, Stop, Text, Thought
from mellea_responses.wire.items import Logprob, Phase

Reason = Literal["stop", "length"]


NO_FENCE = Fence()


class Splitter(Protocol):
    """Tells reasoning, text and calls apart while they are written; `parse` has the real one."""

    def feed(self, token_ids: Sequence[int], text: str) -> list[Step]:
        """Take the next tokens and the text they add; special tokens appear in the text by their names."""

    def finish(self, reason: Reason) -> list[Step]:
        """The last Steps."""


class Writer:
    """Turns the tokens of one answer into Steps and knows when the answer is over.

    Args:
        tokenizer: A transformers tokenizer.
        splitter: Tells reasoning, text and calls apart.
        ends: Tokens that end an answer.
        stops: Strings that end an answer; neither they nor what follows leaves.
        limit: Most tokens the answer may have.
        fence: How prompts show control tokens that were only typed.

    Attributes:
        tokens: What was generated, the end token included.
        reason: Why the answer is over, None while it is not.
        reasoning_tokens: How many tokens were spent on reasoning.
    """

    def __init__(
        self,
        tokenizer: Any,
        splitter: Splitter,
        *,
        ends: frozenset[int],
        stops: Sequence[str],
        limit: int,
        fence: Fence = NO_FENCE,
    ) -> None:
        self.tokens: list[int] = []
        self.reason: Reason | None = None
        self.reasoning_tokens = 0
        self.said: list[Step] = []
        self._names = tokenizer.added_tokens_decoder
        self._text, self._splitter, self._cutter = TokenText(tokenizer), splitter, StopCutter(stops)
        self._ends, self._limit, self._fence = ends, limit, fence
        self._pieces: list[tuple[bool, str]] = []
        self._whole = 0
        self._logprobs: list[Logprob] = []
        self._thinking = False
        self._phase: Phase | None = None

    def take(self, token: int, logprob: Logprob | None = None) -> list[Step]:
        """Add one token; the answer is what may be said now. `reason` is set when this token ends the answer."""
        self.tokens.append(token)
        if token in self._ends:
            return self.finish("stop")
        if logprob is not None:
            self._logprobs.append(logprob)
        done, piece = self._text.push(token)
        steps: list[Step] = []
        if done:
            self._whole = len(self.tokens)
            self._pieces.append((any(one in self._names for one in done), piece))
            steps = self._cut(self._splitter.feed(done, piece))
        self.reasoning_tokens += self._thinking
        self.said += steps
        if self._cutter.stopped:
            self.reason = "stop"
        elif len(self.tokens) >= self._limit:
            steps += self.finish("length")
        return steps

    def finish(self, reason: Reason) -> list[Step]:
        """End the answer here; the answer is what was still held back."""
        self.reason = reason
        steps = self._cut(self._splitter.finish(reason))
        if not self._cutter.stopped and (held := self._cutter.flush()):
            steps.append(self._worded(held))
        self.said += steps
        return steps

    def last(self) -> Stop:
        """How the answer ended."""
        return Stop(self.reason or "stop")

    def trace(self, prompt: Prompt) -> Trace:
        """What to remember of prompt and answer, so that the next prompt can continue with these tokens."""
        ended = bool(self.tokens) and self.tokens[-1] in self._ends
        end = self._names[self.tokens[-1]].content if ended and self.tokens[-1] in self._names else ""
        answer = prompt.tokens + tuple(self.tokens[: self._whole])
        written = prompt.text + self._written()
        trace = Trace(written + end, answer, prompt.joints, len(prompt.text), answers=prompt.answers)
        if self._cutter.stopped or (ended and not end):
            return trace  # what the reader has is not what was fed, so only the prompt can be continued
        tokens = (*answer, self.tokens[-1]) if end else answer
        joints = (*prompt.joints, Joint(len(written), len(answer)))
        if self.reason is None:  # cancelled: some of it may not have left, so only who repeats it all goes on from it
            return msgspec.structs.replace(trace, tokens=tokens, joints=joints)
        message = self.message()
        return msgspec.structs.replace(
            trace,
            tokens=tokens,
            joints=joints,
            end=end,
            turn=digests([message], prompt.turn)[0],
            parts=parts_of(self._fence.message(message)),
            calls="tool_calls" in message,
        )

    def _written(self) -> str:
        """The whole answer as a prompt shows it: a control token by its name, the same letters typed fenced."""
        runs = groupby(self._pieces, key=lambda piece: piece[0])
        texts = ((marker, "".join(text for _, text in run)) for marker, run in runs)
        return "".join(text if marker else self._fence.text(text) for marker, text in texts)

    def message(self) -> dict[str, Any]:
        """The answer as the next request will bring it back."""
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        calls: dict[str, dict[str, Any]] = {}
        for step in self.said:
            match step:
                case Text(text=text):
                    message["content"] += text
                case Thought(text=text):
                    message["reasoning_content"] = message.get("reasoning_content", "") + text
                case Call(key=key, name=name, call_id=call_id):
                    calls[key] = {"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
                case CallArgs(key=key, text=text):
                    calls[key]["function"]["arguments"] += text
        return {**message, "tool_calls": list(calls.values())} if calls else message

    def _cut(self, steps: Sequence[Step]) -> list[Step]:
        """Apply the stop strings to text, name the calls, note where reasoning is."""
        kept: list[Step] = []
        for step in steps:
            if self._cutter.stopped:
                break
            self._thinking = isinstance(step, Thought)
            # No stop string reaches over a call, or from one message into the next.
            if (not isinstance(step, Text) or step.phase != self._phase) and (held := self._cutter.flush()):
                kept.append(self._worded(held))
            if isinstance(step, Text):
                self._phase = step.phase
                if text := self._cutter.feed(step.text):
                    kept.append(self._worded(text))
                continue
            self._logprobs.clear()
            if isinstance(step, Call) and step.call_id is None:
                step = msgspec.structs.replace(step, call_id=f"call_{secrets.token_hex(12)}")
            kept.append(step)
        return kept

    def _worded(self, text: str) -> Text:
        logprobs = tuple(self._logprobs) or None
        self._logprobs.clear()
        return Text(text, logprobs, self._phase)
