"""Streams: their order, numbers, ids and ends, and the text in them."""

from typing import Any

import openai
from cases.checks.registry import check
from cases.checks.vocabulary import calls, items_done, message_text, of_type
from cases.play import Played

from support import oracle
from support.recogniser import recognise_frames, texts

# ---------------------------------------------------------------- streams


@check("Collect every event in arrival order.")
def _(played: Played) -> None:
    assert played.one.clean
    assert played.one.events


@check("The output_index values of all output_item.done events never fall: 0 for the message, then 1 for the call.")
def _(played: Played) -> None:
    done = of_type(played.one.events, "response.output_item.done")

    assert [event["output_index"] for event in done] == [0, 1]
    assert [event["item"]["type"] for event in done] == ["message", "function_call"]


@check("The closing response's output list has the message first and the call second.")
def _(played: Played) -> None:
    assert [item["type"] for item in played.one.response["output"]] == ["message", "function_call"]


@check("Every JSON event has an integer sequence_number.")
def _(played: Played) -> None:
    assert all(type(event["sequence_number"]) is int for event in played.one.events)


@check("The numbers start at 0 and rise by exactly 1 in arrival order, including the closing event.")
def _(played: Played) -> None:
    events = played.one.events

    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"


@check("Comment lines and the end marker use no number.")
def _(played: Played) -> None:
    unnumbered = [frame for frame in played.one.frames if not frame.is_event]

    assert all(frame.is_comment or frame.is_done for frame in unnumbered)
    assert sum(frame.is_done for frame in unnumbered) == 1


@check(
    "Order: response.created, response.in_progress, output_item.added, content_part.added, output_text.delta (one or "
    "more), output_text.done, content_part.done, output_item.done, response.completed, then data: [DONE]."
)
def _(played: Played) -> None:
    kinds = [event["type"].removeprefix("response.") for event in played.one.events]
    deltas = kinds.count("output_text.delta")

    assert deltas >= 1
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * deltas,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert played.one.frames[-1].is_done


@check("output_text.done.text and content_part.done.part.text both equal 'north wind'.")
def _(played: Played) -> None:
    (told,) = of_type(played.one.events, "response.output_text.done")
    (closed,) = of_type(played.one.events, "response.content_part.done")

    assert told["text"] == closed["part"]["text"] == "north wind"


@check("The SSE event line equals the type field of each event; no id lines.")
def _(played: Played) -> None:
    for frame in played.one.frames:
        assert "id" not in frame.names
        assert not frame.is_event or frame.event == frame.json["type"]


@check("The reasoning item gets added and done events before the message item is added.")
def _(played: Played) -> None:
    moves = of_type(played.one.events, "response.output_item.added", "response.output_item.done")

    assert [(event["type"].rsplit(".")[-1], event["item"]["type"]) for event in moves] == [
        ("added", "reasoning"),
        ("done", "reasoning"),
        ("added", "message"),
        ("done", "message"),
    ]


@check("Each reasoning or text delta is preceded by an added event for its item and for its part.")
def _(played: Played) -> None:
    opened: set[tuple[Any, ...]] = set()
    deltas = 0
    for event in played.one.events:
        part = (event.get("item_id"), event.get("content_index", event.get("summary_index")))
        if event["type"].endswith("item.added"):
            opened.add((event["item"]["id"],))
        elif event["type"].endswith("part.added"):
            assert part[:1] in opened
            opened.add(part)
        elif event["type"].endswith(".delta"):
            assert part in opened
            deltas += 1
    assert deltas >= 2


@check("The message item has its own id and output_index 1.")
def _(played: Played) -> None:
    reasoning, message = of_type(played.one.events, "response.output_item.added")

    assert message["output_index"] == 1
    assert message["item"]["id"] != reasoning["item"]["id"]


@check(
    "All events of the message carry one and the same item_id, equal to item.id in output_item.added and "
    "output_item.done and to output[0].id in the closing response."
)
def _(played: Played) -> None:
    events = played.one.events
    named = [event["item_id"] for event in events if "item_id" in event]
    held = [event["item"]["id"] for event in events if "item" in event]

    assert len(named) >= 5
    assert {*named, *held} == {played.one.response["output"][0]["id"]}


