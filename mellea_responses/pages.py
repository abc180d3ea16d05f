"""Lists cut into pages, the way OpenAI's API cuts them."""

from mellea_responses.errors import InvalidRequest
from mellea_responses.wire.items import Item, item_id
from mellea_responses.wire.response import ItemList


def page(items: list[Item], *, after: str | None, before: str | None, limit: int, order: str) -> ItemList:
    """Cuts one page; `desc`, the default of the API, gives the newest first.

    Raises:
        InvalidRequest: there is no item `after` or `before`.
    """
    if order == "desc":
        items = items[::-1]
    if after is not None:
        items = items[_place(items, after, "after") + 1 :]
    if before is not None:
        items = items[: _place(items, before, "before")]
    cut = items[:limit]
    first, last = (item_id(cut[0]) or "", item_id(cut[-1]) or "") if cut else ("", "")
    return ItemList(data=cut, first_id=first, last_id=last, has_more=len(items) > limit)


def _place(items: list[Item], wanted: str, param: str) -> int:
    for i, item in enumerate(items):
        if item_id(item) == wanted:
            return i
    raise InvalidRequest(f"There is no item '{wanted[:80]}' in this list.", param=param)
