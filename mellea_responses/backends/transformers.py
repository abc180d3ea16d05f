"""`TransformersBackend`: a local model for Mellea sessions, over the engine that serves `--model`.

Every token is its own delta, several generations run at once, what an earlier turn computed is used again, and the
caches of one owner never serve another.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from mellea.backends import ModelOption
from mellea.backends.backend import FormatterBackend
from mellea.backends.tools import (
    add_tools_from_context_actions,
    add_tools_from_model_options,
    convert_tools_to_json,
)
from mellea.core import Component, MelleaLogger, ModelOutputThunk
from mellea.formatters import ChatFormatter, TemplateFormatter

from mellea_responses.backends.answer import Answer, cost, kept_to
from mellea_responses.backends.history import to_messages
from mellea_responses.backends.options import REMAP, to_choice, to_options
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.program import bridge
from mellea_responses.program.inputs import ClientTool
from mellea_responses.program.messages import to_chat_choice
from mellea_responses.turn import CurrentRun, Flag, Format, Step, current_run

if TYPE_CHECKING:
    from mellea_responses.engine.engine import Engine

PROVIDER = "transformers"


class TransformersBackend(FormatterBackend):
    """A Mellea backend on this machine.

    Args:
        model: Hub id, folder or GGUF file; None is the embedded model. Or an engine that is loaded already, which
            stays its owner's to close.
        formatter: Renders components; Mellea's templates if left out.
        model_options: Defaults for every generation.
        engine_options: What `Engine.load` takes: `device`, `dtype`, `kv_cache_bytes`, `max_output_tokens`, ….

    Raises:
        LoadError: the model cannot be loaded.
        ImportError: the engine is not installed.
    """

    def __init__(
        self,
        model: "str | Engine | None" = None,
        formatter: ChatFormatter | None = None,
        *,
        model_options: dict[str, Any] | None = None,
        **engine_options: Any,
    ) -> None:
        self._owned = model is None or isinstance(model, str)
        self.engine: Engine = _load(model, engine_options) if model is None or isinstance(model, str) else model
        name = self.engine.name
        super().__init__(name, formatter or TemplateFormatter(model_id=name), model_options=model_options)
        self._model_id, self._provider = name, PROVIDER

    async def _generate_from_context(
        self,
        action: Any,
        ctx: Any,
        *,
        format: Any = None,
        model_options: dict[str, Any] | None = None,
        tool_calls: bool = False,
    ) -> tuple[ModelOutputThunk[Any], Any]:
        self._raise_if_closed()
        await self.do_generate_walk(action)
        options = bridge.merged(self.model_options, model_options, REMAP)
        tools = self._tools(action, ctx, options) if tool_calls and format is None else {}
        view = ctx.view_for_generation() or []
        messages = to_messages([*view, action], self.formatter, options.get(ModelOption.SYSTEM_PROMPT))
        stop = Flag()
        request = self._request(messages, options, tools, format, stop)
        thunk = bridge.new_thunk(action, view, options, stop.set)
        thunk.generation.model, thunk.generation.provider = self._model_id, self._provider
        source: Any = kept_to(self.engine.generate(request), request.format)
        bridge.begin(
            thunk,
            source if options.get(ModelOption.STREAM) else _joined(source),
            Answer.fold,
            functools.partial(Answer.finish, tools=tools, messages=messages, backend=f"{PROVIDER}::{self._model_id}"),
            timeout=options.get(ModelOption.STREAM_TIMEOUT),  # a queue of others is no reason to fail
            stop=stop.set,
        )
        return thunk, ctx.add(action).add(thunk)

    def _tools(self, action: Any, ctx: Any, options: dict[str, Any]) -> dict[str, Any]:
        tools: dict[str, Any] = {}
        add_tools_from_model_options(tools, options)
        add_tools_from_context_actions(tools, ctx.actions_for_available_tools())
        add_tools_from_context_actions(tools, [action])
        return tools

    def _request(
        self,
        messages: list[dict[str, Any]],
        options: dict[str, Any],
        tools: dict[str, Any],
        format: Any,
        stop: Flag,
        raw: str | None = None,
    ) -> GenerateRequest:
        run = current_run.get()
        choice, parallel = _policy(run, options, tools)
        return GenerateRequest(
            messages=tuple(messages),
            tools=tuple(convert_tools_to_json(tools)) if choice != "none" else (),
            options=to_options(options, self._warn),
            format=_form(format),
            tool_choice=choice,
            parallel_tool_calls=parallel,
            owner=run.owner if run is not None else "",
            notes=run.notes if run is not None else {},
            cancelled=_Either(stop, run),
            raw=raw,
        )

    def _warn(self, name: str) -> None:
        if name not in self._warned_about:
            self._warned_about.add(name)
            MelleaLogger.get_logger().warning("TransformersBackend does not know the option %s", name)

    async def _generate_from_raw(
        self,
        actions: Sequence[Any],
        ctx: Any,
        *,
        format: Any = None,
        model_options: dict[str, Any] | None = None,
        tool_calls: bool = False,
    ) -> tuple[list[ModelOutputThunk[Any]], dict[str, Any] | None]:
        self._raise_if_closed()
        await self.do_generate_walks(list(actions))
        options = bridge.merged(self.model_options, model_options, REMAP)
        thunks = await asyncio.gather(*(self._continued(action, options, format) for action in actions))
        return list(thunks), cost([thunk.generation.usage or {} for thunk in thunks])

    async def _continued(self, action: Any, options: dict[str, Any], format: Any) -> ModelOutputThunk[Any]:
        """One prompt as it stands, without a chat template, and what the model writes after it."""
        prompt, stop = self.formatter.print(action), Flag()
        request = self._request([], options, {}, format, stop, prompt)
        thunk = bridge.new_thunk(action, None, options, stop.set)
        thunk.generation.model, thunk.generation.provider = self._model_id, self._provider
        try:
            await Answer.fold(thunk, await _joined(kept_to(self.engine.generate(request), request.format)))
        finally:
            stop.set()
        log = [{"role": "user", "content": prompt}]
        await Answer.finish(thunk, tools={}, messages=log, backend=f"{PROVIDER}::{self._model_id}")
        bridge.compute(thunk)
        thunk.parsed_repr = action.parse(thunk) if isinstance(action, Component) else thunk.value
        return thunk

    def close(self) -> None:
        """Ends the model's thread, if this backend loaded the model."""
        self._closed = True
        if self._owned:
            self.engine.close()

    async def aclose(self) -> None:
        """The same without holding up a loop."""
        await asyncio.to_thread(self.close)


