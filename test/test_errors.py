"""Every failure a client can see has its place: status, type and a code that stays."""

from collections.abc import Iterator
from typing import Any

import pytest

from mellea_responses import errors
from mellea_responses.errors import ApiError, InvalidRequest, PreviousResponseNotFound, well_formed
from support import oracle


def tree(kind: type[ApiError] = ApiError) -> Iterator[type[ApiError]]:
    yield kind
    for inner in kind.__subclasses__():
        if inner.__module__ == errors.__name__:
            yield from tree(inner)


KINDS = list(tree())


@pytest.mark.parametrize("kind", KINDS)
def test_the_picture_of_the_tree_is_the_tree(kind: type[ApiError]) -> None:
    [line] = [
        line for line in (errors.__doc__ or "").splitlines() if line.lstrip("│├└─ ").startswith(f"{kind.__name__} ")
    ]

    assert str(kind.status) in line
    assert line.split()[-1] == kind.default_code
    assert kind.type in line or any(base.type == kind.type for base in kind.__mro__[1:] if issubclass(base, ApiError))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_type_that_clients_know(kind: type[ApiError]) -> None:
    error = kind("x")

    assert error.type in oracle.ERROR_TYPES
    assert error.message
    assert error.code
    assert (400 <= error.status < 500) == (error.type not in ("server_error", "model_error"))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.status in (429, 503)])
def test_who_may_come_back_is_told_when(kind: type[ApiError]) -> None:
    assert int(kind.headers["retry-after"]) > 0


def test_codes_tell_kinds_apart() -> None:
    assert len({kind.default_code for kind in KINDS}) == len(KINDS)


def test_an_unknown_previous_response_names_its_id_in_a_short_message() -> None:
    error = PreviousResponseNotFound("resp_" + "x" * 10_000)

    assert error.param == "previous_response_id"
    assert len(error.message) < 400


@pytest.mark.parametrize(
    ("text", "sound"),
    [("a", "a"), ("é", "é"), ("\ud83d\ude00", "\N{GRINNING FACE}"), ("a\ud83d", "a\N{REPLACEMENT CHARACTER}")],
)
def test_half_a_character_never_gets_into_an_error(text: str, sound: str) -> None:
    error = ApiError(text, param=text, code=text)

    assert well_formed(text) == error.message == error.param == error.code == sound


@pytest.mark.parametrize(("given", "told"), [(None, ""), (5, "5"), (["a"], "['a']")])
def test_whatever_a_program_puts_into_an_error_the_client_gets_strings(given: Any, told: str) -> None:
    error = InvalidRequest(given, param=given, code=given)

    assert (error.message, error.param, error.code) == (told, told, told or "invalid_request")
