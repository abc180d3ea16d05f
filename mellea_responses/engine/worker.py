"""The model's thread. Nothing else touches the model.

A step is: let go of what nobody wants, admit from the queue, feed one chunk of one prompt, advance every row that is
decoding by one token, wake the readers once. One row runs at a time for now; the step is written for several.
"""

import logging
import threading
from collections.abc import Callable

import msgspec
import torch
from torch import Tensor
from transformers import Cache

from mellea_responses.engine.caches import TransformersCaches
from mellea_responses.engine.fallback import run_generate
from mellea_responses.engine.kv import PrefixStore
from mellea_responses.engine.model import Model
from mellea_responses.engine.outbox import Outbox, ring
from mellea_responses.engine.row import Row
from mellea_responses.engine.selfcheck import Features, self_check
from mellea_responses.errors import ApiError, Draining, ModelFailed
from mellea_responses.fair import FairQueue
from mellea_responses.turn import Step

log = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds that closing waits for the pass the model is in: a large prompt on a slow machine must not hold up exits."""


class Worker:
    """Runs rows on one model in one daemon thread.

    Args:
        model: The model.
        store: Where caches of finished turns go.
        rows: How many requests run at the same time.
        chunk: Tokens of a prompt fed in one forward pass.
        finished: Called with a row whose answer is complete, before its reader hears of the end.
    """

    def __init__(
        self,
        model: Model,
        store: PrefixStore[Cache],
        *,
        rows: int = 1,
        chunk: int = 256,
        finished: Callable[[Row], None] = lambda row: None,
    ) -> None:
        self.features: Features | None = None
        self._model, self._store, self._chunk, self._most_rows = model, store, chunk, rows
        self._finished = finished
        self._waiting: FairQueue[Row] = FairQueue()
        self._rows: list[Row] = []
        self._dirty: list[Outbox] = []
        self._changed = threading.Condition()
        self._closing = False
        self._checked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def submit(self, row: Row) -> None:
        """Queue a row.

        Raises:
            Draining: The engine is closed.
        """
        with self._changed:
            if self._closing:
                row.release()
                raise Draining("The engine is closed.")
            self._waiting.push(row.request.owner, row)
            self._changed.notify()

    def ready(self) -> Features:
        """Wait for the self-check and say what holds."""
        self._checked.wait()
        assert self.features is not None
        return self.features

    def counts(self) -> dict[str, int]:
        """Rows running and waiting."""
        with self._changed:
            return {"rows": len(self._rows), "waiting": len(self._waiting)}

    def close(self) -> None:
        """End every answer and the thread after the pass the model is in; a pass that is long is not waited for."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        self.features = self_check(self._model)
        if isinstance(self._store.ops, TransformersCaches):
            self._store.ops.crop = self.features.crop
        if not self.features.reuse:
            self._store.budget = 0
        self._checked.set()
        while self._wait():
            self._step()
        self._end_all(Draining("The engine is closed."))

    def _wait(self) -> bool:
        """Sleep until there is work; False when the engine is closed."""
        with self._changed:
            while not (self._closing or self._rows or len(self._waiting)):
                self._changed.wait()
            return not self._closing

    def _step(self) -> None:
        try:
            self._let_go()
            self._admit()
            self._advance()
        except Exception:
            # A fault of ours, not of one row: nothing may be left half done.
            log.exception("the engine's step failed")
            self._end_rows(ModelFailed("The model failed while it was answering."))
        self._wake()

    def _let_go(self) -> None:
        with self._changed:
            unwanted = self._waiting.take(lambda row: row.unwanted)
        for row in unwanted + [row for row in self._rows if row.unwanted]:
            self._guarded(row, self._finish)

    def _admit(self) -> None:
        while len(self._rows) < self._most_rows:
            with self._changed:
                if not len(self._waiting):
                    return
                row = self._waiting.pop()
                self._rows.append(row)
            self._guarded(row, self._start)

    def _start(self, row: Row) -> None:
        """Take up the longest cache there is: the promised one, or a longer one that was kept since."""
        newer = self._store.lease(row.request.owner, row.tokens)
        if newer is not None and row.lease is not None and newer.length <= row.lease.length:
            newer.release()
        elif newer is not None:
            row.release()
            row.lease = newer
        if row.lease is not None:
            row.cache, row.cached = row.lease.fork(), row.lease.length
            row.fed = row.cached
            row.lease.release()
            row.lease = None
        else:
            row.cache = self._model.new_cache()
        notes = row.request.notes
        notes["match"] = row.prompt.match if row.cached else "none"
        if row.cached and notes["match"] == "none":
            notes["match"] = "text"
        notes["cached"], notes["new"] = row.cached, len(row.prompt.tokens) - row.cached

    def _advance(self) -> None:
        features = self.ready()
        if not features.loop:
            for row in list(self._rows):
                self._guarded(row, self._generate)
            return
        filling = [row for row in self._rows if row.pending > 1][:1]
        writing = [row for row in self._rows if row.pending == 1]
        for row in filling + writing:
            self._guarded(row, self._feed)

    def _feed(self, row: Row) -> None:
        """Feed the next chunk; when the model has seen everything, choose a token."""
        size = self._chunk if self.ready().chunks else row.pending
        chunk = row.tokens[row.fed : row.fed + size]
        logits = self._model.forward(chunk, row.cache)
        row.fed += len(chunk)
        if not row.pending:
            self._say(row, row.choose(logits))
        if row.writer.reason is not None:
            self._finish(row)

    def _generate(self, row: Row) -> None:
        def choose(logits: Tensor) -> int:
            if row.writer.reason is None:  # on MPS `generate()` hears of the end one token late
                self._say(row, row.choose(logits))
                self._wake()
            return row.tokens[-1]

        limit = self._model.context_length - len(row.tokens)

        def over() -> bool:
            return row.writer.reason is not None or row.unwanted or self._closing

        run_generate(self._model, row.tokens[:], limit, choose, over)
        row.fed = len(row.prompt.tokens)
        row.cache = None
        if row.writer.reason is not None or row.unwanted:
            self._finish(row)  # else the engine is closing, and every row is told so

    def _guarded(self, row: Row, act: Callable[[Row], None]) -> None:
        """Do something for a row; whatever goes wrong ends that row and nothing else."""
        try:
            act(row)
        except ApiError as exc:
            self._end(row, exc)
        except torch.OutOfMemoryError:
            log.exception("out of memory; all kept caches are dropped")
            self._store.clear("out of memory")
            self._end(row, ModelFailed("The model ran out of memory for this conversation."))
        except Exception:
            log.exception("the model failed on a request")
            self._end(row, ModelFailed("The model failed while it was answering."))

    def _say(self, row: Row, steps: list[Step]) -> None:
        if steps:
            row.outbox.put(steps)
            self._dirty.append(row.outbox)

    def _finish(self, row: Row) -> None:
        """Keep the cache, then tell the reader: whoever asks on at once finds it."""
        if row.writer.reason is not None:
            self._finished(row)
        cache, row.cache = row.cache, None
        kept = False
        if cache is not None and row.fed > row.cached:
            reason = "cancelled" if row.writer.reason is None else row.writer.reason
            trace = row.writer.trace(row.prompt)
            kept = self._store.put(row.request.owner, row.tokens[: row.fed], cache, trace, reason)
        usage = row.usage()
        steps: list[Step] = [usage if kept else msgspec.structs.replace(usage, cache_write_tokens=0)]
        if row.writer.reason is not None:
            steps.append(row.writer.last())
        row.outbox.put(steps)
        self._end(row, None)

    def _end(self, row: Row, error: ApiError | None) -> None:
        row.release()
        with self._changed:
            if row in self._rows:
                self._rows.remove(row)
        row.outbox.end(error)
        self._dirty.append(row.outbox)

    def _end_rows(self, error: ApiError) -> None:
        for row in list(self._rows):
            self._end(row, error)

    def _end_all(self, error: ApiError) -> None:
        with self._changed:
            waiting = self._waiting.take(lambda row: True)
        for row in waiting + list(self._rows):
            self._end(row, error)
        self._wake()

    def _wake(self) -> None:
        boxes, self._dirty = dict.fromkeys(self._dirty), []
        ring(boxes)
