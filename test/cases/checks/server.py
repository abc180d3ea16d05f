"""The process and its doors: blocking, leaving, stopping, limits, headers."""

import asyncio
import itertools
import json
import logging
import re

import openai
from cases.checks.registry import check
from cases.checks.vocabulary import (
    errors,
    message_text,
    messages,
    warnings_of,
)
from cases.play import Played

from support import oracle
from support.raw import Answer, Request, ask, get, post
from support.recogniser import recognise_frames
from support.stand_in import text_of

# ---------------------------------------------------------------- engine and process


@check("/health answers in under 0.3 s each time during the 4 s.")
async def _(played: Played) -> None:
    (health,) = [answer for answer in played.answers if answer.body and not _has_output(answer)]
    assert health.ended_at is not None
    assert health.ended_at - health.sent_at < 0.3

    blocked = asyncio.create_task(post(played.url, {"model": "m", "input": "slow"}))
    while not blocked.done():
        again = await get(played.url, "/health")
        assert again.status == 200
        assert again.ended_at is not None
        assert again.ended_at - again.sent_at < 0.3
        await asyncio.sleep(0.1)


def _has_output(answer: Answer) -> bool:
    return answer.is_stream or "output" in answer.json


@check("The streamed request sends its headers at once.")
def _(played: Played) -> None:
    (streamed,) = [answer for answer in played.answers if answer.is_stream]

    assert streamed.headers_at - streamed.sent_at < 1
    assert streamed.response["status"] == "completed"


@check("Generation of the dropped request stops within 1 s (count pieces pulled from the program).")
def _(played: Played) -> None:
    dropped = played.program.received[0]

    assert dropped.pulled < 400
    assert max(dropped.pulled_at) < played.left_at + 1
    assert dropped.ended == "left"


@check("The short request starts at once.")
def _(played: Played) -> None:
    short = played.answers[1]

    assert played.program.received[1].pulled_at[0] - short.sent_at < 1


@check("The process lives; no error trace in the log beyond one line.")
async def _(played: Played) -> None:
    assert (await get(played.url, "/health")).status == 200
    assert not [record for record in played.log if record.exc_info or record.levelno >= logging.ERROR]
    assert sum(message.count("\n") for message in warnings_of(played.log)) == 0


@check("The first ends with response.failed within 2 s.")
def _(played: Played) -> None:
    first = played.answers[0]

    assert first.events[-1]["type"] == "response.failed"
    assert first.ended_at is not None
    assert first.ended_at - first.chunks[0].at < 2


@check("The second completes.")
def _(played: Played) -> None:
    assert played.answers[1].json["status"] == "completed"


@check("The process ends within 5 s.")
def _(played: Played) -> None:
    assert played.exit_after is not None
    assert played.exit_after < 5


@check("The client got a terminal event or a clean close.")
def _(played: Played) -> None:
    assert played.one.clean
    assert recognise_frames(played.one.frames)["status"] in {"failed", "incomplete", "cancelled"}


@check("The program received top_p 0.1, temperature 0.7 and the token limit.")
def _(played: Played) -> None:
    options = played.program.received[0].options

    assert options["top_p"] == 0.1
    assert options["temperature"] == 0.7
    assert 64 in options.values()


@check(
    "The response object shows the values really used; an option that cannot be used is refused, or shown at its "
    "default."
)
def _(played: Played) -> None:
    first, second = played.responses

    assert (first["top_p"], first["temperature"], first["max_output_tokens"]) == (0.1, 0.7, 64)
    assert second["presence_penalty"] == played.program.received[1].options.get("presence_penalty", 0)


# ---------------------------------------------------------------- schemas


@check("param starts with text.format in each error.")
def _(played: Played) -> None:
    assert all(error["param"].startswith("text.format") for error in errors(played))


@check("Never 200 with the constraint dropped; the process lives.")
def _(played: Played) -> None:
    assert len(played.program.received) == 1
    assert message_text(played.answers[-1].json) == "x"


# ---------------------------------------------------------------- http


@check("Headers and response.created arrive within 1 s.")
def _(played: Played) -> None:
    first = played.one.chunks[0]

    assert played.one.headers_at - played.one.sent_at < 1
    assert first.at - played.one.sent_at < 1
    assert b"event: response.created\n" in first.data