class _Either:
    """Set when this generation is cancelled, or nobody wants the whole run any more."""

    def __init__(self, stop: Flag, run: CurrentRun | None) -> None:
        self._events = [stop, *([run.cancelled] if run is not None else [])]

    def is_set(self) -> bool:
        return any(event.is_set() for event in self._events)


def _load(model: str | None, options: dict[str, Any]) -> "Engine":
    try:
        from mellea_responses.engine.engine import Engine
    except ImportError as exc:
        raise ImportError(
            f"TransformersBackend needs the engine ({exc.name} is missing): pip install 'mellea-responses[hf]'"
        ) from None
    return Engine.load(model, **options)


def _policy(run: CurrentRun | None, options: dict[str, Any], tools: dict[str, Any]) -> tuple[Any, bool]:
    """What the client asked of its own tools holds for its own tools; a program's are the program's business."""
    the_clients = run is not None and bool(tools) and all(isinstance(tool, ClientTool) for tool in tools.values())
    choice = options.get(ModelOption.TOOL_CHOICE)
    if run is None or not the_clients:
        return (to_choice(choice) if tools and choice is not None else "auto"), True
    if choice is None:
        choice = to_chat_choice(run.turn)
    return to_choice(choice), run.turn.parallel_tool_calls


def _form(format: Any) -> Format:
    if format is None:
        return Format()
    return Format("json_schema", format.__name__, format.model_json_schema(), strict=True)


async def _joined(source: AsyncIterator[Sequence[Step]]) -> list[Step]:
    return [step async for batch in source for step in batch]
