"""Every sentence that is bound, by the room it speaks of."""

from cases.checks import models, objects, server, state, streams, turns
from cases.checks.registry import CHECKS, judge

__all__ = ["CHECKS", "judge", "models", "objects", "server", "state", "streams", "turns"]
