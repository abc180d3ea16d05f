"""Splitting what a model writes into reasoning, text and calls, while it writes.

One splitter a generation, in the model's thread. Feed it each token with the text that became visible with it,
decoded with `skip_special_tokens=False`: a marker that is a token of the vocabulary is obeyed only as that token, and
its name must come in the same feed as its id. (With exactly one token a feed, the name may be missing.) Look for stop
strings in the steps that come out, not in the text that goes in.

The model's own `response_template` wins; then a family is chosen by chat template and vocabulary (`families`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from weakref import WeakKeyDictionary

from mellea_responses.engine.families import TAUGHT, Family, choose, with_taught_calls
from mellea_responses.engine.marks import Marks, added_tokens
from mellea_responses.engine.pen import Pen, mint_call_id
from mellea_responses.engine.regions import Regions
from mellea_responses.engine.shipped import ShippedRegions, literals_of, looks_far_ahead
from mellea_responses.engine.values import tool_schemas
from mellea_responses.turn import Call, CallArgs, Step

log = logging.getLogger(__name__)

Reason = Literal["stop", "length", "content_filter"]


class _Regions(Protocol):
    def prime(self, tail: str) -> None: ...
    def read(self, piece: str) -> None: ...
    def finish(self) -> None: ...


class Splitter:
    """Turns one generation into Steps. Made by `make_splitter`."""

    def __init__(self, regions: _Regions, marks: Marks, pen: Pen, tail: str) -> None:
        self._regions = regions
        self._marks = marks
        self._pen = pen
        regions.prime(tail)
        # Words of the prompt are no words of the answer; a call that the prompt began is finished by the model.
        self._early: list[Step] = [
            step for step in pen.take() if isinstance(step, Call | CallArgs) and step.key == pen.open_call
        ]

    def feed(self, token_ids: Sequence[int], text: str) -> list[Step]:
        """The steps that are certain with these tokens."""
        for piece in self._marks.pieces(token_ids, text):
            self._regions.read(piece)
        return self._take()

    def finish(self, reason: Reason) -> list[Step]:
        """The steps still held back. A call that is not whole stays open, whatever the reason."""
        self._regions.finish()
        return self._take()

    def _take(self) -> list[Step]:
        early, self._early = self._early, []
        return early + self._pen.take()


def make_splitter(
    tokenizer: Any,
    prompt_text: str,
    tools: Sequence[Mapping[str, Any]],
    *,
    taught: bool = False,
    mint: Callable[[], str] = mint_call_id,
) -> Splitter:
    """The splitter for one generation.

    Args:
        tokenizer: The transformers tokenizer of the model.
        prompt_text: The rendered prompt; a think tag that the chat template opened counts.
        tools: What the model was offered, as chat templates take it.
        taught: Whether the prompt said in words how to call; the family's own markup still counts.
        mint: Makes the id of a call that the model gave none.
    """
    model = known(tokenizer, taught)
    pen = Pen(model.marks, mint)
    if model.shipped is not None:
        shipped = ShippedRegions(model.shipped, model.marks, pen, tools, waits=model.waits)
        return Splitter(shipped, model.marks, pen, prompt_text)
    regions = Regions(model.family, model.marks, pen, tool_schemas(tools), waits=model.waits)
    return Splitter(regions, model.marks, pen, _tail(prompt_text, model.marks.boundaries, model.family.anchor))


@dataclass(frozen=True)
class _Model:
    """What is the same for every generation of one model: some vocabularies have thousands of added tokens."""

    family: Family
    marks: Marks
    waits: bool
    shipped: dict[str, Any] | None  # its own response_template, where that is used


_models: "WeakKeyDictionary[Any, dict[tuple[object, ...], _Model]]" = WeakKeyDictionary()


def known(tokenizer: Any, taught: bool) -> _Model:
    """How the answers of this model are read."""
    template, shipped = chat_template(tokenizer), getattr(tokenizer, "response_template", None)
    told_by = (template, repr(shipped), len(tokenizer), taught)
    models = _models.setdefault(tokenizer, {})
    if told_by not in models:
        models[told_by] = _look_at(tokenizer, template, shipped, taught)
    return models[told_by]


def _look_at(tokenizer: Any, template: str, shipped: Any, taught: bool) -> _Model:
    family = choose(template, frozenset(added_tokens(tokenizer)))
    if taught:
        family, shipped = with_taught_calls(family), _with_taught_field(shipped)
    # Only a template that knows both tags belongs to a model that may leave the first one out.
    waits = family.waits and "<think>" in template and "</think>" in template
    if shipped is not None and looks_far_ahead(shipped):
        log.warning("the model's own response_template looks ahead over all text to come: too slow to be used")
    elif shipped is not None:
        marks = Marks(tokenizer, (*literals_of(shipped), "</think>"))
        try:
            ShippedRegions(shipped, marks, Pen(marks), ())
        except Exception:
            # A template that cannot be loaded must not cost the user the model.
            log.warning("the model's own response_template cannot be used", exc_info=True)
        else:
            return _Model(family, marks, waits, shipped)
    return _Model(family, Marks(tokenizer, family.literals), waits, None)


def _with_taught_field(shipped: Any) -> Any:
    """A model's own template with calls as the prompt taught them, where it knows none."""
    fields = shipped.get("fields") if isinstance(shipped, Mapping) else None
    if not isinstance(fields, Mapping) or "tool_calls" in fields:
        return shipped
    calls = {"open": TAUGHT[0], "close": TAUGHT[1], "content": "json", "repeats": True}
    return {**shipped, "fields": {**fields, "tool_calls": calls}}


def chat_template(tokenizer: Any) -> str:
    """The tokenizer's chat template as text, all of them where there are several."""
    template = getattr(tokenizer, "chat_template", None) or ""
    return "\n".join(map(str, template.values())) if isinstance(template, Mapping) else str(template)


def _tail(prompt: str, boundaries: Sequence[str], anchor: str | None) -> str:
    """The part of the prompt that belongs to the answer."""
    if anchor is not None and (at := prompt.rfind(anchor)) >= 0:
        return prompt[at:]
    ends = [at + len(token) for token in boundaries if token and (at := prompt.rfind(token)) >= 0]
    if ends:
        return prompt[max(ends) :]
    # No token says where the turn begins: only the last line that says something can have opened a tag.
    return prompt[prompt.rstrip().rfind("\n") + 1 :]
