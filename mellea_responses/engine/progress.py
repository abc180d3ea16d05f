"""Progress of downloads, conversions and loading: a bar on a terminal, a few plain lines elsewhere, all to stderr."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import Progress
from transformers import modeling_gguf_pytorch_utils
from transformers.utils import logging as transformers_logging


class QuietBar:
    """As much of tqdm as transformers uses, showing nothing.

    Args:
        items: What is worked through, if the caller iterates over the bar.
        total: How many there are.
        desc: What is being done.
    """

    def __init__(self, items: Iterable[Any] | None = None, *, total: float | None = None, desc: str = "", **_: Any):
        self._items = items
        self.total = total if total is not None or not hasattr(items, "__len__") else len(items)  # type: ignore[arg-type]  # has a length
        self.desc = desc.rstrip(". ") or "Working"
        self.n = 0.0

    def update(self, n: float = 1) -> None:
        self.n += n

    def close(self) -> None:
        """Nothing is open."""

    def __iter__(self) -> Iterator[Any]:
        with self:
            for item in self._items or ():
                yield item
                self.update()

    def __enter__(self) -> "QuietBar":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ignore(self, *_: Any, **__: Any) -> None:
        pass

    set_postfix = set_postfix_str = set_description = refresh = _ignore


class LineBar(QuietBar):
    """One line at each quarter, for logs; nothing for what is done in a moment."""

    _quarter = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._quick_until = monotonic() + 1

    def update(self, n: float = 1) -> None:
        super().update(n)
        quarter = int(4 * self.n / self.total) if self.total else 0
        if quarter > self._quarter:
            self._quarter = quarter
            if monotonic() > self._quick_until:
                self._print(quarter)

    def _print(self, quarter: int) -> None:
        print(f"{self.desc}: {25 * quarter} %", file=sys.stderr, flush=True)


class TerminalBar(QuietBar):
    """A live bar that disappears when it is done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._progress = Progress(console=Console(stderr=True), transient=True)
        self._progress.start()
        self._task = self._progress.add_task(self.desc, total=self.total)

    def update(self, n: float = 1) -> None:
        super().update(n)
        self._progress.update(self._task, completed=self.n)

    def close(self) -> None:
        self._progress.stop()


@contextmanager
def shown_progress(wanted: bool) -> Iterator[None]:
    """Route transformers' progress bars while something is loaded, and put them back after."""
    bar = (TerminalBar if sys.stderr.isatty() else LineBar) if wanted else QuietBar

    def hook(_: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return bar(*args, **kwargs)

    before = transformers_logging.set_tqdm_hook(hook)
    # The GGUF reader takes tqdm from elsewhere and would not see the hook.
    reader: Any = modeling_gguf_pytorch_utils
    readers_own, reader.tqdm = reader.tqdm, bar
    try:
        yield
    finally:
        reader.tqdm = readers_own
        transformers_logging.set_tqdm_hook(before)
