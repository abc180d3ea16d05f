"""Small requests that would cost without end: each is refused or ends soon, and nobody else waits for it.

Every test here hangs, or grows past its bound, on a server that does what it is told. The time limit is the test's.
"""

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import zstandard

from mellea_responses.engine.values import types_of
from mellea_responses.turn import Call, CallArgs, CallEnd, Step, Text, Turn
from support import oracle
from support.raw import Answer, Request, ask, get, post
from support.serving import Process, process, serving

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(30)]

Json = dict[str, Any]


def serve(turn: Turn) -> list[Step]:
    """Says what it is told to, or calls its tool with that."""
    words = next(part.text for item in turn.items for part in getattr(item, "content", []))
    if turn.tools:
        return [Call("k", "f"), CallArgs("k", words), CallEnd("k")]
    return [Text(words)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncIterator[str]:
    async with serving(serve) as address:
        yield address


# ---------------------------------------------------------------- schemas


def doubling(depth: int, word: str, leaf: Json) -> Json:
    """A few lines that mean two to the power of `depth` schemas."""
    names = [f"a{i}" for i in range(depth)]
    places: Json = {
        name: {word: [{"$ref": f"#/$defs/a{i + 1}"}, {"$ref": f"#/$defs/a{i + 1}"}]} for i, name in enumerate(names)
    }
    return {"$defs": {**places, f"a{depth}": leaf}, "$ref": "#/$defs/a0"}


def left_over(depth: int) -> Json:
    schema: Json = {"properties": {"a": {}}}
    for _ in range(depth):
        schema = {"anyOf": [schema], "unevaluatedProperties": False}
    return schema


def chain(length: int, link: Callable[[Json], Json]) -> Json:
    """Schemas each of which refers to the next."""
    links = {f"a{i}": link({"$ref": f"#/$defs/a{i + 1}"}) for i in range(length)}
    return {"$defs": {**links, f"a{length}": {}}, "$ref": "#/$defs/a0"}


def nested(depth: int, word: str) -> Json:
    schema: Json = {"type": "string"}
    for _ in range(depth):
        schema = {word: schema} if word in ("not", "items") else {word: [schema]}
    return schema


def numbered(count: int, value: Any = None) -> Json:
    return {f"p{i}": value if value is not None else {"type": "string"} for i in range(count)}


REFUSED: dict[str, Json] = {
    "allOf doubled forty times": doubling(40, "allOf", {"type": "string"}),
    "anyOf doubled eighteen times": doubling(18, "anyOf", {"type": "string"}),
    "oneOf doubled sixty times": doubling(60, "oneOf", {"type": "string"}),
    "a reference to itself": {"$ref": "#"},
    "two that refer to each other": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a",
    },
    "itself among its alternatives": {"anyOf": [{"type": "string"}, {"$ref": "#"}]},
    "a chain of references": {
        "$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(5000)} | {"a5000": {}},
        "$ref": "#/$defs/a0",
    },
    "allOf four hundred deep": nested(400, "allOf"),
    "not four hundred deep": nested(400, "not"),
    "ten megabytes of values": {"enum": ["x" * 100] * 100_000},
    "a hundred thousand patterns": {"patternProperties": numbered(30_000, {})},
    "another server": {"$ref": "http://127.0.0.1:1/schema.json"},
    "a file": {"$ref": "file:///etc/passwd"},
    "a name of its own inside": {
        "$defs": {"x": {"$id": "http://x.example/", **doubling(30, "anyOf", {"type": "string"})}},
        "$ref": "http://x.example/",
    },
    "a meta-schema elsewhere": {"$schema": "http://127.0.0.1:1/schema.json"},
    "what is left over in two ways at each step": chain(
        24, lambda below: {"if": below, "then": below, "unevaluatedProperties": False}
    ),
    "what is left over a thousand deep": chain(1000, lambda below: {"allOf": [below], "unevaluatedProperties": False}),
    "names of their own that double": {
        "$defs": {f"x{i}": {"$id": f"x{i}", "allOf": [{"$ref": f"x{i + 1}"}] * 2} for i in range(30)}
        | {"x30": {"$id": "x30"}},
        "$ref": "x0",
    },
    "a pattern repeated without end": {"type": "string", "pattern": "((a{1000}){1000}){1000}"},
    "a pattern of ten thousand letters": {"type": "string", "pattern": "a" * 10_000},
}
"""Schemas that are refused before anything runs."""


def deep(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"n": leaf}
    return leaf


