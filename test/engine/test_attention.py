"""Our own attention gives what transformers' gives, and where it does not it is not used."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from engine.tiny import make_network, make_tokenizer
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from mellea_responses.engine import attention
from mellea_responses.engine.attention import NAME, grouped_attention, use_grouped, use_own
from mellea_responses.engine.model import Model
from mellea_responses.engine.selfcheck import Features, self_check


@pytest.fixture
def model() -> Model:
    return Model(make_network(), make_tokenizer(), "tiny")


def inputs(batch: int, heads: int, shared: int, new: int, whole: int, size: int = 16) -> dict[str, Any]:
    torch.manual_seed(1)
    query = torch.randn(batch, new, heads, size).transpose(1, 2)  # as projections leave it
    buffers = [torch.randn(batch, shared, whole + 9, size) for _ in range(2)]  # with room behind, as caches have it
    key, value = (buffer[:, :, :whole] for buffer in buffers)
    return {"module": module(heads // shared), "query": query, "key": key, "value": value, "scaling": 0.3}


def module(groups: int) -> Any:
    return SimpleNamespace(num_key_value_groups=groups, is_causal=True, training=False)


def seen(new: int, whole: int) -> torch.Tensor:
    return torch.ones(1, 1, new, whole).tril(whole - new).bool()


@pytest.mark.parametrize(
    ("batch", "heads", "shared", "new", "whole", "masked"),
    [
        (1, 6, 2, 1, 7, False),
        (1, 6, 2, 7, 7, False),
        (1, 6, 2, 3, 7, True),
        (1, 6, 2, 1, 7, True),
        (1, 6, 1, 3, 7, True),
        (1, 4, 4, 3, 7, True),
        (2, 6, 2, 3, 7, True),
        (1, 6, 2, 3, 7, False),
    ],
)
def test_it_equals_sdpa_whatever_the_shapes(
    batch: int, heads: int, shared: int, new: int, whole: int, masked: bool
) -> None:
    given = inputs(batch, heads, shared, new, whole)
    mask = seen(new, whole) if masked else None

    expected, _ = sdpa_attention_forward(**given, attention_mask=mask)
    output, weights = grouped_attention(**given, attention_mask=mask)

    assert output.shape == expected.shape == (batch, new, heads, 16)
    assert weights is None
    torch.testing.assert_close(output, expected)


def test_a_mask_for_each_head_and_a_bias_are_left_to_transformers() -> None:
    given = inputs(1, 6, 2, 3, 7)
    per_head = seen(3, 7).repeat(1, 6, 1, 1)
    per_head[0, 4, :, 2] = False
    bias = torch.randn(1, 6, 3, 7)

    for more in ({"attention_mask": per_head}, {"attention_mask": None, "position_bias": bias}):
        torch.testing.assert_close(grouped_attention(**given, **more)[0], sdpa_attention_forward(**given, **more)[0])


def test_a_model_whose_heads_share_keys_gets_it_at_load(model: Model) -> None:
    assert self_check(model) == Features(loop=True, chunks=True, reuse=True, crop=True)

    assert model.network.config._attn_implementation == NAME
    use_own(model.network)
    assert model.network.config._attn_implementation == "sdpa"


def test_a_model_whose_heads_share_nothing_keeps_transformers_own() -> None:
    network = make_network()
    network.config.num_key_value_heads = network.config.num_attention_heads

    assert not use_grouped(network)
    assert network.config._attn_implementation == "sdpa"


def test_an_attention_that_was_chosen_by_somebody_else_stays() -> None:
    network = make_network()
    network.set_attn_implementation("eager")

    assert not use_grouped(network)
    use_own(network)
    assert network.config._attn_implementation == "eager"


@pytest.mark.parametrize("wrong", ["shuffled", "raising"])
def test_where_it_is_wrong_the_self_check_switches_it_off(
    model: Model, monkeypatch: pytest.MonkeyPatch, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        if wrong == "raising":
            raise RuntimeError("no such kernel")
        output, weights = sdpa_attention_forward(*args, **kwargs)
        return output.flip(2), weights

    monkeypatch.setattr(attention, "grouped_attention", broken)

    features = self_check(model)

    assert features == Features(loop=True, chunks=True, reuse=True, crop=True)
    assert model.network.config._attn_implementation == "sdpa"
    assert "own attention" in caplog.text


@pytest.mark.parametrize("chunk", [1, 5, 40])
def test_a_prompt_in_chunks_gives_the_same_as_transformers_in_one_piece(model: Model, chunk: int) -> None:
    tokens = [5 + n % 50 for n in range(40)]
    expected = model.forward(tokens, None)
    assert use_grouped(model.network)
    cache = model.new_cache()

    for at in range(0, len(tokens), chunk):
        logits = model.forward(tokens[at : at + chunk], cache)

    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
