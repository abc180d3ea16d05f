"""The access log: one line per response at its end, and one per error. No content, no client metadata."""

import logging
import sys
import time
from typing import TextIO

from mellea_responses.errors import ApiError
from mellea_responses.runs import Run

access = logging.getLogger("mellea_responses.access")


class RawHandler(logging.Handler):
    """Writes a line as it is, with the time: a formatter and a lock for each answer cost a fifth of a plain one.

    Args:
        stream: Where to; standard error if left out.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__()
        self._stream = stream or sys.stderr
        self._second, self._stamp = 0, ""

    def handle(self, record: logging.LogRecord) -> bool:
        """One write, which is whole without a lock."""
        self._stream.write(self._line(record.getMessage()))
        return True

    def write(self, message: str) -> None:
        """The same without a record."""
        self._stream.write(self._line(message))

    def _line(self, message: str) -> str:
        now = int(time.time())
        if now != self._second:
            self._second, self._stamp = now, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        return f"{self._stamp} INFO mellea_responses.access {message}\n"


def log_access(run: Run) -> None:
    """Writes the line of a run that is over."""
    if not access.isEnabledFor(logging.INFO):
        return
    only = access.handlers[0] if len(access.handlers) == 1 and not access.propagate else None
    if isinstance(only, RawHandler):
        only.write(_line(run))
    else:
        access.info(_line(run))


def log_refusal(error: ApiError, owner: str, request_id: str) -> None:
    """Writes the line of a request that was answered with an error."""
    code = "_".join(error.code.split())[:64]  # a program may have put anything into it
    access.info("error status=%d code=%s owner=%s request=%s", error.status, code, owner or "-", request_id)


def _line(run: Run) -> str:
    usage, notes = run.response.usage, run.current.notes
    first = f"{run.first:.3f}" if run.first is not None else "-"
    return (
        f"{run.id} owner={run.current.owner or '-'} end={run.cause} match={notes.get('match', '-')} "
        f"usage={notes.get('usage', 'true')} input={usage.input_tokens if usage else 0} "
        f"cached={usage.input_tokens_details.cached_tokens if usage else 0} "
        f"output={usage.output_tokens if usage else 0} "
        f"first={first} total={time.monotonic() - run.started:.3f} request={run.request_id or '-'}"
    )
