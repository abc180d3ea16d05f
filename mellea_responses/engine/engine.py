"""The engine's face: load a model, check a request, stream its answer."""

import asyncio
import atexit
import os
from collections.abc import AsyncIterator, Sequence

from transformers import Cache

from mellea_responses.engine.caches import TransformersCaches
from mellea_responses.engine.constrain import Grammar, Grammars
from mellea_responses.engine.kv import PrefixStore
from mellea_responses.engine.load import load_model
from mellea_responses.engine.model import Model
from mellea_responses.engine.outbox import Outbox
from mellea_responses.engine.parse import make_splitter
from mellea_responses.engine.prompt import Prompter, offered
from mellea_responses.engine.recall import Recall
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.engine.row import Row
from mellea_responses.engine.sample import settle
from mellea_responses.engine.selfcheck import Features
from mellea_responses.engine.splice import Prompt
from mellea_responses.engine.vocabulary import Vocabulary
from mellea_responses.engine.worker import Worker
from mellea_responses.engine.writer import Writer
from mellea_responses.turn import Facts, Step

GIB = 2**30


class Engine:
    """One model, owned by one thread, for any number of event loops.

    Args:
        model: A loaded model.
        kv_cache_bytes: Bytes of caches to keep between turns; None takes a quarter of the machine's memory, 4 GiB
            at most.
        kv_cache: Whether to keep caches at all. Without them every turn is computed from its beginning.
        max_output_tokens: Limit for requests that set none; None leaves what is left of the context.
        rows: How many requests run at the same time; the others wait, owners in turn.
        chunk: Tokens of a prompt fed in one forward pass: the longest a cancelled prompt goes on.

    Attributes:
        name: What the model is called.
        context_length: Tokens of prompt and answer together.
    """

    def __init__(
        self,
        model: Model,
        *,
        kv_cache_bytes: int | None = None,
        kv_cache: bool = True,
        max_output_tokens: int | None = None,
        rows: int = 1,
        chunk: int = 256,
    ) -> None:
        self.name, self.context_length = model.name, model.context_length
        self._model, self._max_output_tokens = model, max_output_tokens
        budget = _default_budget() if kv_cache_bytes is None else kv_cache_bytes
        self._store: PrefixStore[Cache] = PrefixStore(budget if kv_cache else 0, TransformersCaches())
        self._recall = Recall()
        self._prompter = Prompter(model.tokenizer, model.context_length, self._recall)
        self._vocabulary = Vocabulary(model.tokenizer)
        self._grammars = Grammars(model.tokenizer, model.vocabulary_size, model.ends)
        self._worker = Worker(model, self._store, rows=rows, chunk=chunk, finished=self._remember)
        # A daemon thread that is inside torch when the interpreter goes away can crash the process.
        atexit.register(self.close)

    @classmethod
    def load(
        cls,
        source: str | None = None,
        *,
        device: str = "auto",
        dtype: str = "auto",
        kv_cache_bytes: int | None = None,
        kv_cache: bool = True,
        max_output_tokens: int | None = None,
        progress: bool = True,
        trust_remote_code: bool = False,
    ) -> "Engine":
        """Load a model and start its thread.

        Args:
            source: Hub id, folder or `.gguf` file; None is the embedded default.
            device: `auto` takes CUDA, then MPS, then the CPU.
            dtype: `auto` takes float32 on the CPU, where it makes reuse exact, and the checkpoint's own elsewhere.
            kv_cache_bytes: Bytes of caches to keep between turns.
            kv_cache: Whether to keep caches at all.
            max_output_tokens: Limit for requests that set none.
            progress: Show what takes long, on stderr.
            trust_remote_code: Run code that comes with the model and read weights that are not safetensors.

        Raises:
            LoadError: The model cannot be loaded; the message says why in one line.
        """
        model = load_model(source, device=device, dtype=dtype, progress=progress, trust=trust_remote_code)
        return cls(model, kv_cache_bytes=kv_cache_bytes, kv_cache=kv_cache, max_output_tokens=max_output_tokens)

    def check(self, request: GenerateRequest) -> Facts:
        """Everything that can be refused is refused here, before anything is generated.

        Raises:
            InvalidRequest: There is nothing to answer, a part is no text, or the chat template refuses the messages.
            ContextLengthExceeded: The prompt leaves no room for an answer.
        """
        prompt = self._prepare(request)
        return Facts(
            input_tokens=len(prompt.tokens),
            context_length=self.context_length,
            vision=False,
            logprobs=True,
            schemas=self._grammars.usable,
        )

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Sequence[Step]]:
        """Answer a request, on any event loop.

        Yields:
            Steps that are ready, as many at a time as there are; at the end `Usage` and `Stop`. An answer that was
            cancelled ends with `Usage` alone.

        Raises:
            InvalidRequest: As `check` does.
            ModelFailed: The model failed on this request; others go on.
            Draining: The engine was closed.
        """
        # Off the loop: a long new prompt takes milliseconds to tokenise, and so does a large grammar.
        prompt, grammar = await asyncio.to_thread(self._plan, request)
        row = self._row(request, prompt, grammar)
        try:
            self._worker.submit(row)
            async for batch in row.outbox.batches():
                yield batch
        finally:
            row.abandoned = True

    def ready(self) -> Features:
        """Wait until the load-time self-check is over and say what holds for this model."""
        return self._worker.ready()

    def counts(self) -> dict[str, int]:
        """Rows, queue, snapshots, leases and bytes: what must go back to rest when nobody asks."""
        return {**self._worker.counts(), **self._store.counts()}

    def close(self) -> None:
        """End every open answer and the model's thread after the pass it is in; waits for that a second at most."""
        atexit.unregister(self.close)
        self._worker.close()
        self._store.clear("closed")

    def _prepare(self, request: GenerateRequest) -> Prompt:
        if request.raw is not None:
            return self._prompter.continued(request.raw)
        return self._prompter.prepare(request, self._store.traces(request.owner))

    def _plan(self, request: GenerateRequest) -> tuple[Prompt, Grammar | None]:
        prompt = self._prepare(request)
        return prompt, self._grammars.for_answer(request, prompt.text, taught=self._prompter.teaches(request))

    def _row(self, request: GenerateRequest, prompt: Prompt, grammar: Grammar | None) -> Row:
        left = self.context_length - len(prompt.tokens)
        asked = request.options.max_output_tokens or self._max_output_tokens or left
        writer = Writer(
            self._model.tokenizer,
            make_splitter(self._model.tokenizer, prompt.text, offered(request), taught=self._prompter.teaches(request)),
            ends=self._model.ends,
            stops=request.options.stop,
            limit=min(asked, left),
            fence=self._prompter.fence,
        )
        return Row(
            request,
            prompt,
            writer,
            settle(request.options, self._model.generation_config),
            self._vocabulary,
            Outbox(),
            self._store.lease(request.owner, prompt.tokens),
            grammar=grammar,
            kept=self._store.budget > 0,
        )

    def _remember(self, row: Row) -> None:
        """Reasoning is kept by the visible turn, for clients that will not send it back."""
        if thought := row.writer.message().get("reasoning_content"):
            self._recall.keep(row.request.owner, row.writer.trace(row.prompt).turn, thought)


def _default_budget() -> int:
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        memory = 8 * GIB
    return min(4 * GIB, memory // 4)
