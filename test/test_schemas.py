"""Schemas are judged before anything runs, in bounded time, and nothing they name is ever fetched or opened."""

import builtins
import contextlib
import copy
import socket
from typing import Any

import pytest

from mellea_responses.errors import InvalidRequest
from mellea_responses.schemas import Schema


def refuse(schema: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        Schema(schema, "text.format.schema")
    return caught.value


@pytest.fixture(autouse=True)
def no_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a file or a socket here fails the test."""

    def never(*_args: object, **_more: object) -> None:
        raise AssertionError("a schema made somebody open something")

    monkeypatch.setattr(socket, "socket", never)
    monkeypatch.setattr(socket, "create_connection", never)
    monkeypatch.setattr(builtins, "open", never)


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/nowhere",
        "#nowhere",
        "other.json",
        "https://example.org/schema.json",
        "http://127.0.0.1:1/schema.json",
        "file:///etc/passwd",
        "ftp://example.org/x",
        "urn:example:x",
    ],
)
@pytest.mark.parametrize("place", ["root", "nested", "allOf"])
def test_a_reference_to_nowhere_or_outside_is_refused_and_not_followed(reference: str, place: str) -> None:
    ref = {"$ref": reference}
    schema = {"root": ref, "nested": {"properties": {"a": ref}}, "allOf": {"allOf": [{"type": "object"}, ref]}}[place]

    assert refuse(schema).param.startswith("text.format.schema")


def test_the_meta_schema_may_be_named_and_references_inside_are_followed() -> None:
    tree = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "additionalProperties": False}
        },
    }

    assert Schema(tree, "x").complaint({"next": {"next": {}}}) is None
    assert Schema(tree, "x").complaint({"next": {"nest": {}}})


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "nonsense"}, ".type"),
        ({"properties": {"a": {"type": 5}}}, ".properties.a.type"),
        ({"required": "a"}, ".required"),
        ({"anyOf": []}, ".anyOf"),
        ({"anyOf": [{}, {"minLength": -1}]}, ".anyOf[1].minLength"),
        ({"properties": []}, ".properties"),
    ],
)
def test_what_is_no_schema_is_told_with_its_path(schema: Any, place: str) -> None:
    assert refuse(schema).param == f"text.format.schema{place}"


@pytest.mark.parametrize(
    "pattern", ["(", "[", "a{2,1}", "*a", "a**", "(?P<x", "\\", "+", "a|*", "(?", "^*", "[z-a]", "(*)"]
)
def test_a_pattern_that_cannot_compile_is_refused(pattern: str) -> None:
    assert refuse({"properties": {"a": {"type": "string", "pattern": pattern}}}).param.startswith("text.format.schema")


@pytest.mark.parametrize(
    "pattern",
    [
        "^a+$",
        "[*+?]",
        "\\*",
        "a{2,3}",
        "(?:a|b)*",
        "(?=a)a",
        "^(?!x).*$",
        "a|b",
        "",
        "[]a]",
        "\\d{4}-\\d{2}",
        "x?",
        "(a+)+$",
    ],
)
def test_a_pattern_that_can_is_taken(pattern: str) -> None:
    Schema({"type": "string", "pattern": pattern}, "x")


@pytest.mark.parametrize("pattern", ["^.{1,2048}$", r"[\s\S]{0,2048}", r"^[\p{L}\p{N}_-]{1,64}$"])
def test_a_pattern_that_bounds_a_long_text_is_taken_and_a_great_many_are_not(pattern: str) -> None:
    Schema({"type": "object", "properties": {f"p{i}": {"type": "string", "pattern": pattern} for i in range(20)}}, "s")
    many = {f"p{i}": {"type": "string", "pattern": f"{pattern}{'a' * i}"} for i in range(900)}

    assert "repeat too often" in refuse({"type": "object", "properties": many}).message


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("^[^]{2,3}$", "\n\n", "\n"),
        ("^[^]$", "a", ""),
        (r"^[^\0]*$", "a0", "a\0"),
        (r"^\0$", "\0", "0"),
        (r"^\\0$", "\\0", "\0"),
        ("^{{[a-z]+}}$", "{{name}}", "name"),
        ("^a{$", "a{", "a"),
        ("^a{b,3}$", "a{b,3}", "aab"),
        ("^[{]$", "{", "["),
        (r"^\p{L}{2}$", "ab", "a"),
        (r"^\{a}$", "{a}", "a"),
    ],
)
def test_the_oddest_spellings_of_a_pattern_are_taken(pattern: str, fits: str, does_not: str) -> None:
    for schema, value, wrong in (
        ({"pattern": pattern}, fits, does_not),
        ({"patternProperties": {pattern: {}}, "additionalProperties": False}, {fits: 1}, {does_not: 1}),
    ):
        assert Schema(schema, "x").complaint(value) is None
        assert Schema(schema, "x").complaint(wrong)


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({"items": [{"type": "string"}, {"type": "integer"}]}, ["a", 1, None], ["a", "b"]),
        ({"items": [{"type": "string"}], "additionalItems": False}, ["a"], ["a", "b"]),
        ({"items": [{"type": "string"}], "additionalItems": {"type": "null"}}, ["a", None], ["a", "b"]),
        ({"minimum": 0, "exclusiveMinimum": True}, 1, 0),
        ({"maximum": 5, "exclusiveMaximum": False}, 5, 6),
        ({"definitions": {"a": {"items": [{}, False]}}, "$ref": "#/definitions/a"}, [1], [1, 2]),
        ({"properties": {"items": {"items": [{"const": 1}]}}}, {"items": [1]}, {"items": [2]}),
        ({"dependencies": {"a": ["b"]}}, {"a": 1, "b": 2}, {"a": 1}),
    ],
)
def test_what_older_drafts_had_is_understood_where_no_draft_is_named(schema: Any, fits: Any, does_not: Any) -> None:
    before = copy.deepcopy(schema)

    assert Schema(schema, "x").complaint(fits) is None
    assert Schema(schema, "x").complaint(does_not)
    assert schema == before


def test_a_draft_that_is_named_is_taken_at_its_word() -> None:
    tuples = {"items": [{"type": "string"}]}
    newest = "https://json-schema.org/draft/2020-12/schema"

    assert Schema({"$schema": "http://json-schema.org/draft-07/schema#", **tuples}, "x").complaint([5])
    assert refuse({"$schema": newest, **tuples}).param == "text.format.schema.items"


@pytest.mark.parametrize("draft", ["draft-04", "draft-07"])
def test_a_format_is_a_note_in_every_draft(draft: str) -> None:
    schema = {"$schema": f"http://json-schema.org/{draft}/schema#", "format": "date-time"}

    assert Schema(schema, "x").complaint("today") is None


def test_what_looks_like_a_pattern_in_data_is_data_and_a_property_may_have_its_name() -> None:
    data = {"pattern": "(*", "patternProperties": {"(*": {}}}
    named = {"default": {"type": "string", "pattern": "^a$"}, "pattern": {"type": "string"}}
    schema = Schema({"properties": {**named, "x": {"default": data, "examples": [data], "enum": [data, 1]}}}, "s")

    assert schema.complaint({"x": 1, "pattern": "(*", "default": "a"}) is None
    assert schema.complaint({"default": "b"}) is not None
    assert refuse({"properties": {"default": {"pattern": "(*"}}}).param.endswith("properties.default.pattern")


def test_a_key_pattern_is_judged_too() -> None:
    assert refuse({"patternProperties": {"(": {}}}).param.startswith("text.format.schema")


@pytest.mark.parametrize(
    "pattern", ["(a{1000}){1000}{1000}", "((((a{99}){99}){99}){99}){99}", "a" * 5000, "(" * 2000 + "a" + ")" * 2000]
)
def test_a_pattern_that_would_explode_is_refused_at_once(pattern: str) -> None:
    refuse({"type": "string", "pattern": pattern})


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "^(?=(a+)+$).*b", "(a*)*\\1b"])
def test_a_runaway_pattern_is_over_soon(pattern: str) -> None:
    complaint = Schema({"type": "string", "pattern": pattern}, "x").complaint("a" * 5000 + "!")

    assert complaint
    assert len(complaint) < 500


def test_depth_is_no_way_to_overflow_the_stack() -> None:
    deep: dict[str, Any] = {}
    for _ in range(50_000):
        deep = {"not": deep}
    try:
        refuse(deep)
    finally:
        while deep:  # or the interpreter overflows when it lets go of it
            deep = deep.pop("not")


def test_a_moderately_deep_schema_is_fine() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(30):
        schema = {"type": "object", "properties": {"a": schema}}

    assert Schema(schema, "x").complaint({"a": 5})


def test_a_huge_schema_is_refused() -> None:
    assert "larger" in refuse({"enum": ["x" * 1000] * 600}).message


def test_an_endless_reference_is_refused_or_harmless() -> None:
    try:
        complaint = Schema({"$ref": "#"}, "x").complaint({"a": 1})
    except InvalidRequest:
        return
    assert complaint is None or isinstance(complaint, str)


@pytest.mark.parametrize(
    "schema",
    [{"type": 1.5}, {"enum": "x"}, {"$id": "http://[bad"}, {"$schema": "https://example.org/own"}, {"$ref": 5}],
)
def test_strange_schemas_are_taken_or_refused_and_nothing_else(schema: Any) -> None:
    with contextlib.suppress(InvalidRequest):
        Schema(schema, "x").complaint({})


@pytest.mark.parametrize(
    ("value", "words"),
    [({"n": "1"}, "n"), ({}, "n"), ({"n": 1, "list": [1, "x"]}, "list[1]"), (5, "object")],
)
def test_a_complaint_is_one_short_sentence_with_the_place(value: Any, words: str) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "list": {"items": {"type": "integer"}}},
        "required": ["n"],
    }

    complaint = Schema(schema, "x").complaint(value)

    assert complaint is not None
    assert words in complaint
    assert "\n" not in complaint


def test_what_fits_has_no_complaint() -> None:
    assert Schema({"type": "object"}, "x").complaint({"a": [1, None, "x"]}) is None
    assert Schema({}, "x").complaint(None) is None


def test_what_is_wrong_is_told_without_its_place_where_to_find_it_would_take_long() -> None:
    schema = Schema({"items": {"type": "string"}}, "x")

    assert "[2]" in (schema.complaint(["a", "b", 5]) or "")
    assert schema.complaint([5] * 100_000) == "it does not fit"


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        (
            {"$id": "https://x.example/s", "$ref": "https://x.example/s#/$defs/a", "$defs": {"a": {"type": "string"}}},
            "a",
            5,
        ),
        ({"$ref": "#a", "$defs": {"n": {"$anchor": "a", "type": "string"}}}, "a", 5),
        ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "string"}}}, "a", 5),
        (
            {"properties": {"$id": {"const": {"$id": "https://x.example"}}}},
            {"$id": {"$id": "https://x.example"}},
            {"$id": 5},
        ),
        ({"prefixItems": [{"type": "string"}, {"$ref": "#/prefixItems/0"}]}, ["a", "b"], ["a", 5]),
        ({"properties": {"t": {"$id": "T0", "items": {"$ref": "T0"}, "type": "array"}}}, {"t": [[]]}, {"t": [5]}),
        (
            {"$id": "https://x.example/a", "$ref": "b", "$defs": {"b": {"$id": "/b", "type": "string"}}},
            "a",
            5,
        ),
        ({"$ref": "#/x-more/a", "x-more": {"a": {"type": "string"}}}, "a", 5),
        ({"properties": {"id": {"type": "string"}}, "id": "x", "$ref": "#/properties/id"}, "a", 5),
        ({"properties": {"__proto__": {"type": "string"}}}, {"__proto__": "a"}, {"__proto__": 5}),
        ({"additionalProperties": {"$ref": "#"}, "type": "object"}, {"a": {"b": {}}}, {"a": {"b": 5}}),
    ],
)
def test_references_are_followed_in_every_spelling_that_stays_inside(schema: Any, fits: Any, does_not: Any) -> None:
    assert Schema(schema, "x").complaint(fits) is None
    assert Schema(schema, "x").complaint(does_not)


def test_a_long_answer_to_an_ordinary_schema_is_judged() -> None:
    person = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": {"items": {"pattern": "^[a-z]{1,9}$"}}},
    }
    schema = Schema({"type": "array", "items": {"anyOf": [{"type": "null"}, person]}}, "x")
    people: list[Any] = [{"name": "n" * 50, "tags": ["one", "two"]}] * 20_000

    assert schema.complaint(people) is None
    assert schema.complaint([*people, {"name": 5}])


def test_long_lists_out_of_long_enumerations_are_judged() -> None:
    codes = [f"code{i}" for i in range(1000)]
    schema = Schema({"items": {"enum": codes}}, "x")

    assert schema.complaint(codes * 10) is None
    assert schema.complaint([*codes * 10, "other"])


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_long_lists_of_many_kinds_of_objects_are_judged(word: str) -> None:
    fields = {f"field{i}": {"type": ["string", "null"]} for i in range(8)}
    kinds = [
        {
            "type": "object",
            "properties": {**fields, "type": {"const": f"kind{i}"}},
            "required": [*fields, "type"],
            "additionalProperties": False,
        }
        for i in range(60)
    ]
    items = [{**dict.fromkeys(fields, "some text"), "type": f"kind{i % 60}"} for i in range(1000)]
    schema = Schema({"items": {word: kinds}}, "x")

    assert schema.complaint(items) is None
    assert schema.complaint([*items, {**items[0], "type": "other"}])


_ADDRESS = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
_UUID = r"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|0{8}-0{4})$"
_IPV6 = r"^(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|::(ffff(:0{1,4})?:)?((25[0-5]|(2[0-4]|1?[0-9])?[0-9])\.){3}(25[0-5]|(2[0-4]|1?[0-9])?[0-9]))$"  # noqa: E501  # one pattern, as clients send it
_HOST = r"^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$"  # noqa: E501  # one pattern, as clients send it


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not", "count"),
    [
        (_ADDRESS, "somebody{}@mail.example", "some..body@mail.example", 600),
        (_UUID, "9c858901-8a57-4791-81fe-4c455b09{:04}", "9c858901", 600),
        (_IPV6, "::ffff:10.0.0.{}", "::ffff:10.0.0.999", 600),
        (_HOST, "host{}.some-where.example", "-host.example", 100),
    ],
    ids=["address", "uuid", "ipv6", "host"],
)
def test_patterns_that_libraries_write_judge_long_lists(pattern: str, fits: str, does_not: str, count: int) -> None:
    schema = Schema({"type": "array", "items": {"type": "string", "pattern": pattern}}, "text")
    assert schema.complaint([fits.format(i % 250) for i in range(count)]) is None
    assert schema.complaint([does_not]) is not None
    assert schema.complaint([*(fits.format(i % 250) for i in range(count)), does_not]) is not None


@pytest.mark.parametrize("pattern", ["^(?:a{90}){90}(?:b{90}){90}(?:c{900}){9000}$", "^(?:(?:a{999}){999}){9}$"])
def test_repetitions_inside_each_other_are_still_multiplied(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="repeats too often"):
        Schema({"pattern": pattern}, "text")
