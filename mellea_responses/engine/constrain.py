"""Holding a model to a grammar while it writes, with llguidance.

Before each choice the tokens that the grammar does not allow are made impossible. What a grammar cannot express is
left to the guard, which judges what was said: a schema never fails a request that would pass without a decoder.
"""

import logging
import math
import re
import threading
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mellea_responses.engine.families import TAUGHT, choose
from mellea_responses.engine.grammar import ANY_OBJECT, Demand, Manner, grammar_of
from mellea_responses.engine.marks import added_tokens
from mellea_responses.engine.messages import named
from mellea_responses.engine.parse import chat_template, known
from mellea_responses.engine.prompt import offered
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.engine.shipped import THOUGHTS

log = logging.getLogger(__name__)

MAX_LEXER_STATES = 50_000
"""One to two kilobytes each. Steps are bounded by the library's own limits."""
MAX_CHARACTERS = 128 * 1024
"""Of a grammar with its schemas: compiling one takes a second or two at most, a token of it a tenth of one."""
MAX_REMAINDERS = 10_000
"""Of all `multipleOf` together: each remainder is a state, made before the first token without a limit of its own."""

_MULTIPLE = re.compile(r'"multipleOf": ([\d.eE+-]+)')


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
        allowed = np.unpackbits(self._bits.view(np.uint8), bitorder="little", count=len(logits))
        if self._matcher.is_error() or not allowed.any():
            self._give_up()
            return logits
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

    Attributes:
        usable: Whether this vocabulary can be held to a grammar, as far as is known: some cannot be read.
    """

    def __init__(self, tokenizer: Any, size: int, ends: frozenset[int]) -> None:
        self._tokenizer, self._size = tokenizer, max(size, len(tokenizer))
        self._ends = sorted(end for end in ends if end < self._size)
        self._added = added_tokens(tokenizer)
        self._tokens = {text: token for text, (token, _) in self._added.items()}
        self._template = chat_template(tokenizer)
        self._family = choose(self._template, frozenset(self._tokens))
        self._lock = threading.Lock()
        self._vocabulary: tuple[Any, list[int]] | None = None
        self.usable = bool(self._ends) and getattr(tokenizer, "backend_tokenizer", None) is not None

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
        if not _is_known(known(self._tokenizer, taught).shipped, bool(demand.tools) and not taught):
            return None
        template = self._template if request.raw is None else ""
        try:
            vocabulary, words = self._prepared()
            text = grammar_of(Manner(self._family, template, self._tokens, words, taught), prompt, demand)
            return _compiled(text, vocabulary) if text is not None else None
        except Exception as exc:  # whatever a client writes in a schema, or a vocabulary is made of
            log.info("no grammar can be made (%s); the answer is free", type(exc).__name__)
            return None

    def _prepared(self) -> tuple[Any, list[int]]:
        """The vocabulary as the library wants it, which takes a second for a large one, and its words in brackets."""
        from llguidance.hf import from_tokenizer  # a third of a second, which only some requests need

        with self._lock:
            if self._vocabulary is None:
                try:
                    made = from_tokenizer(self._tokenizer, n_vocab=self._size, eos_token=self._ends)
                except Exception:
                    self.usable = False
                    log.warning("this model's vocabulary cannot be held to a grammar: forms and calls are only judged")
                    raise
                marks = "".join((*self._family.literals, *TAUGHT))
                plain = (token for text, (token, special) in self._added.items() if not special and text not in marks)
                self._vocabulary = made, [token for token in plain if made.is_special_token(token)]
            return self._vocabulary


def _is_known(shipped: Any, calls: bool) -> bool:
    """Whether it is known how the model writes its reasoning, and its calls if need be.

    One that comes with a template for its answers may write them as no family does.
    """
    return shipped is None or not (calls or THOUGHTS & set(shipped.get("fields", ())))


def _compiled(text: str, vocabulary: Any) -> Grammar | None:
    from llguidance import LLMatcher, LLParserLimits

    if len(text) > MAX_CHARACTERS or _remainders(text) > MAX_REMAINDERS:
        log.info("a grammar is too large; the answer is free")
        return None
    limits = LLParserLimits(max_lexer_states=MAX_LEXER_STATES)
    matcher = LLMatcher(vocabulary, LLMatcher.grammar_from_lark(text), log_level=0, limits=limits)
    if matcher.is_error():
        log.info("a schema or pattern cannot be kept while decoding; the answer is free")  # which may quote the request
        return None
    return Grammar(matcher, vocabulary.vocab_size)


def _remainders(text: str) -> int:
    multiples = [Fraction(number).numerator or 1 for number in _MULTIPLE.findall(text)]
    return math.lcm(*multiples) * len(multiples)


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
    one = bool(chosen) and "tools" not in chosen  # a tool that is named is called once
    return Demand(None if must_call else form, tools, must_call, request.parallel_tool_calls and not one)