AGAIN: Json = {"$ref": "#"}
JUDGED: dict[str, tuple[Json, Any]] = {
    "recursion twice at each step": (
        {"properties": {"n": {"anyOf": [AGAIN, AGAIN]}}, "additionalProperties": False},
        deep(60, {"z": 1}),
    ),
    "recursion by two names": (
        {"type": "object", "additionalProperties": AGAIN, "patternProperties": {"n": AGAIN, "^n": AGAIN}},
        deep(200, 5),
    ),
    "what is left over forty times": (left_over(40), {"b": 1}),
    "five thousand rules for each of many": (
        {"items": {"allOf": [{"type": "integer", "minimum": -i} for i in range(5000)]}},
        [1] * 50_000,
    ),
    "fifty thousand values for each of many": ({"items": {"enum": list(range(50_000))}}, ["x"] * 20_000),
    "ten thousand properties of each of many": (
        {"items": {"properties": numbered(10_000)}},
        [*([{}] * 100_000), {"p0": 5}],
    ),
    "long lists among many": ({"items": {"enum": [[0] * 100 + [i] for i in range(900)]}}, [[0] * 100 + [900]] * 1000),
    "a thousand numbers that are none": ({"items": {"enum": [i + 0.5 for i in range(1000)]}}, [1000.5] * 2000),
    "lists of five thousand that begin alike": (
        {"items": {"const": [0] * 5000}},
        [[0] * 5000] * 300 + [[0] * 4999 + [1]],
    ),
    "division by almost nothing": ({"items": {"multipleOf": 1e-300}}, [1e300] * 50_000 + ["x"]),
    "numbers of four thousand digits": ({"items": {"minimum": 1.5}}, [10**4000] * 1000 + [1]),
    "a name that is read again and again": (
        {"propertyNames": {"pattern": "[ab]*a[ab]{2000}[cd]"}},
        {"ab" * 200_000: 1},
    ),
    "many names of many others": (
        {"items": {"dependentRequired": numbered(200, [f"p{i}" for i in range(200)])}, "maxItems": 9},
        [numbered(200, 1)] * 500,
    ),
    "characters counted five thousand times": (
        {"allOf": [{"maxLength": 9**9}] * 5000, "type": "object"},
        "ä" * 1_200_000,
    ),
    "a long text in five hundred complaints": (
        {"anyOf": [{"type": "null", "title": str(i)} for i in range(500)]},
        "x" * 4_000_000,
    ),
    "what is left over fifteen times": (
        chain(15, lambda below: {"allOf": [below], "properties": {"x": below}, "unevaluatedProperties": False}),
        deep(9, {"z": 1}),
    ),
    "everything wrong with a long list": ({"items": {"type": "string"}}, [1] * 1_000_000),
    "all alternatives wrong with a long list": (
        {"anyOf": [{"items": {"type": "string"}}, {"items": {"type": "null"}}]},
        [1] * 300_000,
    ),
    "no two alike": ({"uniqueItems": True, "maxItems": 3}, [[i] for i in range(200_000)]),
    "numbers of a thousand digits": ({"type": "string", "maxLength": 10**400, "minLength": 10**300}, "x"),
    "nested quantifiers that go back": ({"pattern": "(?!x)(a*)*b"}, "a" * 1_000_000),
    "a look ahead from everywhere": ({"pattern": "(?=.*a.*b.*c)(?=.*d)x"}, "abcd" * 100_000),
    "a look behind": ({"pattern": "(?<=a{1000})b"}, "a" * 1_000_000),
    "a reference back": ({"pattern": "(a+)+\\1$"}, "a" * 1_000_000 + "b"),
    "thousands of states": ({"pattern": "[ab]*a[ab]{4000}[cd]"}, "ab" * 500_000),
    "nine hundred patterns for each of many": (
        {"patternProperties": {f"p{i}.*x": {} for i in range(900)}, "maxProperties": 1},
        numbered(20_000, 1),
    ),
}
"""Schemas that are harmless until something is judged by them, with what does not fit."""


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("place", ["text.format.schema", "tools[0].parameters", "response_format"])
async def test_a_schema_that_cannot_be_judged_in_time_is_refused(url: str, name: str, place: str) -> None:
    schema = REFUSED[name]
    body: Json = {"input": '"x"'}
    if place == "tools[0].parameters":
        body["tools"] = [{"type": "function", "name": "f", "parameters": schema, "strict": True}]
    else:
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
        body |= {"text": {"format": form}} if place.startswith("text") else {"response_format": form}

    async with alive(url):
        answer = await post(url, body)

    assert answer.status == 400, answer.body[:500]
    oracle.check_error(answer.json)
    assert answer.error["param"].startswith(place.partition(".")[0])
    assert len(answer.body) < 4096


