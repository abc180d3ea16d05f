"""Objects: errors, responses, usage, reasoning."""

import logging
import re

from cases.checks.registry import check
from cases.checks.vocabulary import PYTHON_WORDS, errors, of_type
from cases.play import Played
from openresponses_types import ResponseResource

from support import oracle
from support.raw import post
from support.serving import serving
from support.stand_in import Json, StandIn

REQUIRED_FIELDS = {name for name, field in ResponseResource.model_fields.items() if field.is_required()}

# ---------------------------------------------------------------- errors


@check("The body is under 4 KB.")
def _(played: Played) -> None:
    assert len(played.one.body) < 4096


@check("It does not echo the input.")
def _(played: Played) -> None:
    assert played.one.body.count(b"input_text") == 0


@check("It has the error object shape with a param that points at the first bad place.")
def _(played: Played) -> None:
    oracle.check_error(played.one.json)
    assert played.one.error["param"].startswith("input[0].content[0]")


@check('Each body is {"error":{"message","type","param","code"}} as JSON; param is input for the first two.')
def _(played: Played) -> None:
    for answer in played.answers:
        assert answer.headers["content-type"].split(";")[0] == "application/json"
        oracle.check_error(answer.json)
    assert [error["param"] for error in errors(played)][:2] == ["input", "input"]


@check("No Python names, signatures or paths in the messages.")
def _(played: Played) -> None:
    for error in errors(played):
        assert not PYTHON_WORDS.search(error["message"]), error["message"]


@check("error.type is server_error; the message is generic and holds neither the path nor the class name.")
def _(played: Played) -> None:
    assert played.one.error["type"] == "server_error"
    assert not re.search(r"master|/srv|KeyError|row 9", played.one.body.decode())


@check("The server log has the full trace with a request id that is also in the answer.")
def _(played: Played) -> None:
    request_id = played.one.headers["x-request-id"]
    traces = [record for record in played.log if record.exc_info and request_id in _with_fields(record)]

    assert request_id
    assert len(traces) == 1
    assert "/srv/keys/master.pem row 9" in logging.Formatter().format(traces[0])


def _with_fields(record: logging.LogRecord) -> str:
    return record.getMessage() + " " + " ".join(str(value) for value in vars(record).values())


# ---------------------------------------------------------------- objects


@check("ids start with resp_, items with msg_, fc_ or rs_; all distinct over both answers.")
def _(played: Played) -> None:
    own = [response["id"] for response in played.responses]
    items = [item["id"] for response in played.responses for item in response["output"]]

    assert all(name.startswith("resp_") for name in own)
    assert all(name.startswith(("msg_", "fc_", "rs_")) for name in items)
    assert len({*own, *items}) == 4


@check("Each id is at most 64 characters and holds at least 96 random bits.")
async def _(played: Played) -> None:
    more = [(await post(played.url, {"model": "m", "input": "a"})).json for _ in range(100)]
    every = [*played.responses, *more]
    for names in ([one["id"] for one in every], [one["output"][0]["id"] for one in every]):
        random = [name.split("_", 1)[1] for name in names]

        assert all(len(name) <= 64 for name in names)
        assert len(set(names)) == len(names)
        assert min(map(_varying_bits, [random])) >= 96


def _varying_bits(names: list[str]) -> float:
    """Bits of the places that differ between names, read as hex or as letters and digits."""
    (length,) = {len(name) for name in names}
    varying = sum(len({name[place] for name in names}) > 4 for place in range(length))
    is_hex = all(re.fullmatch("[0-9a-f]+", name) for name in names)
    return varying * (4 if is_hex else 5.9)


@check("All 31 required fields of the spec's response object are present (null where empty).")
def _(played: Played) -> None:
    assert len(REQUIRED_FIELDS) == 31
    for response in played.responses:
        assert response.keys() >= REQUIRED_FIELDS
        oracle.check_response(response)


