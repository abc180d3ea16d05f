"""What one turn leaves for the next."""

import re
import threading
from typing import Any

from cases.checks.registry import check
from cases.checks.vocabulary import calls, message_text, messages
from cases.play import Played

from support.raw import Request, ask, exchange, get, post, posting
from support.serving import serving
from support.stand_in import calls_of, text_of

# ---------------------------------------------------------------- state


PRINTED_CALL = re.compile(r"\[\{'|\w+Call\(|function_call|<function")


@check("In turn 3 the program received, in order: user 1, assistant 1, user 2, assistant 2, user 3.")
def _(played: Played) -> None:
    received = messages(played, 2)
    first, second = (message_text(response) for response in played.responses[:2])

    assert [(message["role"], text_of(message)) for message in received] == [
        ("user", "My boat is called Heron."),
        ("assistant", first),
        ("user", "I moor it at Sligo."),
        ("assistant", second),
        ("user", "Say both."),
    ]


@check("previous_response_id is echoed.")
def _(played: Played) -> None:
    first, second, third = played.responses

    assert first["previous_response_id"] is None
    assert [second["previous_response_id"], third["previous_response_id"]] == [first["id"], second["id"]]


@check("Sent right after the closing event, the second request finds the first.")
async def _(played: Played) -> None:
    """On a second connection, while the first body is not even read to its end."""
    assert played.answers[1].json["previous_response_id"] == played.answers[0].response["id"]
    assert played.answers[2].json == played.answers[0].response


@check("The program received the number in turn 2.")
def _(played: Played) -> None:
    assert next(text_of(message) for message in messages(played, 1)) == "Remember 41."


@check("Turn 1: the first message is a system message with the French text.")
def _(played: Played) -> None:
    assert _systems(played, 0) == [(0, "Answer in French.")]


@check("Turn 2: exactly one system message, the Irish text, at the start.")
def _(played: Played) -> None:
    assert _systems(played, 1) == [(0, "Answer in Irish.")]


@check("Turn 3: no system message.")
def _(played: Played) -> None:
    assert _systems(played, 2) == []


def _systems(played: Played, call: int) -> list[tuple[int, str]]:
    received = enumerate(messages(played, call))
    return [(place, text_of(message)) for place, message in received if message["role"] in {"system", "developer"}]


@check("instructions in the response object is that request's own value.")
def _(played: Played) -> None:
    assert [response["instructions"] for response in played.responses] == [
        "Answer in French.",
        "Answer in Irish.",
        None,
    ]


@check("Turn 2: the program received the call as a call (name, arguments, call_id), followed by its output.")
def _(played: Played) -> None:
    _has_the_pair(played, 1)


@check("Turn 3: both are still there.")
def _(played: Played) -> None:
    _has_the_pair(played, 2)


def _has_the_pair(played: Played, call: int) -> None:
    received = messages(played, call)
    call_id = calls(played.responses[0])[0]["call_id"]
    place = next(place for place, message in enumerate(received) if calls_of(message))

    assert calls_of(received[place]) == [("tide_height", {"harbour": "Howth"}, call_id)]
    assert received[place + 1]["role"] == "tool"
    assert received[place + 1]["tool_call_id"] == call_id
    assert text_of(received[place + 1]) == "3.1"


@check("No message holds a printed Python list of calls.")
def _(played: Played) -> None:
    for received in played.program.received:
        assert not [message for message in received.messages if PRINTED_CALL.search(text_of(message))]


@check("store is echoed false.")
def _(played: Played) -> None:
    assert [response["store"] for response in played.responses] == [False, False]


@check("The same in streamed and unstreamed mode.")
def _(played: Played) -> None:
    _, plain, _, _, streamed = played.answers

    assert plain.error["code"] == streamed.error["code"]
    assert plain.error["type"] == streamed.error["type"] == "not_found_error"


@check("The answers for key B are the same as for an id that never existed.")
async def _(played: Played) -> None:
    known = played.saved["t1"]["id"]
    ghost = "resp_" + "0" * (len(known) - 5)
    headers = {"authorization": "Bearer key-B"}
    body = {"model": "served-program", "previous_response_id": ghost, "input": "?"}
    never = [
        await ask(played.url, Request("GET", f"/v1/responses/{ghost}", headers=headers)),
        await ask(played.url, Request("DELETE", f"/v1/responses/{ghost}", headers=headers)),
        await ask(played.url, posting(body, **headers)),
    ]

    assert [one.body.replace(ghost.encode(), b"") for one in never] == [
        one.body.replace(known.encode(), b"") for one in played.answers[1:4]
    ]


@check("The program received one user message each time.")
def _(played: Played) -> None:
    assert sorted(text_of(*received.messages) for received in played.program.received) == [
        "I am Ann",
        "I am Bob",
        "Who am I?",
    ]


@check(
    "With a limit of 1,000 entries and a TTL of 2 s, the store never holds more than 1,000 and is empty after the wait "
    "without any new request."
)
def _(played: Played) -> None:
    assert len(played.held) > 3000
    assert 1 < max(played.held) <= 1000
    assert played.held[-1] == 0


@check("Side tables (events, messages, tasks) shrink too.")
def _(played: Played) -> None:
    assert played.entries[-1] <= played.entries[0] + 50


@check("Entries in progress are not dropped.")
async def _(played: Played) -> None:
    """One answer is held open while twice as many others as fit come and go."""
    go_on = threading.Event()

    def serve(input: Any) -> str:
        return "kept" if input[-1].content == "hold" and go_on.wait(30) else "other"

    async with serving(serve, store_max_entries=5) as url:
        async with exchange(url, posting({"model": "m", "input": "hold", "stream": True})) as opened:
            created = (await anext(opened.frames())).json["response"]["id"]
            others = [await post(url, {"model": "m", "input": "other"}) for _ in range(10)]
            during = await get(url, f"/v1/responses/{created}")
            go_on.set()
            await opened.finish()
        after = await get(url, f"/v1/responses/{created}")
        oldest = await get(url, f"/v1/responses/{others[0].json['id']}")

    assert (during.json["status"], after.json["status"]) == ("in_progress", "completed")
    assert message_text(after.json) == "kept"
    assert oldest.status == 404
