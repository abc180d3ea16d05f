"""A tiny random model and its tokenizer, and how the tests talk to an engine: no network, no real weights."""

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mellea_responses.engine.engine import Engine
from mellea_responses.engine.model import Model
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.turn import Options, Step, Text

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|im_end|>", "<|im_start|>"]
GREEDY = Options(temperature=0.0, max_output_tokens=12)
CORPUS = ["the cat sat on the mat and said hello to the world", "user assistant system tool call", "0123456789 {}[]:,"]


def make_tokenizer(template: str | None = CHATML, special: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    names = [*SPECIAL, *special]
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=names, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=SPECIAL[0], additional_special_tokens=names, model_max_length=10**12
    )
    tokenizer.chat_template = template
    return tokenizer


def make_network(context_length: int = 2048, seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=400,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context_length,
        eos_token_id=0,
        bos_token_id=None,
        initializer_range=0.3,
        **changes,
    )
    return LlamaForCausalLM(config).eval()


class Readable(Model):
    """A random network that says nothing but readable text and its end."""

    def forward(self, tokens: Sequence[int], cache: Any) -> torch.Tensor:
        logits = super().forward(tokens, cache)
        return logits.masked_fill(self._unreadable(len(logits)), -1e4)

    def _unreadable(self, size: int) -> torch.Tensor:
        if not hasattr(self, "_mask"):
            words = [self.tokenizer.decode([token]) for token in range(2, len(self.tokenizer))]
            mask = [False, True, *("\N{REPLACEMENT CHARACTER}" in word or not word.isprintable() for word in words)]
            self._mask = torch.tensor(mask + [True] * (size - len(mask)))
        return self._mask


class Scripted(Readable):
    """Says what it is told to. The network runs all the same, so its caches are real."""

    script: list[int] | None = None
    fed: list[list[int]]
    fails_at: int | None = None

    def forward(self, tokens: Sequence[int], cache: Any) -> torch.Tensor:
        if self.script is None and self.fails_at is None:
            self.fed = [*getattr(self, "fed", []), list(tokens)]
            return super().forward(tokens, cache)
        self.fed.append(list(tokens))
        if self.fails_at is not None and len(self.fed) > self.fails_at:
            raise RuntimeError("the device is on fire at /secret/path")
        logits = super().forward(tokens, cache)
        if self.script is None:
            return logits
        wanted = torch.full_like(logits, -100.0)
        wanted[self.script.pop(0) if self.script else 0] = 100.0
        return wanted

    def say(self, text: str, *, end: bool = True) -> None:
        """The next answer, in the tokens the tokenizer would choose."""
        self.fed = []
        self.script = self.tokenizer.encode(text, add_special_tokens=False) + ([0] if end else [])


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def request(*messages: dict[str, Any], options: Options = GREEDY, **more: Any) -> GenerateRequest:
    return GenerateRequest(messages=messages, options=options, **more)


async def ask(engine: Engine, asked: GenerateRequest) -> list[Step]:
    return [step async for batch in engine.generate(asked) for step in batch]


def text_of(steps: Sequence[Step]) -> str:
    return "".join(step.text for step in steps if isinstance(step, Text))
