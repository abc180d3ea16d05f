"""Attention on the CPU that does not copy the cache for every group of query heads.

Most models share one head of keys and values among several query heads. Where there is a mask, which is whenever
several tokens are fed over a cache, transformers' `sdpa` writes keys and values out once for each of them, in every
layer: the longer the history, the more of a turn's first pass. Here the groups stand where the batch usually does, and
keys and values are shown to each of them without being copied.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "grouped_sdpa"

_PARTICULAR = ("position_bias", "softcap", "s_aux")


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """An attention function of transformers' `AttentionInterface`, equal to `sdpa` up to rounding.

    Args:
        module: The attention layer.
        query: `[batch, heads, new, size]`.
        key: `[batch, key heads, all, size]`.
        value: Likewise.
        attention_mask: `[batch, 1 or heads, new, all]`, or None.
        scaling: Factor of the scores.
        others: What particular models add.

    Returns:
        `[batch, new, heads, size]`, and None for the weights.
    """
    _, heads, new, size = query.shape
    groups = heads // key.shape[1]
    usual = attention_mask is not None and attention_mask.shape[1] == 1 and len(query) == 1
    # Without a mask transformers' own way copies nothing either.
    if groups == 1 or not usual or any(others.get(name) is not None for name in _PARTICULAR):
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **others
        )
        return result
    output = scaled_dot_product_attention(
        query.view(-1, groups, new, size).transpose(0, 1),
        key.expand(groups, -1, -1, -1),
        value.expand(groups, -1, -1, -1),
        attn_mask=attention_mask,
        scale=scaling,
    )
    return output.permute(2, 1, 0, 3).reshape(1, new, heads, value.shape[-1]), None


def use_grouped(network: Any) -> bool:
    """Let a model attend this way where it gains: on the CPU, with heads that share keys and values.

    Returns:
        Whether it does now.
    """
    config = network.config.get_text_config()
    heads, shared = (getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads"))
    gains = network.device.type == "cpu" and heads != shared and getattr(network, "_supports_attention_backend", False)
    if not gains or network.config._attn_implementation != "sdpa":
        return False
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    network.set_attn_implementation(NAME)
    return bool(network.config._attn_implementation == NAME)


def use_own(network: Any) -> None:
    """Back to the way transformers chose."""
    if network.config._attn_implementation == NAME:
        network.set_attn_implementation("sdpa")
