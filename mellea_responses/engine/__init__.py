"""The engine: one thread that owns a model, fed by requests and speaking Steps.

Nothing heavy is imported until `Engine` is asked for, so that a server without a model never loads torch.
"""

from typing import TYPE_CHECKING, Any

from mellea_responses.engine.request import GenerateRequest, LoadError
from mellea_responses.engine.threads import size_threads

if TYPE_CHECKING:
    from mellea_responses.engine.engine import Engine

__all__ = ["Engine", "GenerateRequest", "LoadError"]

# Any module of this package may be the first to import torch, whose OpenMP runtime reads its settings once.
size_threads()


def __getattr__(name: str) -> Any:
    if name == "Engine":
        from mellea_responses.engine.engine import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
