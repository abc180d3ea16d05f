import random
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    GenerationConfig,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from mellea_responses.engine.sample import Sampling, kept, log_probabilities, penalise, pick, settle
from mellea_responses.turn import Options

VOCABULARY = 1000


def logits(seed: int, spread: float = 3.0, size: int = VOCABULARY) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread


def stock(values: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Probabilities by transformers' own warpers, in transformers' order."""
    scores = TemperatureLogitsWarper(sampling.temperature)(None, values[None].double())
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(None, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(None, scores)
    if sampling.min_p:
        scores = MinPLogitsWarper(sampling.min_p)(None, scores)
    return torch.softmax(scores[0], -1)


@settings(max_examples=150)
@given(
    seed=st.integers(0, 50),
    spread=st.sampled_from([0.05, 1.0, 4.0]),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_p=st.sampled_from([1.0, 0.99, 0.9, 0.5, 0.01]),
    top_k=st.sampled_from([0, 2, 50, 255, 256, 300, 5000]),
    min_p=st.sampled_from([0.0, 0.001, 0.1]),
)
def test_the_shortcut_keeps_exactly_what_transformers_keeps(
    seed: int, spread: float, temperature: float, top_p: float, top_k: int, min_p: float
) -> None:
    sampling = Sampling(temperature, top_p, top_k, min_p)
    values = logits(seed, spread)

    probabilities, tokens = kept(values, sampling)

    found = torch.zeros(VOCABULARY, dtype=torch.float64)
    found[torch.arange(VOCABULARY) if tokens is None else tokens] = probabilities
    # A token on the very edge of top_p may fall either way by rounding; its weight is then all the difference.
    assert torch.allclose(found, stock(values, sampling), atol=2e-3)
    assert float((found - stock(values, sampling)).abs().sum()) < 2e-2


def test_a_seed_gives_the_same_tokens_again() -> None:
    sampling = Sampling(1.0, 0.95)

    def run() -> list[int]:
        draw = random.Random(7).random
        return [pick(logits(n), sampling, draw) for n in range(20)]

    assert run() == run()


def test_draws_follow_the_probabilities() -> None:
    values = torch.log(torch.tensor([0.5, 0.3, 0.2]))
    draw = random.Random(1).random

    counts = Counter(pick(values, Sampling(1.0), draw) for _ in range(4000))

    assert counts[0] / 4000 == pytest.approx(0.5, abs=0.03)
    assert counts[2] / 4000 == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, top_k=1), Sampling(0.7, top_p=1e-9)])
def test_nothing_is_left_to_chance_when_one_token_is_left(sampling: Sampling) -> None:
    values = logits(3)

    assert pick(values, sampling, lambda: 0.999999) == int(values.argmax())


@pytest.mark.parametrize("number", [0.0, 0.5, 1.0 - 2**-53])
def test_every_number_drawn_gives_a_token(number: float) -> None:
    for sampling in [Sampling(1.0), Sampling(1.0, 0.9), Sampling(1.0, top_k=3), Sampling(1.0, min_p=0.5)]:
        assert 0 <= pick(logits(1), sampling, lambda: number) < VOCABULARY


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.0, 0.5)])
def test_output_that_is_no_number_is_an_error(value: float, sampling: Sampling) -> None:
    values = logits(1)
    values[3] = value

    with pytest.raises(ArithmeticError):
        pick(values, sampling, lambda: 0.5)


def test_a_forbidden_token_is_never_chosen() -> None:
    values = torch.full((50,), float("-inf"))
    values[7] = 0.0

    assert pick(values, Sampling(1.0, 0.9), lambda: 0.99) == 7


@given(st.sets(st.integers(0, 49)), st.sampled_from([0.5, 1.3]))
def test_repetition_is_punished_as_transformers_does(seen: set[int], penalty: float) -> None:
    values = logits(1, size=50)

    ours = penalise(values, Sampling(repetition_penalty=penalty), seen, {})

    stock = RepetitionPenaltyLogitsProcessor(penalty)(
        torch.tensor([list(seen)], dtype=torch.long), values[None].clone()
    )
    assert torch.allclose(ours, stock[0])


def test_presence_counts_once_and_frequency_each_time() -> None:
    values = torch.zeros(4)

    punished = penalise(values, Sampling(presence_penalty=0.5, frequency_penalty=0.25), {0}, {1: 1, 2: 3})

    assert punished.tolist() == [0.0, -0.75, -1.25, 0.0]
    assert values.tolist() == [0.0] * 4


def test_log_probabilities_are_the_model_s_own() -> None:
    values = torch.log(torch.tensor([0.5, 0.3, 0.2]))

    own, best = log_probabilities(values, 2, 2)

    assert own == pytest.approx(-1.609, abs=1e-3)
    assert [token for token, _ in best] == [0, 1]


def test_more_alternatives_than_tokens_are_all_of_them() -> None:
    assert len(log_probabilities(torch.zeros(3), 0, 20)[1]) == 3


def test_a_model_that_does_not_sample_is_greedy_until_asked() -> None:
    own = GenerationConfig(do_sample=False)

    assert settle(Options(), own).temperature == 0
    assert settle(Options(top_p=0.5), own).temperature == 1.0
    assert settle(Options(temperature=0.3), own) == Sampling(temperature=0.3)


def test_the_client_wins_over_the_model_s_own_numbers() -> None:
    own = GenerationConfig(do_sample=True, temperature=0.6, top_p=0.95, top_k=20)

    assert settle(Options(), own) == Sampling(0.6, 0.95, 20)
    assert settle(Options(temperature=0.0, top_k=0), own) == Sampling(0.0, 0.95, 0)


@pytest.mark.parametrize("temperature", [5e-324, 1e-46, 1e-40, 1e-30, 1e-6, 1e-5])
@pytest.mark.parametrize("more", [{}, {"top_p": 0.9}, {"min_p": 0.1}, {"top_k": 3}])
def test_the_coldest_temperatures_choose_the_likeliest_token(temperature: float, more: dict[str, float]) -> None:
    values = logits(1)

    sampling = Sampling(temperature=temperature, **more)  # type: ignore[arg-type]  # top_k is an int

    assert pick(values, sampling, lambda: 0.999) == int(values.argmax())


@pytest.mark.parametrize("penalty", [5e-324, 1e-40, 1e-9, 10.0])
@pytest.mark.parametrize("temperature", [0.0, 1e-5, 1.0, 2.0])
def test_no_repetition_penalty_makes_a_choice_impossible(penalty: float, temperature: float) -> None:
    sampling = Sampling(temperature=temperature, top_p=0.9, repetition_penalty=penalty, presence_penalty=-2.0)
    values = logits(2)
    said = int(values.argmax())

    token = pick(penalise(values, sampling, [said], {said: 3}), sampling, lambda: 0.5)

    assert (token == said) == (penalty < 1)


def test_a_token_without_a_chance_has_a_number_that_json_can_say() -> None:
    values = torch.full((30,), float("-inf"))
    values[3], values[7] = 1.0, 2.0

    chosen, likeliest = log_probabilities(values, 3, 20)

    assert chosen > -2
    assert len(likeliest) == 20
    assert [value for _, value in likeliest[2:]] == [-9999.0] * 18