@pytest.mark.parametrize("name", JUDGED)
@pytest.mark.parametrize("what", ["an answer", "arguments"])
async def test_what_is_judged_by_a_schema_is_judged_soon(url: str, name: str, what: str) -> None:
    schema, value = JUDGED[name]
    body: Json = {"input": json.dumps(value if what == "an answer" else {"v": value})}
    if what == "an answer":
        body["text"] = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    else:
        schema = json.loads(json.dumps(schema).replace('"#"', '"#/properties/v"').replace('"#/$', '"#/properties/v/$'))
        wrapped = {"type": "object", "properties": {"v": schema}}
        body["tools"] = [{"type": "function", "name": "f", "parameters": wrapped, "strict": True}]

    async with alive(url):
        answer = await post(url, body)

    assert answer.status == 500, answer.body[:500]
    assert answer.error["code"] == ("invalid_structured_output" if what == "an answer" else "invalid_tool_call")
    assert len(answer.body) < 4096


@asynccontextmanager
async def alive(url: str) -> AsyncIterator[None]:
    """Whatever happens inside, the server answers others afterwards."""
    yield
    assert (await get(url, "/health")).status == 200
    assert (await post(url, {"input": "still here"})).status == 200


async def test_many_strict_tools_have_one_bound_together(url: str) -> None:
    def tools(count: int, start: int = 0) -> list[Json]:
        schema = {"type": "object", "properties": numbered(1500)}
        names = [f"f{i or ''}" for i in range(start, start + count)]
        return [{"type": "function", "name": name, "strict": True, "parameters": schema} for name in names]

    few = await post(url, {"input": "{}", "tools": tools(3)})
    many = await post(url, {"input": "{}", "tools": tools(60)})
    items = [{"type": "additional_tools", "tools": tools(5, start)} for start in range(0, 60, 5)]
    scattered = await post(url, {"input": [*items, {"role": "user", "content": "x"}]})

    assert few.status == 200, few.body[:300]
    for answer in (many, scattered):
        assert answer.status == 400
        assert "together" in answer.error["message"]


async def test_ordinary_recursive_schemas_are_judged_as_ever(url: str) -> None:
    """Trees of expressions, many levels deep: what a bound on cost must leave alone."""
    kinds = ["add", "sub", "mul", "div", "pow"]
    node = {"type": "object", "required": ["op", "left", "right"], "additionalProperties": False}
    sides = {"left": {"$ref": "#/$defs/e"}, "right": {"$ref": "#/$defs/e"}}
    defs: Json = {kind: {**node, "properties": {"op": {"const": kind}, **sides}} for kind in kinds}
    defs["e"] = {"anyOf": [*({"$ref": f"#/$defs/{kind}"} for kind in kinds), {"type": "number"}]}
    schema = {"$defs": defs, "type": "object", "properties": {"e": {"$ref": "#/$defs/e"}}, "required": ["e"]}
    tree: Any = 1
    for _ in range(9):
        tree = {"op": "pow", "left": tree, "right": tree}
    wrong = json.loads(json.dumps(tree).replace("1", '"one"', 1))
    form = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}

    answers = [await post(url, {"input": json.dumps({"e": value}), "text": form}) for value in (tree, wrong)]

    assert [answer.status for answer in answers] == [200, 500]


async def test_types_of_an_argument_are_found_in_one_look_at_each_place() -> None:
    schema: Json = {"anyOf": [{"$ref": "#"}] * 2000 + [{"type": "integer"}]}
    for _ in range(6):
        schema = {"oneOf": [schema] * 50, "anyOf": [{"$ref": "#"}] * 50}

    assert types_of(schema, schema) == {"integer"}
    for odd in ({"type": 5}, {"enum": 5}, {"anyOf": {"type": "string"}}, {"$ref": "#/a/b"}, {"type": [{}]}, 7):
        assert types_of(odd, {}) == set()


# ---------------------------------------------------------------- grammars, options and templates


