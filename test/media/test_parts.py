"""What this server never reads is refused with its place before anything is done."""

import json
from typing import Any

import pytest

from mellea_responses.errors import InvalidRequest
from mellea_responses.media.parts import check_media
from mellea_responses.normalize.items import InputItem, normalize_input
from mellea_responses.wire.decode import decode_create
from support.pictures import picture

PNG = picture("PNG")


def items(*given: Any) -> tuple[InputItem, ...]:
    return normalize_input(decode_create(json.dumps({"input": given}).encode()).input)


def said(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": "see"}, *parts]}


NEVER = [
    {"type": "input_image", "image_url": "https://example.org/a.png"},
    {"type": "input_image", "image_url": "file:///etc/passwd"},
    {"type": "input_image", "image_url": "/etc/passwd"},
    {"type": "input_image", "image_url": "data:image/png,notbase64"},
    {"type": "input_image", "file_id": "file_1"},
    {"type": "input_file", "file_id": "file_1"},
    {"type": "input_file", "file_url": "https://example.org/a.pdf"},
    {"type": "input_video", "video_url": "https://example.org/a.mp4"},
]


@pytest.mark.parametrize("part", NEVER)
def test_what_this_server_never_reads_is_refused_with_its_place(part: Any) -> None:
    output = {"type": "function_call_output", "call_id": "c", "output": [part]}
    custom = {"type": "custom_tool_call_output", "call_id": "c", "output": [part]}

    for given, param in (
        (items(said(part)), "input[0].content[1]"),
        (items(said(), output), "input[1].output[0]"),
        (items(said(), custom), "input[1].output[0]"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            check_media(given)
        assert caught.value.param == param


@pytest.mark.parametrize("part", NEVER[1:])
def test_a_web_address_is_let_pass_where_pictures_are_fetched_and_nothing_else(part: Any) -> None:
    for url in ("http://example.org/a.png", "HTTPS://example.org/a.png"):
        check_media(items(said({"type": "input_image", "image_url": url})), remote=True)

    with pytest.raises(InvalidRequest):
        check_media(items(said(part)), remote=True)


def test_a_data_url_passes_whatever_its_size_and_parameters() -> None:
    for url in (PNG, PNG.upper(), "data:image/jpeg;name=a.jpg;base64,AAAA", "data:;base64,AAAA", PNG + "A" * 100_000):
        check_media(items(said({"type": "input_image", "image_url": url})))
