import pytest
from engine.tiny import make_tokenizer
from hypothesis import example, given
from hypothesis import strategies as st

from mellea_responses.engine.text import StopCutter, TokenText

TOKENIZER = make_tokenizer()


def through(cutter: StopCutter, pieces: list[str]) -> str:
    return "".join(map(cutter.feed, pieces)) + cutter.flush()


@given(st.text())
def test_pieces_together_are_the_whole_text(words: str) -> None:
    text = TokenText(TOKENIZER)
    words = words.encode("utf-8", "ignore").decode().replace("\N{REPLACEMENT CHARACTER}", "")

    pieces = [text.push(token)[1] for token in TOKENIZER.encode(words, add_special_tokens=False)]

    assert "".join(pieces) == words


@given(st.lists(st.integers(0, 350)))
def test_no_tokens_whatever_make_a_replacement_character(tokens: list[int]) -> None:
    text = TokenText(TOKENIZER)

    assert all("\N{REPLACEMENT CHARACTER}" not in text.push(token)[1] for token in tokens)


@given(st.lists(st.text("ab")), st.lists(st.text("ab", min_size=1, max_size=3), min_size=1))
@example(["b", "a", "a"], ["a", "baa"])
@example(["baa"], ["a", "baa"])
@example(["aba"], ["a", "ba", "aba"])
def test_text_ends_before_the_stop_string_that_is_whole_first_however_it_is_cut(
    pieces: list[str], stops: list[str]
) -> None:
    whole = "".join(pieces)
    grown = (whole[:end] for end in range(len(whole) + 1))
    until = next((text for text in grown if text.endswith(tuple(stops))), None)
    stop = max((stop for stop in stops if until and until.endswith(stop)), key=len, default="")

    assert through(StopCutter(stops), pieces) == (whole if until is None else until.removesuffix(stop))


@given(st.lists(st.text("ab")))
def test_no_more_is_held_back_than_could_become_a_stop_string(pieces: list[str]) -> None:
    cutter = StopCutter(["aab"])
    fed = left = ""

    for piece in pieces:
        fed, left = fed + piece, left + cutter.feed(piece)

        assert cutter.stopped or "aab".startswith(fed[len(left) :])


@pytest.mark.parametrize("stops", [[], [""]])
def test_without_stop_strings_nothing_is_held_back(stops: list[str]) -> None:
    assert StopCutter(stops).feed("abc") == "abc"
