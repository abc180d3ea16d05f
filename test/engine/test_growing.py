import copy

import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.cache_utils import DynamicLayer

from mellea_responses.engine.growing import GrowingLayer

Pair = tuple[GrowingLayer, DynamicLayer]


def step(pair: Pair, count: int, value: float) -> None:
    keys = torch.full((1, 2, count, 4), value)
    shown = [layer.update(keys, -keys) for layer in pair]

    assert all(torch.equal(ours, stock) for ours, stock in zip(*shown, strict=True))


def cut(pair: Pair, count: int) -> None:
    for layer in pair:
        layer.crop(-min(count, layer.get_seq_length()))


def same(pair: Pair) -> bool:
    ours, stock = pair
    return ours.get_seq_length() == stock.get_seq_length() and (
        not stock.is_initialized or (torch.equal(ours.keys, stock.keys) and torch.equal(ours.values, stock.values))
    )


actions = st.tuples(st.sampled_from(["grow", "fork", "cut"]), st.integers(0, 5), st.integers(1, 300))


@given(st.lists(actions, max_size=12))
def test_however_forks_grow_and_are_cut_each_shows_what_the_stock_layer_shows(
    steps: list[tuple[str, int, int]],
) -> None:
    pairs: list[Pair] = [(GrowingLayer(), DynamicLayer())]
    for number, (action, which, count) in enumerate(steps):
        pair = pairs[which % len(pairs)]
        if action == "grow":
            step(pair, count, float(number))
        elif action == "cut":
            cut(pair, count)
        else:
            pairs.append((copy.copy(pair[0]), copy.copy(pair[1])))

        assert all(map(same, pairs))


def test_the_one_at_the_end_writes_on_without_copying() -> None:
    first = GrowingLayer()
    first.update(torch.ones(1, 1, 10, 4), torch.ones(1, 1, 10, 4))
    fork = copy.copy(first)

    fork.update(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1, 4))

    assert fork.keys.data_ptr() == first.keys.data_ptr()
    assert first.get_seq_length() == 10
