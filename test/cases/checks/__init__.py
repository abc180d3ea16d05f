"""Every sentence that is bound, by the room it speaks of."""

from cases.checks import forms, models, objects, server, state, streams, turns
from cases.checks.registry import CHECKS, judge

__all__ = ["CHECKS", "forms", "judge", "models", "objects", "server", "state", "streams", "turns"]
