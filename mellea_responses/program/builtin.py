"""The program behind `--model`: the engine, called directly. No thunk, no Mellea."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Literal

from mellea_responses.program.messages import to_chat_choice, to_chat_tools, to_messages
from mellea_responses.settings import Settings
from mellea_responses.turn import CurrentRun, Facts, Flag, Step, Turn

if TYPE_CHECKING:
    from mellea_responses.engine.engine import Engine
    from mellea_responses.engine.request import GenerateRequest


class ModelProgram:
    """A bare model as a program.

    Args:
        engine: The loaded model.
        name: The name it is served under.
    """

    can_compact = True
    images: Literal["refuse"] = "refuse"  # the engine reads text

    def __init__(self, engine: "Engine", name: str | None = None) -> None:
        self.engine = engine
        self.name = name or engine.name

    @classmethod
    def load(cls, settings: Settings) -> "ModelProgram":
        """Loads the model that the settings name.

        Raises:
            LoadError: it cannot be found or loaded.
        """
        from mellea_responses.program.load import LoadError

        try:
            from mellea_responses.engine.engine import Engine
        except ImportError as exc:
            raise LoadError(
                f"Serving a model needs the engine ({exc.name} is missing): pip install 'mellea-responses[hf]'"
            ) from None
        try:
            engine = Engine.load(
                settings.model,
                device=settings.device,
                dtype=settings.dtype,
                max_output_tokens=settings.max_output_tokens,
                kv_cache=settings.kv_cache,
                kv_cache_bytes=settings.kv_cache_bytes,
                trust_remote_code=settings.trust_remote_code,
            )
        except (OSError, ValueError, RuntimeError, ImportError) as exc:
            raise LoadError(f"{settings.model or 'the embedded model'}: {exc}") from exc
        return cls(engine, settings.model_names[0] if settings.model_names else None)

    async def check(self, turn: Turn, owner: str) -> Facts | None:
        """Renders and counts, off this loop: a long prompt takes milliseconds to tokenise."""
        return await asyncio.to_thread(self.engine.check, _request(turn, owner, {}, Flag()))

    async def run(self, current: CurrentRun) -> AsyncIterator[Sequence[Step]]:
        """Generates the answer."""
        request = _request(current.turn, current.owner, current.notes, current.cancelled)
        async for batch in self.engine.generate(request):
            yield batch

    def close(self) -> None:
        """Ends the model's thread."""
        self.engine.close()


def _request(turn: Turn, owner: str, notes: dict[str, str | int | float], cancelled: Flag) -> "GenerateRequest":
    from mellea_responses.engine.request import GenerateRequest

    return GenerateRequest(
        messages=tuple(to_messages(turn)),
        tools=tuple(to_chat_tools(turn)) if turn.tool_choice != "none" else (),
        options=turn.options,
        format=turn.format,
        tool_choice=to_chat_choice(turn),
        parallel_tool_calls=turn.parallel_tool_calls,
        owner=owner,
        notes=notes,
        cancelled=cancelled,
        truncation=turn.request.truncation or "disabled",
    )
