"""One request while the model works on it: its tokens, its cache and its writer."""

import random
from collections import Counter

from torch import Tensor
from transformers import Cache

from mellea_responses.engine.constrain import Grammar
from mellea_responses.engine.kv import Lease
from mellea_responses.engine.outbox import Outbox
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.engine.sample import Sampling, log_probabilities, penalise, pick
from mellea_responses.engine.splice import Prompt
from mellea_responses.engine.vocabulary import Vocabulary
from mellea_responses.engine.writer import Writer
from mellea_responses.turn import Step, Usage
from mellea_responses.wire.items import Logprob


class Row:
    """Everything one answer needs. Only the model's thread touches it after it was submitted.

    Args:
        request: What is asked.
        prompt: The tokens to feed.
        writer: Takes the answer's tokens.
        sampling: How to choose them.
        vocabulary: Names tokens for log-probabilities.
        outbox: Where the Steps go.
        lease: The cache that was promised when the request was queued.
        grammar: What the answer is held to, if anything.
        kept: Whether its own cache can be kept for a next turn.
    """

    def __init__(
        self,
        request: GenerateRequest,
        prompt: Prompt,
        writer: Writer,
        sampling: Sampling,
        vocabulary: Vocabulary,
        outbox: Outbox,
        lease: Lease[Cache] | None,
        *,
        grammar: Grammar | None = None,
        kept: bool = True,
    ) -> None:
        self.request, self.prompt, self.writer = request, prompt, writer
        self.outbox, self.lease, self._kept = outbox, lease, kept
        self.cache: Cache | None = None
        self.tokens = list(prompt.tokens)
        self.fed = 0
        self.cached = 0
        self.abandoned = False
        self._sampling, self._vocabulary, self._grammar = sampling, vocabulary, grammar
        seed = request.options.seed
        self._random = random.Random(seed)
        self._counts: Counter[int] = Counter()
        self._seen = frozenset(prompt.tokens) if sampling.repetition_penalty != 1.0 else frozenset()

    @property
    def unwanted(self) -> bool:
        """Whether nobody wants the answer any more."""
        return self.abandoned or self.request.cancelled.is_set()

    @property
    def pending(self) -> int:
        """Tokens still to feed before the next one can be chosen."""
        return len(self.tokens) - self.fed

    def choose(self, logits: Tensor) -> list[Step]:
        """Choose the next token and say what it says.

        Args:
            logits: What follows the last token, shape `[vocabulary]`.
        """
        sampling = self._sampling
        judged = penalise(logits, sampling, self._seen, self._counts) if sampling.penalises else logits
        if self._grammar is not None:
            judged = self._grammar.narrow(judged)
        token = pick(judged, sampling, self._random.random)
        if self._grammar is not None:
            self._grammar.take(token)
        self.tokens.append(token)
        if sampling.penalises:
            self._counts[token] += 1
        return self.writer.take(token, self._logprob(logits, token))

    def _logprob(self, logits: Tensor, token: int) -> Logprob | None:
        options = self.request.options
        if not options.logprobs:
            return None
        return self._vocabulary.described(token, *log_probabilities(logits, token, options.top_logprobs or 0))

    def usage(self) -> Usage:
        """True counts so far."""
        read = len(self.prompt.tokens)
        return Usage(
            input_tokens=read,
            output_tokens=len(self.writer.tokens),
            cached_tokens=self.cached,
            reasoning_tokens=self.writer.reasoning_tokens,
            cache_write_tokens=max(0, min(self.fed, read) - self.cached) if self._kept else 0,
        )

    def release(self) -> None:
        """Give back what the row holds."""
        if self.lease is not None:
            self.lease.release()
        self.lease = self.cache = None
