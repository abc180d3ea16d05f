"""Stored responses: fetch, continue, list what went in, delete."""

from typing import Any

import pytest

from mellea_responses.turn import Turn
from support import oracle
from support.raw import delete, get, post
from support.serving import serving
from support.stand_in import Json


def serve(input: Any, turn: Turn) -> str:
    return f"{len(turn.items)} items"


def ask(text: Any = "Hello", **more: Any) -> Json:
    return {"model": "local", "input": text, **more}


MANY = [{"role": "user", "content": f"line {number}"} for number in range(25)]


async def test_a_response_is_fetched_as_it_was_answered() -> None:
    async with serving(serve) as url:
        answer = await post(url, ask(metadata={"a": "b"}))

        assert (await get(url, f"/v1/responses/{answer.json['id']}")).json == answer.json


async def test_a_deleted_response_is_gone_and_deleting_it_again_says_so() -> None:
    async with serving(serve) as url:
        path = f"/v1/responses/{(await post(url, ask())).json['id']}"

        first, again, fetched = await delete(url, path), await delete(url, path), await get(url, path)

    assert first.status == 200
    assert first.json == {"id": path.rsplit("/", 1)[1], "object": "response", "deleted": True}
    assert [again.status, fetched.status] == [404, 404]
    oracle.check_error(again.json)
    assert fetched.error["type"] == "not_found_error"


async def test_children_of_a_deleted_response_keep_working() -> None:
    async with serving(serve) as url:
        first = (await post(url, ask())).json
        second = (await post(url, ask(previous_response_id=first["id"]))).json
        await delete(url, f"/v1/responses/{first['id']}")

        third = await post(url, ask(previous_response_id=second["id"]))

    assert third.json["output"][0]["content"][0]["text"] == "5 items"


@pytest.mark.parametrize("ghost", ["resp_0123456789abcdef", "nonsense", "x" * 5000, "resp_%00", "é"])
async def test_ids_that_never_were_are_not_found(ghost: str) -> None:
    async with serving(serve) as url:
        fetched = await get(url, f"/v1/responses/{ghost.encode().hex() if ghost == 'é' else ghost}")
        continued = await post(url, ask(previous_response_id=ghost))

    assert fetched.status == 404
    assert continued.status == 400
    assert continued.error["code"] == "previous_response_not_found"
    assert continued.error["param"] == "previous_response_id"
    assert len(continued.body) < 4096


async def test_with_storing_off_nothing_is_kept_and_the_answer_says_so() -> None:
    async with serving(serve, response_ttl=0) as url:
        answer = await post(url, ask())
        fetched = await get(url, f"/v1/responses/{answer.json['id']}")
        continued = await post(url, ask(previous_response_id=answer.json["id"]))

    assert answer.json["store"] is False
    assert fetched.status == 404
    assert continued.status == 400


async def test_a_response_that_is_not_stored_still_stands_on_its_chain() -> None:
    async with serving(serve) as url:
        first = (await post(url, ask())).json

        second = await post(url, ask(previous_response_id=first["id"], store=False))

    assert second.json["output"][0]["content"][0]["text"] == "3 items"


async def test_a_failed_response_cannot_be_continued_and_a_cut_one_can() -> None:
    from mellea_responses.turn import Step, Stop, Text

    def program(input: Any) -> list[Step]:
        if input[-1].content == "fail":
            raise RuntimeError
        return [Text("cut"), Stop("length")]

    async with serving(program) as url:
        failed = (await post(url, ask("fail", stream=True))).response
        cut = (await post(url, ask("cut"))).json
        after_failure = await post(url, ask(previous_response_id=failed["id"]))
        after_cut = await post(url, ask(previous_response_id=cut["id"]))

    assert after_failure.status == 400
    assert after_failure.error["param"] == "previous_response_id"
    assert after_cut.status == 200


# ---------------------------------------------------------------- input items


async def items(url: str, response_id: str, query: str = "") -> Json:
    answer = await get(url, f"/v1/responses/{response_id}/input_items{query}")
    assert answer.status == 200, answer.body
    oracle.check_item_page(answer.json)
    page: Json = answer.json
    return page


def lines(page: Json) -> list[str]:
    return [item["content"][0]["text"] for item in page["data"]]


async def test_input_items_come_newest_first_twenty_at_a_time() -> None:
    async with serving(serve) as url:
        answer = (await post(url, ask(MANY))).json

        page = await items(url, answer["id"])

    assert lines(page) == [f"line {number}" for number in range(24, 4, -1)]
    assert page["has_more"] is True
    assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_of_input_items_join_to_the_whole(order: str) -> None:
    async with serving(serve) as url:
        answer = (await post(url, ask(MANY))).json
        seen, query = [], ""
        while True:
            page = await items(url, answer["id"], f"?order={order}&limit=10{query}")
            seen += lines(page)
            query = f"&after={page['last_id']}"
            if not page["has_more"]:
                break

    assert seen == [f"line {number}" for number in range(25)][:: 1 if order == "asc" else -1]


async def test_the_page_before_an_item_is_the_one_that_leads_to_it() -> None:
    async with serving(serve) as url:
        answer = (await post(url, ask(MANY))).json
        whole = await items(url, answer["id"], "?order=asc&limit=100")

        page = await items(url, answer["id"], f"?order=asc&limit=3&before={whole['data'][5]['id']}")

    assert lines(whole) == [f"line {number}" for number in range(25)]
    assert whole["has_more"] is False
    assert set(lines(page)) <= {f"line {number}" for number in range(5)}
    assert len(page["data"]) == 3


async def test_input_items_of_a_chain_are_all_that_the_response_stood_on() -> None:
    """The official API lists the context of the response, not only what its request added."""
    async with serving(serve) as url:
        first = (await post(url, ask("one"))).json
        second = (await post(url, ask("two", previous_response_id=first["id"]))).json

        page = await items(url, second["id"], "?order=asc")

    assert [item["role"] for item in page["data"]] in (["user", "assistant", "user"], ["user"])
    assert lines(page)[-1] == "two"


@pytest.mark.parametrize("query", ["?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=ghost", "?before=ghost"])
async def test_a_page_that_cannot_be_is_refused(query: str) -> None:
    async with serving(serve) as url:
        answer = (await post(url, ask())).json

        refused = await get(url, f"/v1/responses/{answer['id']}/input_items{query}")

    assert refused.status == 400
    oracle.check_error(refused.json)
    assert refused.error["param"] == query[1:].split("=")[0]


async def test_input_items_of_what_is_not_stored_are_not_found() -> None:
    async with serving(serve) as url:
        answer = (await post(url, ask(store=False))).json

        assert (await get(url, f"/v1/responses/{answer['id']}/input_items")).status == 404


async def test_an_input_item_can_be_referred_to_by_its_id_in_another_conversation() -> None:
    async with serving(serve) as url:
        answer = (await post(url, ask("remember me"))).json
        (item,) = (await items(url, answer["id"]))["data"]

        other = await post(url, ask([{"type": "item_reference", "id": item["id"]}, {"role": "user", "content": "?"}]))
        ghost = await post(url, ask([{"type": "item_reference", "id": "msg_ghost"}]))

    assert other.json["output"][0]["content"][0]["text"] == "2 items"
    assert ghost.status == 400
    assert "msg_ghost" in ghost.error["message"]
