"""The access log: one line per response at its end. No content, no client metadata."""

import logging
import time

from mellea_responses.runs import Run

access = logging.getLogger("mellea_responses.access")


def log_access(run: Run) -> None:
    """Writes the line of a run that is over."""
    if not access.isEnabledFor(logging.INFO):
        return
    usage, notes = run.response.usage, run.current.notes
    fields = {
        "owner": run.current.owner or "-",
        "end": run.cause,
        "match": notes.get("match", "-"),
        "usage": notes.get("usage", "true"),
        "input": usage.input_tokens if usage else 0,
        "cached": usage.input_tokens_details.cached_tokens if usage else 0,
        "output": usage.output_tokens if usage else 0,
        "first": f"{run.first:.3f}" if run.first is not None else "-",
        "total": f"{time.monotonic() - run.started:.3f}",
        "request": run.request_id or "-",
    }
    access.info("%s %s", run.id, " ".join(f"{key}={value}" for key, value in fields.items()))
