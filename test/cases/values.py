"""The small language inside a case: markers for large values, and names that stand for earlier answers."""

import re
from collections.abc import Mapping
from typing import Any

Saved = Mapping[str, Any]
_NAME = re.compile(r"\{\{([^{}*]+)\}\}")
_SPREAD = re.compile(r"\{\{\*([^{}]+)\}\}")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def expand(value: Any, index: int = 0) -> Any:
    """The value with every marker in place; a pause stays, for whoever plays the pieces."""
    match value:
        case {"$repeat": [str(text), int(times)]}:
            return text * times
        case {"$index": str(form)}:
            return form % index
        case {"$nest": [prefix, opening, closing, suffix, int(depth)]}:
            return prefix + opening * depth + closing * depth + suffix
        case {"$list": _}:
            return _expand_list([value], index)
        case dict():
            return {key: expand(inner, index) for key, inner in value.items()}
        case list():
            return _expand_list(value, index)
    return value


def _expand_list(values: list[Any], index: int) -> list[Any]:
    """A list marker stands for its copies, alone or among other entries."""
    expanded: list[Any] = []
    for value in values:
        match value:
            case {"$list": [item, int(copies)]}:
                expanded += [expand(item, number) for number in range(copies)]
            case _:
                expanded.append(expand(value, index))
    return expanded


def fill(value: Any, saved: Saved) -> Any:
    """The value with `{{name.path}}` read from what was saved."""
    match value:
        case str():
            whole = _NAME.fullmatch(value)
            if whole and _is_known(whole[1], saved):
                return look_up(whole[1], saved)
            return _NAME.sub(lambda found: _known(found, saved), value)
        case dict():
            return {key: fill(inner, saved) for key, inner in value.items()}
        case list():
            return _fill_list(value, saved)
    return value


def _known(found: re.Match[str], saved: Saved) -> str:
    """Braces around anything but a saved name are the case's own text, a template for example."""
    return str(look_up(found[1], saved)) if _is_known(found[1], saved) else found[0]


def _is_known(path: str, saved: Saved) -> bool:
    first = _STEP.match(path)
    return first is not None and first[1] in saved


def _fill_list(values: list[Any], saved: Saved) -> list[Any]:
    filled: list[Any] = []
    for value in values:
        spread = _SPREAD.fullmatch(value) if isinstance(value, str) else None
        filled += look_up(spread[1], saved) if spread else [fill(value, saved)]
    return filled


def look_up(path: str, saved: Saved) -> Any:
    """`t1.output[0].call_id` in what was saved; `t1.call` is the first function call of `t1`'s output."""
    value: Any = saved
    for name, index in _STEP.findall(path):
        if name == "call" and "call" not in value:
            value = next(item for item in value["output"] if item["type"] == "function_call")
        else:
            value = value[name] if name else value[int(index)]
    return value
