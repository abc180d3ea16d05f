"""What the self-check finds for models of several kinds, and that what it switches off is not used."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from engine.tiny import Scripted, ask, assistant, make_network, make_tokenizer, request, text_of, user
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Mamba2Config, Mamba2ForCausalLM

from mellea_responses.engine import worker
from mellea_responses.engine.caches import TransformersCaches
from mellea_responses.engine.engine import Engine
from mellea_responses.engine.model import Model
from mellea_responses.engine.selfcheck import Features, self_check
from mellea_responses.errors import Draining
from mellea_responses.turn import Options

Start = Callable[..., Engine]
EVERYTHING = Features(loop=True, chunks=True, reuse=True, crop=True)


def sliding() -> Model:
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=400, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, sliding_window=16, max_position_embeddings=512, eos_token_id=0,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"], bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    return Model(Gemma3ForCausalLM(config).eval(), make_tokenizer(), "sliding")


def recurrent() -> Model:
    torch.manual_seed(0)
    config = Mamba2Config(
        vocab_size=400, hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8, state_size=8, n_groups=1,
        chunk_size=8, eos_token_id=0, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    return Model(Mamba2ForCausalLM(config).eval(), make_tokenizer(), "recurrent")


class Forgetful(Scripted):
    """A model whose forward pass ignores the cache: what an architecture that is not understood looks like."""

    def forward(self, tokens: Sequence[int], cache: Any) -> torch.Tensor:
        return super().forward(tokens, self.new_cache() if cache is not None else None)


class Stubborn(Scripted):
    """A model whose caches cannot be cut."""

    def new_cache(self) -> Any:
        cache = super().new_cache()
        for layer in cache.layers:
            layer.crop = lambda tokens: (_ for _ in ()).throw(RuntimeError("cannot"))
        return cache


def test_full_attention_does_everything(model: Model) -> None:
    assert self_check(model) == EVERYTHING


def test_a_sliding_window_can_be_cut_until_it_is_full() -> None:
    model, caches = sliding(), TransformersCaches()
    cache = model.new_cache()

    model.forward(list(range(10, 20)), cache)
    early = caches.can_crop(cache, 10, 5)
    model.forward(list(range(10, 20)), cache)

    assert self_check(model) == EVERYTHING
    assert early
    assert not caches.can_crop(cache, 20, 15)
    assert caches.can_crop(cache, 20, 20)


def test_recurrent_states_are_forked_but_not_cut() -> None:
    features = self_check(recurrent())

    assert features.loop
    assert not features.crop


def test_a_cache_that_is_ignored_leaves_the_fallback_lane() -> None:
    assert self_check(Forgetful(make_network(), make_tokenizer(), "odd")) == Features()


def test_a_cache_that_cannot_be_cut_is_continued_only() -> None:
    features = self_check(Stubborn(make_network(), make_tokenizer(), "odd"))

    assert features == Features(loop=True, chunks=True, reuse=True)


@pytest.mark.parametrize("make", [sliding, recurrent])
async def test_every_family_answers_the_second_turn_as_without_a_cache(started: Start, make: Any) -> None:
    warm, cold = started(make()), started(make(), kv_cache=False)
    history = [user("hello the cat sat on the mat")]
    for _ in range(3):
        said = [text_of(await ask(engine, request(*history, user("go on")))) for engine in (warm, cold)]

        assert said[0] == said[1]
        history = [*history, user("go on"), assistant(said[0].encode("ascii", "ignore").decode() or "ok")]


@pytest.mark.parametrize(
    "features",
    [
        Features(),
        Features(loop=True),
        Features(loop=True, chunks=True),
        Features(loop=True, chunks=True, reuse=True),
        EVERYTHING,
    ],
    ids=lambda features: str([name for name in features.__struct_fields__ if getattr(features, name)]),
)
async def test_whatever_is_switched_off_the_answers_are_the_same(
    started: Start, model: Scripted, monkeypatch: pytest.MonkeyPatch, features: Features
) -> None:
    plain = started(Model(model.network, model.tokenizer, "tiny"))
    monkeypatch.setattr(worker, "self_check", lambda model: features)
    engine = started(Model(model.network, model.tokenizer, "tiny"), chunk=4)
    asked = [request(user("hello the cat")), request(user("hello the cat"), assistant("sat"), user("on?"))]

    for one in asked:
        expected = text_of(await ask(plain, request(*one.messages, owner="other")))
        assert text_of(await ask(engine, one)) == expected

    assert bool(asked[1].notes["cached"]) == features.crop


async def test_the_fallback_lane_stops_when_it_is_told_to(
    started: Start, model: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "self_check", lambda model: Features())
    engine = started(model)
    answer = engine.generate(request(user("hello"), options=request(user("")).options))

    await anext(answer)
    await answer.aclose()

    assert text_of(await ask(engine, request(user("hello"))))


async def test_closing_ends_the_fallback_lane_too(
    started: Start, model: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "self_check", lambda model: Features())
    engine = started(model)
    answer = engine.generate(request(user("hello"), options=Options(temperature=1.0, max_output_tokens=2000)))
    await anext(answer)

    await asyncio.to_thread(engine.close)

    with pytest.raises(Draining):
        [step async for step in answer]


async def test_the_fallback_lane_survives_an_error(
    started: Start, model: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "self_check", lambda model: Features())
    engine = started(model)
    expected = text_of(await ask(engine, request(user("hello"))))
    monkeypatch.setattr(worker, "run_generate", lambda *_: (_ for _ in ()).throw(RuntimeError("broken")))

    with pytest.raises(Exception, match="The model failed"):
        await ask(engine, request(user("hello")))
    monkeypatch.undo()

    assert text_of(await ask(engine, request(user("hello")))) == expected


async def test_a_token_that_comes_after_the_end_is_not_said(
    started: Start, model: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `generate()` does on MPS, where it hears of the end one token late."""
    monkeypatch.setattr(worker, "self_check", lambda model: Features())

    def late(model: Any, tokens: Any, limit: int, choose: Any, over: Any) -> None:
        ended = False
        while not ended:
            ended = over()
            choose(torch.arange(400.0) % 97)

    monkeypatch.setattr(worker, "run_generate", late)
    engine = started(model)

    steps = await ask(engine, request(user("hello"), options=Options(temperature=0.0, max_output_tokens=3)))

    assert steps[-2].output_tokens == 3  # type: ignore[union-attr]  # usage comes before the stop
    assert engine.counts()["rows"] == 0