@check("A comment line (starts with a colon) arrives at least every 10 s of silence.")
def _(played: Played) -> None:
    times = [played.one.headers_at, *(chunk.at for chunk in played.one.chunks)]

    assert max(later - earlier for earlier, later in itertools.pairwise(times)) < 10.5
    assert any(frame.is_comment for frame in played.one.frames)


@check("The SDK reads the stream without error; comment lines take no sequence number.")
async def _(played: Played) -> None:
    async with openai.AsyncOpenAI(base_url=f"{played.url}/v1", api_key="unused", max_retries=0) as client:
        stream = await client.responses.create(model="served-program", input="long prompt", stream=True)
        events = [event async for event in stream]

    assert events[-1].type == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))


@check("Headers: Content-Type text/event-stream, Cache-Control no-cache, X-Accel-Buffering no; no Content-Encoding.")
def _(played: Played) -> None:
    headers = played.one.headers

    assert headers["content-type"].split(";")[0] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in headers


@check("No Access-Control-Allow-Origin for that origin.")
def _(played: Played) -> None:
    assert all("access-control-allow-origin" not in answer.headers for answer in played.answers)


@check("text/plain is not taken as JSON (it needs no preflight, so any page could send it).")
async def _(played: Played) -> None:
    refused = played.answers[1]
    plain = Request("POST", "/v1/responses", b'{"input":"x"}', {"content-type": "text/plain"})

    assert refused.error["code"] == "origin_refused"  # before its kind is looked at, which would not save it either
    assert (await ask(played.url, plain)).error["code"] == "unsupported_media_type"


@check("A foreign Host on a loopback bind is refused.")
def _(played: Played) -> None:
    oracle.check_error(played.answers[2].json)
    assert not played.program.received


@check("The first is not 413; 400 only for the model window (code context_length_exceeded).")
def _(played: Played) -> None:
    assert played.answers[0].json["status"] == "completed"
    assert len(text_of(messages(played, 0)[0])) == 300_000


@check(
    "The second is within the spec's string limit of 10,485,760: not 413 (a 10,000,000-byte framework default refuses "
    "it)."
)
def _(played: Played) -> None:
    assert played.answers[1].json["status"] == "completed"
    assert len(text_of(messages(played, 1)[0])) == 10_400_000


@check("413 has the error shape.")
def _(played: Played) -> None:
    oracle.check_error(played.answers[2].json)


@check("Deep nesting is 400, not 500.")
def _(played: Played) -> None:
    oracle.check_error(played.answers[3].json)


@check("Each answer within 5 s; memory returns.")
def _(played: Played) -> None:
    for answer in played.answers:
        assert answer.ended_at is not None
        assert answer.ended_at - answer.sent_at < 5


@check("The list has object list and data[].id.")
def _(played: Played) -> None:
    listed = played.answers[0].json

    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["served-program"]


@check(
    "404: code model_not_found, param model, served names in the message. 200: model names what really ran, not "
    "no-such-model."
)
def _(played: Played) -> None:
    refused = played.answers[1].error

    assert (refused["code"], refused["param"]) == ("model_not_found", "model")
    assert "served-program" in refused["message"]
    assert played.answers[2].json["model"] == "served-program"


@check("Status of a good POST is 200, not 201.")
def _(played: Played) -> None:
    assert played.answers[0].status == 200


@check("Errors have the OpenAI shape.")
def _(played: Played) -> None:
    for answer in played.answers:
        if answer.status >= 400:
            oracle.check_error(answer.json)


@check("The message for a lone surrogate does not claim the body was cut.")
def _(played: Played) -> None:
    assert not re.search(r"truncat|cut|unexpected end|incomplete", played.answers[1].error["message"], re.IGNORECASE)


@check("The template is never rendered (answer within 2 s, no 49).")
def _(played: Played) -> None:
    for answer in played.answers:
        assert answer.ended_at is not None
        assert answer.ended_at - answer.sent_at < 2
        assert b"49" not in re.sub(rb'"(id|created_at|completed_at)":("[^"]*"|\d+)', b"", answer.body)
    assert all("{%" not in json.dumps(one.options) for one in played.program.received)


@check("Other requests are served meanwhile.")
async def _(played: Played) -> None:
    bodies = [turn["body"] for turn in played.case["request"]["turns"]]

    *_, health = await asyncio.gather(*(post(played.url, body) for body in bodies), get(played.url, "/health"))

    assert health.status == 200
