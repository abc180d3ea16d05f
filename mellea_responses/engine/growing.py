"""Cache layers that grow in place and still fork for free.

transformers' own layer copies all keys and values for every token it adds. Here they stand in a buffer with room to
spare, and a layer shows the part that is its own. Forks share the buffer: whoever stands at its filled end may write
on, because nobody has seen what is behind it; everybody else copies first. What a layer shows is never written again.
"""

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer

_ROOM = 32
"""Least tokens of room. A quarter of the length is added where that is more, so copying stays rare."""


class Buffer:
    """Keys and values with room behind them, each `[batch, heads, capacity, size]`; `filled` positions are taken."""

    def __init__(self, keys: Tensor, values: Tensor, capacity: int) -> None:
        self.keys, self.values = (
            torch.empty(*old.shape[:-2], capacity, old.shape[-1], dtype=old.dtype, device=old.device)
            for old in (keys, values)
        )
        self.capacity, self.filled = capacity, 0

    def append(self, keys: Tensor, values: Tensor) -> None:
        end = self.filled + keys.shape[-2]
        self.keys[..., self.filled : end, :] = keys
        self.values[..., self.filled : end, :] = values
        self.filled = end


class GrowingLayer(DynamicLayer):  # type: ignore[no-untyped-call]  # its base registers subclasses
    """A full-attention layer over a shared buffer. A shallow copy of it is a fork."""

    _buffer: Buffer | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Add keys and values `[batch, heads, new, size]`; the answer is all of them so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        length = self.get_seq_length()
        whole = length + key_states.shape[-2]
        buffer = self._buffer
        if buffer is None or buffer.filled != length or buffer.capacity < whole:
            buffer = self._buffer = Buffer(key_states, value_states, whole + max(_ROOM, whole // 4))
            if self.keys is not None and self.values is not None and length:
                buffer.append(self.keys, self.values)
        buffer.append(key_states, value_states)
        self.keys, self.values = buffer.keys[..., :whole, :], buffer.values[..., :whole, :]
        return self.keys, self.values

    def reset(self) -> None:
        self._buffer = None
        super().reset()


def growing(cache: Cache) -> Cache:
    """The same cache, its plain full-attention layers replaced by growing ones. It must be empty."""
    plain = [type(layer) is DynamicLayer for layer in cache.layers]
    cache.layers = [_growing() if swap else layer for swap, layer in zip(plain, cache.layers, strict=True)]
    if cache.layer_class_to_replicate is DynamicLayer:
        cache.layer_class_to_replicate = GrowingLayer
    return cache


def _growing() -> GrowingLayer:
    return GrowingLayer()  # type: ignore[no-untyped-call]  # typed nowhere in transformers