@check("created_at and completed_at are integers; temperature, top_p and both penalties are numbers.")
def _(played: Played) -> None:
    for response in played.responses:
        assert all(type(response[name]) is int for name in ("created_at", "completed_at"))
        numbers = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
        assert all(type(response[name]) in (int, float) for name in numbers)


@check("response.created and response.in_progress carry the same full object with output [] and usage null.")
def _(played: Played) -> None:
    created, started = of_type(played.answers[1].events, "response.created", "response.in_progress")

    assert created["response"] == started["response"]
    assert created["response"].keys() >= REQUIRED_FIELDS
    assert created["response"]["output"] == []
    assert created["response"]["usage"] is None


@check("Every event has all fields its schema requires, output_index and content_index included.")
def _(played: Played) -> None:
    oracle.check_events(played.answers[1].events)


USAGE = {
    "input_tokens": 11,
    "output_tokens": 3,
    "total_tokens": 14,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens_details": {"reasoning_tokens": 1},
}


def _plain_usage(usage: Json) -> Json:
    details = {**usage["input_tokens_details"]}
    assert details.pop("cache_write_tokens", 0) == 0
    return {**usage, "input_tokens_details": details}


@check(
    "usage is {input_tokens 11, output_tokens 3, total_tokens 14, input_tokens_details.cached_tokens 4, "
    "output_tokens_details.reasoning_tokens 1}."
)
def _(played: Played) -> None:
    assert _plain_usage(played.answers[0].json["usage"]) == USAGE


@check("The streamed closing event has the same numbers.")
def _(played: Played) -> None:
    assert _plain_usage(played.answers[1].response["usage"]) == USAGE


@check(
    "With no counts from the engine, usage is still complete, estimated and marked as such in the log; never null, "
    "never partly filled."
)
async def _(played: Played) -> None:
    start = len(played.log)
    async with serving(StandIn({"say": "four words of text"}).serve) as url:
        for stream in (False, True):
            usage = (await post(url, {"model": "m", "input": "some words", "stream": stream})).response["usage"]

            assert usage.keys() == {*USAGE}
            assert usage["input_tokens"] > 0
            assert usage["output_tokens"] > 0
            assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    lines = [record.getMessage() for record in played.log[start:] if "usage=estimated" in record.getMessage()]
    assert len(lines) == 2


@check("status incomplete, incomplete_details.reason max_output_tokens, completed_at null.")
def _(played: Played) -> None:
    for response in played.responses:
        assert response["status"] == "incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["completed_at"] is None


@check("The last output item has status incomplete.")
def _(played: Played) -> None:
    for response in played.responses:
        assert response["output"][-1]["status"] == "incomplete"


@check("Streamed: the closing event is response.incomplete, not response.completed.")
def _(played: Played) -> None:
    assert played.answers[1].events[-1]["type"] == "response.incomplete"


# ---------------------------------------------------------------- reasoning


@check("Both modes: a reasoning item with 'weighing options' and a message 'Take the bus.'.")
def _(played: Played) -> None:
    for response in played.responses:
        reasoning, message = response["output"]

        assert reasoning["type"] == "reasoning"
        assert "".join(part["text"] for part in reasoning["content"]).strip() == "weighing options"
        assert message["content"][0]["text"].strip() == "Take the bus."


@check("No piece of the tag in any delta.")
def _(played: Played) -> None:
    deltas = [
        event["delta"] for answer in played.answers if answer.is_stream for event in answer.events if "delta" in event
    ]

    assert deltas
    assert not [delta for delta in deltas if re.search(r"<|/?think|>", delta.replace("thinking", ""))]


@check("Turn 1: encrypted_content is absent or null.")
def _(played: Played) -> None:
    assert all(item.get("encrypted_content") is None for item in played.answers[0].json["output"])


@check("Turn 2: it is null, or an opaque string without the words 'private steps'.")
def _(played: Played) -> None:
    (reasoning,) = [item for item in played.answers[1].json["output"] if item["type"] == "reasoning"]

    assert "private steps" not in (reasoning.get("encrypted_content") or "")
