"""How each family writes its calls when it writes them well: what `calls` and `markup` read, to be held to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mellea_responses.engine.families import TAUGHT, Family


@dataclass(frozen=True)
class Style:
    """One way: `opens`, then for each call `before`, its name, `after`, its arguments, `ends`; then `closes`.

    A space stands for any blanks there.

    Args:
        opens: What starts a region of calls; empty when nothing does.
        before: What stands before a name.
        after: What stands between name and arguments.
        ends: What stands after the arguments.
        between: What stands between the calls of one region; None when it holds one.
        closes: What ends the region.
        parameter: What stands before a parameter's name, between it and its value, and after the value, where the
            arguments are no JSON.
    """

    opens: str = ""
    before: str = ""
    after: str = ""
    ends: str = ""
    between: str | None = None
    closes: str = ""
    parameter: tuple[str, str, str] | None = None


_OPENS, _CLOSES = TAUGHT
_TAGS = Style(_OPENS, before='{"name": "', after='", "arguments": ', ends="} ", closes=_CLOSES)
_FUNCTION_TAGS = Style(
    _OPENS,
    before="<function=",
    after="> ",
    ends="</function> ",
    closes=_CLOSES,
    parameter=("<parameter=", ">", "</parameter> "),
)
_ARGUMENT_TAGS = Style(
    _OPENS, after=" ", closes=_CLOSES, parameter=("<arg_key>", "</arg_key> <arg_value>", "</arg_value> ")
)
_LIST = Style(before='{"name": "', after='", "arguments": ', ends="}", between=", ", closes="]")
_LLAMA = Style(before='{"name": "', after='", "parameters": ', ends="}")
_MISTRAL = Style("[TOOL_CALLS]", after="[ARGS]")
_DEEPSEEK = Style(
    "<｜tool▁calls▁begin｜>",
    before="<｜tool▁call▁begin｜>",
    after="<｜tool▁sep｜>",
    ends="<｜tool▁call▁end｜>",
    between="",
    closes="<｜tool▁calls▁end｜>",
)
_DEEPSEEK_FENCED = replace(
    _DEEPSEEK,
    before=f"{_DEEPSEEK.before}function{_DEEPSEEK.after}",
    after="\n```json\n",
    ends=f"\n```{_DEEPSEEK.ends}",
    between="\n",
)


def styles_of(family: Family, template: str, tokens: Mapping[str, int], *, taught: bool) -> Sequence[Style]:
    """How a model of this family writes calls, all with the same `opens`; empty when that is not known for certain.

    Args:
        family: The model's family.
        template: Its chat template. What it does not show the model may write in another way.
        tokens: Tokens that are matched as a whole, by text.
        taught: Whether the prompt said in words how to call.
    """
    if taught:
        return [_TAGS]
    if not family.shown_in(template):
        return []
    match family.name:
        case "hermes":
            return [_FUNCTION_TAGS] if "<function=" in template else [_TAGS]
        case "glm":
            return [_ARGUMENT_TAGS]
        case "granite":
            return [replace(_LIST, opens="<|tool_call|>[")]
        case "llama":
            return [_LLAMA]
        case "mistral" if "[CALL_ID]" in template:
            return []
        case "mistral":
            return [_MISTRAL] if "[ARGS]" in tokens else [replace(_LIST, opens="[TOOL_CALLS][")]
        case "deepseek":
            return [_DEEPSEEK, _DEEPSEEK_FENCED]
        case _:
            return []
