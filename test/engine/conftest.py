"""Fixtures of the engine's tests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine.tiny import Scripted, make_network, make_tokenizer
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from mellea_responses.engine.engine import Engine
from mellea_responses.engine.model import Model


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


@pytest.fixture(scope="session")
def network() -> LlamaForCausalLM:
    return make_network()


@pytest.fixture
def model(network: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> Scripted:
    return Scripted(network, tokenizer, "tiny")


@pytest.fixture
def started() -> Iterator[Callable[..., Engine]]:
    """Engines that are closed when the test is over."""
    engines: list[Engine] = []

    def start(model: Model, **options: Any) -> Engine:
        engine = Engine(model, kv_cache_bytes=options.pop("kv_cache_bytes", 2**24), **options)
        engines.append(engine)
        engine.ready()
        return engine

    yield start
    for engine in engines:
        engine.close()


@pytest.fixture
def engine(model: Scripted, started: Callable[..., Engine]) -> Engine:
    return started(model, chunk=2048)
