"""Tools and items: what a program receives and what leaves it."""

import json

from cases.checks.registry import check
from cases.checks.vocabulary import PYTHON_WORDS, calls, errors, message_text, messages, of_type, roles
from cases.play import Played

from support.raw import post
from support.recogniser import texts
from support.stand_in import Json, text_of

# ---------------------------------------------------------------- tools


@check("The program received the tool result text '2.4 m rising' tied to call_k1.")
def _(played: Played) -> None:
    (result,) = [message for message in messages(played, 0) if message["role"] == "tool"]

    assert text_of(result) == "2.4 m rising"
    assert result["tool_call_id"] == "call_k1"


@check("Output is exactly one function_call item in both modes; no message item.")
def _(played: Played) -> None:
    for response in played.responses:
        assert [item["type"] for item in response["output"]] == ["function_call"]


@check("No output_text delta holds any part of the markup.")
def _(played: Played) -> None:
    assert not list(texts(played.answers[0].events))


@check('arguments parse to {"harbour":"Ross"}.')
def _(played: Played) -> None:
    for response in played.responses:
        assert json.loads(calls(response)[0]["arguments"]) == {"harbour": "Ross"}


@check("arguments is a string that parses to an object with only the key harbour; no hour: null was added.")
def _(played: Played) -> None:
    assert calls(played.one.response)[0]["arguments"] == '{"harbour":"Youghal"}'


@check(
    "Turn 1: two function_call items, output_index 0 and 1, each with a non-empty id and call_id, all four values "
    "distinct."
)
def _(played: Played) -> None:
    added = of_type(played.answers[0].events, "response.output_item.added")
    names = [event["item"][name] for event in added for name in ("id", "call_id")]

    assert [(event["item"]["type"], event["output_index"]) for event in added] == [
        ("function_call", 0),
        ("function_call", 1),
    ]
    assert all(names)
    assert len(set(names)) == 4


@check("Turn 2: no call_id or id equals any of turn 1.")
def _(played: Played) -> None:
    first, second = [
        {item[name] for item in response["output"] for name in ("id", "call_id") if name in item}
        for response in played.responses
    ]

    assert second
    assert not first & second


@check("At most one function_call item.")
def _(played: Played) -> None:
    assert len(calls(played.one.response)) == 1


@check("The response object has parallel_tool_calls false.")
def _(played: Played) -> None:
    assert played.one.response["parallel_tool_calls"] is False


@check(
    "Either output holds a function_call named tide_height, or the request is refused with param tool_choice, or it "
    "fails with type model_error."
)
def _(played: Played) -> None:
    assert played.one.error["type"] == "model_error"
    assert played.one.error["code"] == "tool_choice_violated"


@check("It is never 200 completed with only a message.")
async def _(played: Played) -> None:
    body = {**played.case["request"]["body"], "stream": True}

    streamed = await post(played.url, body)

    assert streamed.response["status"] == "failed"
    assert streamed.response["error"]["code"] == "tool_choice_violated"


@check(
    "Turn 1: one documented policy. 200: the echoed tools list only what was really offered. 400: param is "
    "tools[1].type and the message names the type."
)
def _(played: Played) -> None:
    answer = played.answers[0]

    assert [(tool["type"], tool["name"]) for tool in answer.json["tools"]] == [
        ("function", "tide_height"),
        ("custom", "patch"),
    ]
    assert answer.headers["x-mellea-unsupported-tools"] == "web_search"


@check("Turn 2: always 400.")
def _(played: Played) -> None:
    assert played.answers[1].status == 400


@check("Never 500 and never a silent change of tool_choice to auto.")
def _(played: Played) -> None:
    assert all(answer.status < 500 for answer in played.answers)
    assert played.answers[1].error["param"].startswith("tool_choice")


@check("The schema the program sees for spot still has both object shapes (not a string).")
def _(played: Played) -> None:
    spot = _tool(played, "place")["parameters"]["properties"]["spot"]

    assert spot == played.case["request"]["body"]["tools"][0]["parameters"]["properties"]["spot"]


@check("Tools without parameters, or with null, are accepted as taking no arguments.")
def _(played: Played) -> None:
    for name in ("ping", "pong"):
        assert not (_tool(played, name).get("parameters") or {}).get("properties")


def _tool(played: Played, name: str) -> Json:
    """A tool as the program received it, flat or chat-shaped."""
    bodies = [tool.get("function", tool) for tool in played.program.received[0].tools]
    (found,) = [body for body in bodies if body["name"] == name]
    return found


# ---------------------------------------------------------------- items


@check("The program received four messages in order with roles user, assistant, assistant, user.")
def _(played: Played) -> None:
    received = messages(played, 0)

    assert roles(received) == ["user", "assistant", "assistant", "user"]
    assert [text_of(message) for message in received] == ["Hi", "Hello.", "Still here.", "Again"]


@check("Accepted; an unreadable blob is ignored.")
def _(played: Played) -> None:
    assert played.one.json["status"] == "completed"


@check("No reasoning text or blob appears as a user or assistant message.")
def _(played: Played) -> None:
    received = messages(played, 0)

    assert [(message["role"], text_of(message)) for message in received] == [
        ("user", "Hi"),
        ("assistant", "Yo"),
        ("user", "Next"),
    ]
    assert "zzzz-not-ours" not in json.dumps(received)


@check("400: param is input[1].type and the message names the type. 200: the item was skipped and the rest answered.")
def _(played: Played) -> None:
    assert message_text(played.one.response) == "ok"
    assert roles(messages(played, 0)) == ["user"]


@check("Never 500, never a message that lists internal class names.")
async def _(played: Played) -> None:
    body = {**played.case["request"]["body"]}
    body["input"] = [body["input"][0], {"type": "message_from_tomorrow", "role": "developer"}]

    unknown = await post(played.url, body)

    assert unknown.status == 400
    assert unknown.error["param"] == "input[1].type"
    assert "message_from_tomorrow" in unknown.error["message"]
    assert not PYTHON_WORDS.search(unknown.error["message"]), unknown.error["message"]


@check("Error param is input and the message names call_ghost.")
def _(played: Played) -> None:
    assert played.answers[0].error["param"] == "input"
    assert "call_ghost" in played.answers[0].error["message"]


@check("Nothing was generated or stored for the bad request; the next request works.")
def _(played: Played) -> None:
    assert len(played.program.received) == 1
    assert message_text(played.answers[1].json) == "ok"


@check("Refused before generation, param input[0].content[1] (turn 1) and input[0].content[0] (turn 2).")
def _(played: Played) -> None:
    assert [error["param"] for error in errors(played)] == ["input[0].content[1]", "input[0].content[0]"]