@check(
    "The item objects in output_item.done, in the closing response and in the later GET are deep-equal, ids included."
)
def _(played: Played) -> None:
    streamed, fetched = played.answers

    assert items_done(streamed) == streamed.response["output"] == fetched.json["output"]


@check("Joined argument deltas equal arguments in all three places.")
def _(played: Played) -> None:
    streamed, fetched = played.answers
    joined = "".join(event["delta"] for event in of_type(streamed.events, "response.function_call_arguments.delta"))
    done = [item for item in items_done(streamed) if item["type"] == "function_call"]

    assert joined == '{"harbour":"Kilmore","hour":4}'
    assert {joined} == {call["arguments"] for call in [*done, *calls(streamed.response), *calls(fetched.json)]}


@check("The closing response has id, object, model, created_at, usage and a non-empty output.")
def _(played: Played) -> None:
    closing = played.answers[0].response

    assert all(closing[name] for name in ("id", "object", "model", "created_at", "usage", "output"))


@check(
    "The stream ends with response.failed whose response.status is failed and response.error has code and message, "
    "then data: [DONE]; no response.completed."
)
def _(played: Played) -> None:
    streamed = played.answers[0]
    last = streamed.events[-1]

    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"]
    assert last["response"]["error"]["message"]
    assert streamed.frames[-1].is_done
    assert not of_type(streamed.events, "response.completed")


@check("The text 'device lost' is in no output_text.")
def _(played: Played) -> None:
    assert all(b"device lost" not in answer.body for answer in played.answers)


@check("GET shows status failed, not in_progress.")
def _(played: Played) -> None:
    assert played.answers[1].json["status"] == "failed"
    assert message_text(played.answers[1].json) == "one two "


@check("The unstreamed request gives 500 with an error object.")
def _(played: Played) -> None:
    oracle.check_error(played.answers[2].json)


@check("Content-Type is application/json, not text/event-stream.")
def _(played: Played) -> None:
    assert played.one.headers["content-type"].split(";")[0] == "application/json"


@check('The body is {"error":{message,type,param,code}} with param input.')
def _(played: Played) -> None:
    oracle.check_error(played.one.json)
    assert played.one.error["param"] == "input"


@check("A plain 500 JSON error before any event is also fine.")
def _(played: Played) -> None:
    """Ours is the other outcome; `policy.PINNED` says so."""
    assert played.one.is_stream


@check(
    "If a frame of type error is sent, it has a top-level object key named error holding type, code, message, param, "
    "and a sequence_number."
)
def _(played: Played) -> None:
    (error,) = of_type(played.one.events, "error")

    assert type(error["sequence_number"]) is int
    assert error["error"].keys() >= {"type", "code", "message", "param"}


@check(
    "Reading the stream with the official Python SDK either raises APIError or yields an event whose type is "
    "response.failed; it must not just end."
)
async def _(played: Played) -> None:
    assert await sdk_sees_the_failure(played.url)


async def sdk_sees_the_failure(url: str) -> bool:
    """Whether somebody who reads a stream with the SDK learns that it failed."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        try:
            stream = await client.responses.create(model="served-program", input="Hi", stream=True)
            return "response.failed" in [event.type async for event in stream]
        except openai.APIError:
            return True


@check("At least one output_text.delta is sent and the joined deltas equal 'already done'.")
def _(played: Played) -> None:
    assert "".join(texts(played.one.events)) == "already done"


@check("The full lifecycle is present.")
def _(played: Played) -> None:
    assert recognise_frames(played.one.frames)["status"] == "completed"


# ---------------------------------------------------------------- text


@check("No delta and no final text holds U+FFFD.")
def _(played: Played) -> None:
    assert all("�" not in answer.body.decode() and b"\\ufffd" not in answer.body.lower() for answer in played.answers)


@check("Joined deltas and the unstreamed text both equal 'OK 🌊 bye'.")
def _(played: Played) -> None:
    streamed, plain = played.answers

    assert "".join(texts(streamed.events)) == message_text(plain.json) == "OK 🌊 bye"


@check("A delta with 'bye' arrives (the stream does not stall after the split character).")
def _(played: Played) -> None:
    assert any("bye" in delta for delta in texts(played.answers[0].events))


@check("Joined deltas equal 'alpha ' (or 'alpha'), with nothing of END or after it.")
def _(played: Played) -> None:
    assert "".join(texts(played.one.events)) == message_text(played.one.response) == "alpha "
