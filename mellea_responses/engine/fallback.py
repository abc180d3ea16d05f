"""The fallback lane: `generate()` for models on which the engine's own loop does not hold.

Everything but the forward passes is ours all the same: a processor chooses each token with the row's own sampling and
leaves `generate()` no other.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from mellea_responses.engine.model import Model


class _Chosen(LogitsProcessor):
    def __init__(self, choose: Callable[[Tensor], int]) -> None:
        self._choose = choose

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        token = self._choose(scores[0])
        only = torch.full_like(scores, float("-inf"))
        only[0, token] = 0
        return only


class _Over(StoppingCriteria):
    def __init__(self, over: Callable[[], bool]) -> None:
        self._over = over

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        return torch.full((len(input_ids),), self._over(), device=input_ids.device, dtype=torch.bool)


@torch.inference_mode()
def run_generate(
    model: Model, tokens: list[int], limit: int, choose: Callable[[Tensor], int], over: Callable[[], bool]
) -> None:
    """Generate with transformers' own loop.

    Args:
        model: The model.
        tokens: The prompt.
        limit: Most tokens to generate.
        choose: Takes the logits of the next token, shape `[vocabulary]`, and says which it is.
        over: Whether the token chosen last was the last.
    """
    prompt = torch.tensor([tokens], device=model.device)
    settings = GenerationConfig(max_new_tokens=limit, do_sample=False, pad_token_id=0)  # type: ignore[no-untyped-call]  # theirs
    model.network.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        generation_config=settings,
        logits_processor=LogitsProcessorList([_Chosen(choose)]),
        stopping_criteria=StoppingCriteriaList([_Over(over)]),
    )
