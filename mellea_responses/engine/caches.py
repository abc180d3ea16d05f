"""Forking, cropping and measuring transformers' caches.

A shallow copy of a full-attention layer is a fork that copies no bytes: what a layer shows is never written again
(`growing`). Recurrent layers write their small states in place and are cloned. Whether a cache can be cut is decided by
the class of its layers and its length: `is_croppable` says yes for sliding windows that are full and cannot.
"""

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from transformers import Cache
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

_STATES = ("conv_states", "recurrent_states")


class TransformersCaches:
    """`CacheOps` for `transformers.Cache`.

    Args:
        crop: Whether this model's caches may be cut at all; the self-check decides.
    """

    def __init__(self, *, crop: bool = True) -> None:
        self.crop = crop

    def fork(self, cache: Cache, length: int, to: int) -> Cache:
        forked = copy.copy(cache)
        forked.layers = [_fork_layer(layer) for layer in cache.layers]
        if length > to:
            forked.crop(to - length)
        return forked

    def can_crop(self, cache: Cache, length: int, to: int) -> bool:
        return length == to or (self.crop and all(_croppable(layer, length) for layer in cache.layers))

    def size(self, cache: Cache) -> int:
        # A view keeps all of its storage alive, so the storage is what counts.
        return sum(tensor.untyped_storage().nbytes() for layer in cache.layers for tensor in _tensors(layer))


def _fork_layer(layer: Any) -> Any:
    forked = copy.copy(layer)
    for name, value in vars(layer).items():
        if isinstance(value, dict):
            setattr(forked, name, dict(value))
    if isinstance(layer, LinearAttentionCacheLayerMixin):
        for name in _STATES:
            states = getattr(layer, name)
            setattr(forked, name, {key: None if state is None else state.clone() for key, state in states.items()})
    return forked


def _croppable(layer: Any, length: int) -> bool:
    if isinstance(layer, LinearAttentionCacheLayerMixin) or not isinstance(layer, DynamicLayer):
        return False
    return not isinstance(layer, DynamicSlidingWindowLayer) or length < layer.sliding_window


def _tensors(layer: Any) -> Iterator[Tensor]:
    for value in vars(layer).values():
        for tensor in value.values() if isinstance(value, dict) else (value,):
            if isinstance(tensor, Tensor):
                yield tensor
