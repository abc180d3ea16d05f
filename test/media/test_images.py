"""Pictures: sound ones pass and become PNG; what lies, is cut off or too large is the client's mistake."""

import base64
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from mellea_responses.errors import InvalidRequest
from mellea_responses.media import images, limits
from support.pictures import MARK, data_url, picture, picture_bytes, png


def noise(kind: str, size: tuple[int, int] = (64, 48)) -> bytes:
    out = BytesIO()
    Image.effect_noise(size, 50).convert("RGB").save(out, kind)
    return out.getvalue()


@pytest.mark.parametrize("kind", images.FORMATS)
def test_a_sound_picture_is_known_by_what_it_is(kind: str) -> None:
    assert images.look(picture_bytes(kind, (30, 20))) == (f"image/{kind.lower()}", 600)
    assert images.check(data_url(picture_bytes(kind), "text/plain")).kind == f"image/{kind.lower()}"


@pytest.mark.parametrize("mode", ["RGBA", "L", "P", "LA", "1", "CMYK", "I;16"])
def test_a_picture_in_any_colours_becomes_png(mode: str) -> None:
    kind = {"RGBA": "WEBP", "L": "GIF", "P": "GIF", "1": "GIF", "CMYK": "JPEG"}.get(mode, "PNG")

    made = Image.open(BytesIO(base64.b64decode(images.as_png(picture(kind, mode=mode)).partition(",")[2])))

    assert (made.format, made.size) == ("PNG", (3, 2))


def test_a_png_stays_as_it_is_but_for_its_spelling() -> None:
    plain = picture("PNG")

    assert images.as_png(plain) == plain
    assert images.as_png(plain.upper()[:22].replace("PNG", "png") + " " + plain[22:].rstrip("=")) == plain


def test_of_an_animation_the_first_frame_is_shown() -> None:
    out = BytesIO()
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])

    shown = Image.open(
        BytesIO(base64.b64decode(images.as_png(data_url(out.getvalue(), "image/gif")).partition(",")[2]))
    )

    assert shown.convert("RGB").getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"hello", "PNG, JPEG, WebP or GIF"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>', "PNG, JPEG, WebP or GIF"),
        (picture_bytes("TIFF"), "PNG, JPEG, WebP or GIF"),
        (picture_bytes("BMP"), "PNG, JPEG, WebP or GIF"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "PNG, JPEG, WebP or GIF"),
        (b"\xff\xd8\xff", "PNG, JPEG, WebP or GIF"),
        (b"GIF89a", "PNG, JPEG, WebP or GIF"),
        (png(3, 2, b"", checked=False), "PNG, JPEG, WebP or GIF"),
        (png(3, 2, b""), "damaged"),
        (picture_bytes("PNG")[:40], "PNG, JPEG, WebP or GIF"),
        (noise("PNG")[:-500], "damaged"),
        (noise("JPEG")[:1500], "damaged"),
        (noise("WEBP")[:1500], "damaged"),
        (noise("GIF")[:1500], "damaged"),
        (noise("PNG").replace(b"IDAT", b"IDAX"), "PNG, JPEG, WebP or GIF"),
    ],
)
def test_what_is_no_sound_picture_is_refused(data: bytes, words: str) -> None:
    for kind in ("image/png", "image/jpeg"):
        with pytest.raises(InvalidRequest, match=words):
            images.check(data_url(data, kind))


@pytest.mark.parametrize(
    "data",
    [
        png(60_000, 60_000, b"\0" * 10_000),
        png(2**31 - 1, 2**31 - 1, b"\0"),
        png(40_000_001, 1, b"\0"),
        png(10_000, 10_000, b"\0" * 30_001 * 10),
        b"GIF89a" + b"\xff\xff\xff\xff" + b"\0\0\0" + b"," + b"\0\0\0\0\xff\xff\xff\xff\0" + b"\x02\x01\x00\x00;",
    ],
)
def test_a_small_file_that_says_it_is_huge_is_refused_by_its_head(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image.Image, "load", _never)

    with pytest.raises(InvalidRequest, match="pixels"):
        images.look(data)


def _never(*_: Any) -> Any:
    raise AssertionError("it was decoded")


def test_a_picture_is_measured_in_pixels_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IMAGE_PIXELS", 5)
    with pytest.raises(InvalidRequest, match="3 × 2 pixels"):
        images.check(picture("PNG"))

    monkeypatch.setattr(limits, "IMAGE_BYTES", 10)
    with pytest.raises(InvalidRequest, match="larger than"):
        images.check(picture("PNG"))


def test_a_png_of_nothing_but_its_mark_has_nothing_that_could_be_wrong() -> None:
    stub = data_url(MARK)

    assert images.check(stub) == ("image/png", 0)
    assert images.as_png(stub) == stub
    with pytest.raises(InvalidRequest):
        images.look(MARK)
