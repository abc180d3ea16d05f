"""A loaded model as the engine sees it: tokens and a cache go in, the logits of the next token come out."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache

from mellea_responses.engine.growing import growing


class Model:
    """A causal language model with its tokenizer.

    Args:
        network: The transformers model, in evaluation mode and on its device.
        tokenizer: Its tokenizer.
        name: What the model is called.

    Attributes:
        context_length: Tokens of prompt and answer together.
        vocabulary_size: Tokens that the network tells apart; more than the tokenizer has where it was padded.
        ends: Tokens that end an answer.
        special: Special tokens by id.
    """

    def __init__(self, network: Any, tokenizer: Any, name: str) -> None:
        self.network, self.tokenizer, self.name = network, tokenizer, name
        self.generation_config = network.generation_config
        self.device = network.device
        self.dtype = network.dtype
        self.context_length = _context_length(network.config, tokenizer)
        self.vocabulary_size = int(network.config.get_text_config().vocab_size)
        self.special = {id_: token.content for id_, token in tokenizer.added_tokens_decoder.items() if token.special}
        self.ends = _end_tokens(network, tokenizer)
        self._accepted = set(inspect.signature(network.forward).parameters)
        # transformers renamed the argument; the old name warns where the new one exists.
        self.cache_argument = "cache" if "cache" in self._accepted else "past_key_values"

    def new_cache(self) -> Cache:
        """An empty cache."""
        return growing(DynamicCache(config=self.network.config))

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], cache: Cache | None) -> Tensor:
        """Feed `tokens` after what `cache` holds; the cache then holds them too.

        Returns:
            The logits that follow the last token, shape `[vocabulary]`.
        """
        arguments: dict[str, Any] = {"use_cache": cache is not None}
        if cache is not None:
            arguments[self.cache_argument] = cache
        if "logits_to_keep" in self._accepted:
            arguments["logits_to_keep"] = 1
        output = self.network(input_ids=torch.tensor([list(tokens)], device=self.device), **arguments)
        logits: Tensor = output.logits[0, -1]
        return logits


def _context_length(config: Any, tokenizer: Any) -> int:
    text_config = config.get_text_config()
    known = getattr(text_config, "max_position_embeddings", None)
    # Tokenizers without a limit of their own say 10 ** 30.
    limit = tokenizer.model_max_length if tokenizer.model_max_length < 10**9 else None
    return int(known or limit or 2048)


def _end_tokens(network: Any, tokenizer: Any) -> frozenset[int]:
    said = network.generation_config.eos_token_id
    ends = {tokenizer.eos_token_id}
    ends.update(said if isinstance(said, list) else [said])
    return frozenset(end for end in ends if end is not None)