@pytest.mark.parametrize(
    "form",
    [
        {"type": "grammar", "syntax": "regex", "definition": "((a+)+)+$" * 100},
        {"type": "grammar", "syntax": "regex", "definition": "(" * 100_000},
        {"type": "grammar", "syntax": "lark", "definition": "start: start start | /(a+)+$/" + "\nx: x" * 50_000},
        {"type": "grammar", "syntax": "lark", "definition": '%import "/etc/passwd"\nstart: /x/'},
        {"type": "grammar"},
        {"type": "grammar", "definition": {"a": [1] * 10_000}},
    ],
    ids=lambda form: str(form)[:60],
)
async def test_a_custom_tool_s_grammar_is_data_to_the_server(url: str, form: Json) -> None:
    body = {"input": "(a+)+$" * 1000, "tools": [{"type": "custom", "name": "f", "format": form}]}

    async with alive(url):
        answer = await post(url, body)

    assert answer.status in {200, 400}, answer.body[:300]


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": ["x"] * 5000},
        {"stop": ["a" * 1_000_000] * 4},
        {"stop": [f"{'a' * 2000}{i}" for i in range(16)]},
        {"logit_bias": {str(i): 1 for i in range(300_000)}},
        {"metadata": {str(i): "x" for i in range(17)}},
        {"metadata": {"k" * 1_000_000: "x"}},
        {"metadata": {"k": "x" * 1_000_000}},
        {"include": ["x"] * 200_000},
        {"chat_template": "{% for a in range(9999999) %}{% for b in range(9999999) %}{{a}}{% endfor %}{% endfor %}"},
        {"chat_template_kwargs": {"chat_template": "{{ 7*7 }}"}},
        {"chat_template_kwargs": {"messages": [{"role": "system", "content": "x"}]}},
        {"chat_template_kwargs": {"a": deep(300, 1)}},
        {"chat_template_kwargs": {str(i): i for i in range(100_000)}},
        {"chat_template_kwargs": ["x"]},
        {"max_output_tokens": 2**31},
        {"seed": 10**400},
        {"temperature": 1e-320},
        {"previous_response_id": "r" * 1_000_000},
        {"conversation": "c" * 1_000_000},
        {"model": "m" * 1_000_000},
        {"user": "u" * 1_000_000},
        {"requirements": ["r"] * 100_000},
    ],
    ids=lambda fields: str(fields)[:60],
)
async def test_a_field_with_too_much_in_it_is_refused_or_ignored_and_never_repeated(url: str, fields: Json) -> None:
    async with alive(url):
        answer = await post(url, {"input": "said", **fields})

    assert answer.status in {200, 400, 404, 413}, answer.body[:300]
    if answer.status == 200:
        assert answer.json["output"][0]["content"][0]["text"] == "said"
    else:
        oracle.check_error(answer.json)
        assert len(answer.body) < 4096


# ---------------------------------------------------------------- squeezed bodies

MIB = 2**20
ROOM = 160 * MIB
"""What one body may cost the process at its peak: a few times the limit, and far less than any bomb holds."""


def zstd(data: bytes, **parameters: Any) -> bytes:
    chosen = zstandard.ZstdCompressionParameters(**parameters)
    packer = zstandard.ZstdCompressor(compression_params=chosen).compressobj()
    return packer.compress(data) + packer.flush()


def bombs() -> Iterator[tuple[str, str, bytes]]:
    """Name, encoding and body; each inflates to far more than the limit, or takes as much to read."""
    gibibyte = gzip.compress(bytes(2**28), 1) * 4
    yield "four members", "gzip", gibibyte
    yield "many members", "gzip", gzip.compress(bytes(32 * MIB)) * 32
    yield "a million empty members", "gzip", gzip.compress(b"") * 800_000
    yield "deflate", "deflate", zlib.compress(bytes(2**28), 1)
    yield "one frame", "zstd", zstd(bytes(2**29), window_log=20, compression_level=1)
    yield "many frames", "zstd", zstd(bytes(32 * MIB), compression_level=1) * 32
    yield "a million empty frames", "zstd", zstd(b"", compression_level=1) * 800_000
    yield "a huge window", "zstd", zstd(bytes(2**28), window_log=27, compression_level=1)
    yield "one in another", "gzip, gzip", gzip.compress(gibibyte)
    yield "one in another of another kind", "zstd, gzip", gzip.compress(zstd(bytes(2**28), compression_level=1))
    yield "a member after the request", "gzip", gzip.compress(b'{"input":"x"}') + gibibyte


@pytest.mark.timeout(110)  # most of it makes the bombs
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
async def test_no_squeezed_body_takes_more_memory_than_a_plain_one_may(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("def serve(input, **options):\n    return 'x'\n")
    async with process(program, "--max-body-bytes", "32MiB") as server:
        assert (await post(server.url, {"input": "x"})).status == 200
        start = peak(server)
        for name, encoding, body in bombs():
            headers = {"content-type": "application/json", "content-encoding": encoding}
            answer = await ask(server.url, Request("POST", "/v1/responses", body, headers))

            refused(answer, name)
            assert peak(server) - start < ROOM, name
            assert (await get(server.url, "/health")).status == 200


def refused(answer: Answer, name: str) -> None:
    assert answer.status in {400, 413, 415}, (name, answer.status)
    oracle.check_error(answer.json)


def peak(server: Process) -> int:
    """The most memory the process ever held, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_body_in_several_pieces_is_read_to_its_end(url: str, encoding: str) -> None:
    pack = gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor().compress
    body = pack(b'{"input":') + pack(b'"said"') + pack(b"}")
    headers = {"content-type": "application/json", "content-encoding": encoding}

    answer = await ask(url, Request("POST", "/v1/responses", body, headers))
    junk = await ask(url, Request("POST", "/v1/responses", body + b"junk", headers))

    assert answer.json["output"][0]["content"][0]["text"] == "said"
    assert (junk.status, junk.error["code"]) == (400, "invalid_encoding")
