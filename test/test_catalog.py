"""The declared tools by name; how models' spellings find them is told by the guard's tests."""

import pytest

from mellea_responses.catalog import Catalog
from mellea_responses.wire.tools import CustomTool, FunctionTool, NamespaceTool, ToolRef, ToolSearchTool

SCHEMA = {"type": "object"}
CATALOG = Catalog(
    (
        FunctionTool("f", parameters=SCHEMA, strict=True),
        FunctionTool("loose", parameters=SCHEMA),
        NamespaceTool("ns", "", [FunctionTool("f"), CustomTool("c")]),
        ToolSearchTool("client"),
        ToolSearchTool("server"),
    )
)


def test_every_tool_that_a_client_runs_is_listed_once_as_its_calls_are_written() -> None:
    assert [(tool.namespace, tool.name, tool.kind) for tool in CATALOG] == [
        (None, "f", "function"),
        (None, "loose", "function"),
        ("ns", "f", "function"),
        ("ns", "c", "custom"),
        (None, "tool_search", "tool_search"),
    ]


def test_only_a_strict_tool_has_a_schema_to_be_judged_by() -> None:
    assert [tool.strict_schema for tool in CATALOG] == [SCHEMA, None, None, None, None]


@pytest.mark.parametrize(
    ("ref", "meant"),
    [
        (ToolRef("function", "loose"), [(None, "loose")]),
        (ToolRef("function", "f", "ns"), [("ns", "f")]),
        (ToolRef("custom", "c"), [("ns", "c")]),
        (ToolRef("namespace", "ns"), [("ns", "f"), ("ns", "c")]),
        (ToolRef("tool_search"), [(None, "tool_search")]),
        (ToolRef("function", "nobody"), []),
    ],
)
def test_a_choice_means_the_tools_it_names(ref: ToolRef, meant: list[tuple[str | None, str]]) -> None:
    assert [(tool.namespace, tool.name) for tool in CATALOG if tool.is_meant_by(ref)] == meant


def test_an_exact_name_wins_over_every_reading_of_it() -> None:
    catalog = Catalog(
        (FunctionTool("functions.f"), FunctionTool("f"), NamespaceTool("functions", "", [FunctionTool("f")]))
    )

    found = catalog.resolve("functions.f")
    assert found is not None
    assert (found.namespace, found.name) == (None, "functions.f")


def test_nothing_is_found_among_no_tools() -> None:
    assert Catalog(()).resolve("f") is None
    assert list(Catalog(())) == []
