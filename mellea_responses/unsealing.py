"""Sealed items of a request, opened for the model: reasoning and compactions."""

import logging
from collections.abc import Iterable

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from mellea_responses.errors import InvalidRequest
from mellea_responses.normalize.items import InputItem
from mellea_responses.seal import Sealer
from mellea_responses.wire.items import Compaction, Item, Reasoning, ReasoningText, decode_item

logger = logging.getLogger("mellea_responses.seal")


class SealedThoughts(msgspec.Struct, frozen=True):
    """What a seal of reasoning holds."""

    response: str
    model: str
    text: str


def open_reasoning(items: Iterable[InputItem], sealer: Sealer, owner: str, *, strict: bool) -> tuple[InputItem, ...]:
    """Items whose sealed thoughts are readable again; a seal that cannot be opened is dropped with a log line.

    Raises:
        InvalidRequest: with `strict`, instead of dropping it.
    """
    return tuple(_opened(item, i, sealer, owner, strict) for i, item in enumerate(items))


def _opened(item: InputItem, index: int, sealer: Sealer, owner: str, strict: bool) -> InputItem:
    if not isinstance(item, Reasoning) or item.encrypted_content is UNSET:
        return item
    thoughts = sealer.open(owner, "reasoning", str(item.encrypted_content), SealedThoughts)
    if thoughts is not None:
        return replace(item, content=[ReasoningText(thoughts.text)])
    if strict:
        raise InvalidRequest(
            "This sealed reasoning cannot be opened here; leave it out or send it as text.",
            param=f"input[{index}].encrypted_content",
            code="invalid_encrypted_content",
        )
    logger.info("sealed reasoning at input[%d] could not be opened and was left out", index)
    return replace(item, encrypted_content=UNSET)


def open_compactions(items: Iterable[Item], sealer: Sealer, owner: str) -> dict[str, tuple[Item, ...]]:
    """What each compaction item holds, by its id.

    Raises:
        InvalidRequest: one cannot be opened, so that the turns it stands for are lost.
    """
    return {item.id: _turns(item, sealer, owner) for item in items if isinstance(item, Compaction)}


def _turns(item: Compaction, sealer: Sealer, owner: str) -> tuple[Item, ...]:
    raws = sealer.open(owner, "compaction", item.encrypted_content, list[msgspec.Raw])
    if raws is None:
        raise InvalidRequest(
            f"The compaction item '{item.id[:80]}' cannot be opened here. Send the turns themselves instead.",
            param="input",
            code="invalid_encrypted_content",
        )
    return tuple(decode_item(raw) for raw in raws)
