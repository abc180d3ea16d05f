"""What may be relied on with this model, tried out on a few tokens before the first request.

Each way of using a cache is compared with a plain forward of the same tokens. What does not hold is switched off for
this model: an unknown architecture becomes slower, never wrong.
"""

import logging
from collections.abc import Callable

import msgspec
import torch
from torch import Tensor

from mellea_responses.engine.attention import use_grouped, use_own
from mellea_responses.engine.caches import TransformersCaches
from mellea_responses.engine.model import Model

log = logging.getLogger(__name__)

_SENTENCE = "Water boils at a hundred degrees Celsius at sea level, and lower on a mountain."
_EXACT, _ROUGH = 2e-3, 0.15


class Features(msgspec.Struct, frozen=True):
    """What holds.

    Args:
        loop: A token fed after a cache gives what a plain forward gives; else `generate()` runs the requests.
        chunks: So do several tokens; else a prompt is fed in one piece and nothing is reused.
        reuse: A fork leaves the original as it was; else nothing is reused.
        crop: A cut cache is as good as a shorter one; else only whole continuations are reused.
    """

    loop: bool = False
    chunks: bool = False
    reuse: bool = False
    crop: bool = False


def self_check(model: Model) -> Features:
    """Try out what holds. Takes seven forwards of up to ten tokens where everything does."""
    words: list[int] = model.tokenizer.encode(_SENTENCE, add_special_tokens=False)
    try:
        features = _with_attention(model, (words * 10)[:10])
    except Exception:
        log.exception("the self-check failed; requests run one at a time through generate()")
        features = Features()
    missing = [name for name in features.__struct_fields__ if not getattr(features, name)]
    if missing:
        log.warning("%s: the self-check switched off %s", model.name, ", ".join(missing))
    return features


def _with_attention(model: Model, tokens: list[int]) -> Features:
    """What holds with our own attention; where something does not, with that of transformers."""
    use_own(model.network)
    plain = model.forward(tokens[:7], None), model.forward(tokens, None)
    if not use_grouped(model.network):
        return _tried(model, tokens, *plain)
    try:
        features = _tried(model, tokens, *plain)
    except Exception:
        log.info("our own attention failed", exc_info=True)
        features = Features()
    if features == Features(loop=True, chunks=True, reuse=True, crop=True):
        return features
    use_own(model.network)
    if (theirs := _tried(model, tokens, *plain)) != features:
        log.warning("%s: the self-check switched off our own attention", model.name)
        return theirs
    use_grouped(model.network)
    return features


def _tried(model: Model, tokens: list[int], seven: Tensor, ten: Tensor, *, crops: bool = True) -> Features:
    caches, rough = TransformersCaches(), model.dtype != torch.float32
    kept = model.new_cache()
    model.forward(tokens[:6], kept)
    if not _same(model.forward(tokens[6:7], kept), seven, rough):
        return Features()

    def resumed(length: int) -> bool:
        return _same(model.forward(tokens[length:], caches.fork(kept, 7, length)), ten, rough)

    if not resumed(7):
        return Features(loop=True)
    crops = crops and caches.can_crop(kept, 7, 4)
    crop = crops and _holds(lambda: resumed(4))
    if resumed(7):
        return Features(loop=True, chunks=True, reuse=True, crop=crop)
    # A fork changed the original: the cut one or the other.
    return _tried(model, tokens, seven, ten, crops=False) if crops else Features(loop=True, chunks=True)


def _holds(claim: Callable[[], bool]) -> bool:
    try:
        return claim()
    except Exception:
        log.info("cropping a cache failed", exc_info=True)
        return False


def _same(a: Tensor, b: Tensor, rough: bool) -> bool:
    """Equal up to rounding, for the likeliest tokens. Wrong caches are off by as much as these differ among themselves.

    The others do not count: some models hold the padding of their vocabulary at minus infinity.
    """
    a, b = torch.log_softmax(a.float(), -1), torch.log_softmax(b.float(), -1)
    values, tokens = b.topk(min(64, len(b)))
    spread = float(values[0] - values[values.isfinite()][-1])
    return float((a[tokens] - values).nan_to_num().abs().max()) <= (_ROUGH if rough else _EXACT) * max(1.0, spread)
