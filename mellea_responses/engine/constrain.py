"""Holding a model to a grammar while it writes, with llguidance.

Before each choice the tokens that the grammar does not allow are made impossible. What a grammar cannot express is
left to the guard, which judges what was said: a schema never fails a request that would pass without a decoder.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mellea_responses.engine.families import TAUGHT, choose
from mellea_responses.engine.grammar import ANY_OBJECT, Demand, Manner, grammar_of
from mellea_responses.engine.marks import added_tokens
from mellea_responses.engine.messages import named
from mellea_responses.engine.parse import chat_template
from mellea_responses.engine.prompt import offered
from mellea_responses.engine.request import GenerateRequest

log = logging.getLogger(__name__)

MAX_LEXER_STATES = 50_000
"""One to two kilobytes each. Steps and sizes are bounded by the library's own limits: 15 ms a token at most."""


class Grammar:
    """What one answer may still say.

    Args:
        matcher: An `LLMatcher` at its start.
        size: Tokens of the vocabulary.
    """

    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher = matcher
        self._bits = np.zeros((size + 31) // 32, dtype=np.int32)

    def narrow(self, logits: Tensor) -> Tensor:
        """The logits with minus infinity for every token that may not come next.

        Args:
            logits: One value for each token, shape `[vocabulary]`; left alone.
        """
        if self._matcher is None:
            return logits
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        if self._matcher.is_error() or not self._bits.any():
            self._give_up()
            return logits
        allowed = np.unpackbits(self._bits.view(np.uint8), bitorder="little", count=len(logits))
        return logits.masked_fill(~torch.from_numpy(allowed.view(np.bool_)).to(logits.device), float("-inf"))

    def take(self, token: int) -> None:
        """The token was chosen."""
        if self._matcher is not None and not self._matcher.consume_token(token):
            self._give_up()

    def _give_up(self) -> None:
        """A limit of the library: the answer goes on without the grammar, and the guard judges it."""
        log.info("an answer ran into a bound of its grammar and goes on without it")  # why may quote the answer
        self._matcher = None


class Grammars:
    """Makes the grammars of one model. Safe to call from any thread.

    Args:
        tokenizer: A transformers tokenizer.
        size: Tokens of the vocabulary as the network has it.
        ends: Tokens that end an answer.
    """

    def __init__(self, tokenizer: Any, size: int, ends: frozenset[int]) -> None:
        self._tokenizer, self._ends = tokenizer, ends
        self._size = max(size, len(tokenizer))
        self._added = added_tokens(tokenizer)
        self._tokens = {text: token for text, (token, _) in self._added.items()}
        self._template = chat_template(tokenizer)
        self._family = choose(self._template, frozenset(self._tokens))
        self._lock = threading.Lock()
        self._vocabulary: tuple[Any, list[int]] | None = None

    @property
    def usable(self) -> bool:
        """Whether this vocabulary can be held to a grammar."""
        return bool(self._ends) and getattr(self._tokenizer, "backend_tokenizer", None) is not None

    def for_answer(self, request: GenerateRequest, prompt: str, *, taught: bool) -> Grammar | None:
        """The grammar of one answer, or None when it is free.

        Args:
            request: What is asked.
            prompt: The rendered prompt.
            taught: Whether it says in words how to call.
        """
        demand = _demand(request)
        if not self.usable or (demand.form is None and not demand.tools):
            return None
        vocabulary, words = self._prepared()
        template = self._template if request.raw is None else ""
        text = grammar_of(Manner(self._family, template, self._tokens, words, taught), prompt, demand)
        return _compiled(text, vocabulary) if text is not None else None

    def _prepared(self) -> tuple[Any, list[int]]:
        """The vocabulary as the library wants it, which takes a second for a large one, and its words in brackets."""
        from llguidance.hf import from_tokenizer  # a third of a second, which only some requests need

        with self._lock:
            if self._vocabulary is None:
                made = from_tokenizer(self._tokenizer, n_vocab=self._size, eos_token=sorted(self._ends))
                marks = "".join((*self._family.literals, *TAUGHT))
                plain = (token for text, (token, special) in self._added.items() if not special and text not in marks)
                self._vocabulary = made, [token for token in plain if made.is_special_token(token)]
            return self._vocabulary


def _compiled(text: str, vocabulary: Any) -> Grammar | None:
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(max_lexer_states=MAX_LEXER_STATES)
    matcher = LLMatcher(vocabulary, LLMatcher.grammar_from_lark(text), log_level=0, limits=limits)
    if matcher.is_error():
        log.info("a schema or pattern cannot be kept while decoding; the answer is free")  # which may quote the request
        return None
    return Grammar(matcher, vocabulary.vocab_size)


def _demand(request: GenerateRequest) -> Demand:
    form = {"text": None, "json_object": ANY_OBJECT}.get(request.format.kind, request.format.schema or ANY_OBJECT)
    choice, tools = request.tool_choice, {}
    for tool in offered(request):
        function = tool["function"]
        tools[function["name"]] = function.get("parameters") or ANY_OBJECT
    chosen = choice.get("allowed_tools", choice) if isinstance(choice, Mapping) else {}
    if chosen:
        names = {named(one) for one in chosen.get("tools", [choice])}
        tools = {name: schema for name, schema in tools.items() if name in names}
    must_call = bool(tools) and (chosen.get("mode", "required") if chosen else choice) == "required"
    return Demand(None if must_call else form, tools, must_call, request.parallel_tool_calls)
