"""Choosing the next token: pure functions of the logits, the request's numbers and one random number.

The random number is drawn on the host by the row's own generator, so a seed gives the same tokens alone or in company
and on any device that computes the same logits.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from mellea_responses.turn import Options

IMPOSSIBLE = -9999.0
"""Log-probability of a token without a chance, as OpenAI writes it: JSON has no infinity."""

COLD = 1e-5
"""Temperatures below it are greedy: divided by them, logits are no numbers any more."""

SHORTCUT = 256
"""Most likely tokens looked at first. When they provably hold every token that top_p or min_p keeps, the vocabulary
need not be sorted."""


class Sampling(msgspec.Struct, frozen=True):
    """The numbers in force for one request. A temperature of 0 is greedy; a `top_k` of 0 keeps every token."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0

    @property
    def penalises(self) -> bool:
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0)


def settle(options: Options, generation_config: Any) -> Sampling:
    """What the client said, else what the model's own `generation_config` says.

    A model whose configuration does not sample answers greedily until the client asks for a temperature or another
    number that only sampling has.
    """
    samples = bool(getattr(generation_config, "do_sample", False))
    asked = any(x is not None for x in (options.top_p, options.top_k, options.min_p))

    def own(name: str, default: float) -> float:
        value = getattr(generation_config, name, None) if samples or name == "repetition_penalty" else None
        return default if value is None else float(value)

    def said(value: float | None, name: str, default: float) -> float:
        return own(name, default) if value is None else float(value)

    return Sampling(
        temperature=said(options.temperature, "temperature", 1.0 if samples or asked else 0.0),
        top_p=said(options.top_p, "top_p", 1.0),
        top_k=int(said(options.top_k, "top_k", 0)),
        min_p=said(options.min_p, "min_p", 0.0),
        presence_penalty=options.presence_penalty or 0.0,
        frequency_penalty=options.frequency_penalty or 0.0,
        repetition_penalty=said(options.repetition_penalty, "repetition_penalty", 1.0),
    )


def penalise(logits: Tensor, sampling: Sampling, prompt: Iterable[int], counts: Mapping[int, int]) -> Tensor:
    """Make said tokens less likely.

    Presence and frequency look at the answer so far, as OpenAI defines them; repetition looks at the prompt as well,
    as transformers does.

    Args:
        logits: One value for each token of the vocabulary, shape `[vocabulary]`.
        sampling: The numbers in force.
        prompt: Tokens of the prompt; repeats do not matter.
        counts: How often the answer said each of its tokens.

    Returns:
        New logits of the same shape; the given ones are left alone.
    """
    logits = logits.float().clone()
    if sampling.repetition_penalty != 1.0 and (seen := {*prompt, *counts}):
        at = torch.tensor(list(seen), device=logits.device)
        values = logits[at]
        factor = sampling.repetition_penalty
        most = 1e30  # a penalty near 0 must not make infinities, which would mean a broken model
        logits[at] = torch.where(values < 0, values * factor, (values / factor).clamp(max=most))
    if counts and (sampling.presence_penalty or sampling.frequency_penalty):
        at = torch.tensor(list(counts), device=logits.device)
        often = torch.tensor(list(counts.values()), device=logits.device, dtype=logits.dtype)
        logits[at] -= sampling.presence_penalty + sampling.frequency_penalty * often
    return logits


def pick(logits: Tensor, sampling: Sampling, draw: Callable[[], float]) -> int:
    """The next token.

    Args:
        logits: One value for each token of the vocabulary, shape `[vocabulary]`.
        sampling: The numbers in force.
        draw: Gives a number in [0, 1); called once, and only if chance decides.

    Raises:
        ArithmeticError: The model gave no finite number, so no choice would mean anything.
    """
    if sampling.temperature < COLD or sampling.top_k == 1:
        token = int(logits.argmax())
        if not math.isfinite(float(logits[token])):
            raise ArithmeticError("the model's output is not finite")
        return token
    probabilities, tokens = kept(logits, sampling)
    return _choose(probabilities, tokens, draw())


def kept(logits: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor | None]:
    """The tokens that temperature, top_k, top_p and min_p leave, applied in this order as transformers does.

    Returns:
        Their probabilities, float64 on the host and summing to 1, and their ids; None when every token is left.
    """
    scaled = logits.float() / sampling.temperature
    if not (sampling.top_k or sampling.top_p < 1 or sampling.min_p):
        return torch.softmax(scaled.cpu().double(), -1), None
    size = scaled.shape[-1]
    values, tokens = scaled.topk(min(sampling.top_k or SHORTCUT, size))
    total = values if sampling.top_k else scaled
    probabilities = torch.exp(values - torch.logsumexp(total, -1)).cpu().double()
    if not sampling.top_k and len(values) < size and not _covered(probabilities, sampling):
        values, tokens = scaled.sort(descending=True)
        probabilities = torch.softmax(values.cpu().double(), -1)
    left = _narrow(probabilities, sampling)
    return probabilities[:left] / probabilities[:left].sum(), tokens[:left].cpu()


def _covered(probabilities: Tensor, sampling: Sampling) -> bool:
    """Whether the most likely tokens hold everything that is kept, so that the rest need not be looked at."""
    by_top_p = sampling.top_p < 1 and float(probabilities.sum()) >= sampling.top_p
    return by_top_p or bool(probabilities[-1] < sampling.min_p * probabilities[0])


def _narrow(probabilities: Tensor, sampling: Sampling) -> int:
    """How many of the sorted tokens are left: always one at least."""
    left = len(probabilities)
    if sampling.top_p < 1:
        before = probabilities.cumsum(-1) - probabilities
        left = int((before < sampling.top_p).sum())
    if sampling.min_p:
        left = min(left, int((probabilities >= sampling.min_p * probabilities[0]).sum()))
    return max(left, 1)


def _choose(probabilities: Tensor, tokens: Tensor | None, number: float) -> int:
    ladder = probabilities.cumsum(-1)
    if not math.isfinite(float(ladder[-1])):
        raise ArithmeticError("the model's output is not finite")
    at = int(torch.searchsorted(ladder, number * float(ladder[-1]), right=True))
    at = min(at, int(torch.searchsorted(ladder, ladder[-1])))  # no token without a chance, however near 1 the number
    return at if tokens is None else int(tokens[at])


def log_probabilities(logits: Tensor, token: int, most_likely: int) -> tuple[float, list[tuple[int, float]]]:
    """The model's own log-probabilities, before temperature and penalties.

    Args:
        logits: One value for each token of the vocabulary, shape `[vocabulary]`.
        token: The chosen token.
        most_likely: How many of the likeliest tokens to report as well.

    Returns:
        The natural-log probability of `token`, and `(id, natural-log probability)` of the likeliest, best first; none
        is below `IMPOSSIBLE`.
    """
    table = torch.log_softmax(logits.float(), -1).clamp(min=IMPOSSIBLE)
    best = table.topk(min(most_likely, len(table))) if most_likely else None
    pairs = list(zip(best.indices.tolist(), best.values.tolist(), strict=True)) if best is not None else []
    return float(table[token]), pairs
