"""Ids: a prefix that says what it is, and enough chance that nobody guesses one."""

import multiprocessing
import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from mellea_responses.ids import new_id, new_item_id, new_response_id
from mellea_responses.wire.items import PREFIXES


def test_a_response_s_id_names_the_root_of_its_chain() -> None:
    first = new_response_id()
    second = new_response_id(first)
    third = new_response_id(second)

    assert re.fullmatch(r"resp_[0-9a-f]{48}", first)
    assert first[:21] == second[:21] == third[:21]
    assert len({first, second, third}) == 3


@pytest.mark.parametrize(
    "previous", [None, "", "resp_", "resp_short", "resp_" + "X" * 48, "msg_" + "a" * 48, "resp_" + "é" * 48]
)
def test_after_an_id_of_another_make_a_chain_has_a_root_of_its_own(previous: str | None) -> None:
    assert re.fullmatch(r"resp_[0-9a-f]{48}", new_response_id(previous))


@pytest.mark.parametrize("kind", [*PREFIXES, "something_new"])
def test_an_item_s_id_says_its_kind(kind: str) -> None:
    assert re.fullmatch(rf"{PREFIXES.get(kind, 'item')}_[0-9a-f]{{32}}", new_item_id(kind))


def test_no_two_ids_are_alike_whatever_thread_makes_them() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: new_id("x"), range(10_000)))

    assert len(set(made)) == 10_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only Unix forks")
def test_a_process_that_was_forked_makes_ids_of_its_own() -> None:
    new_id("x")
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()
    child = context.Process(target=lambda: told.put(new_id("x")))
    child.start()
    other = told.get()
    child.join()

    assert new_id("x") != other
