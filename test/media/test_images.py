"""Pictures: sound ones pass and become PNG; what lies, is cut off or too large is the client's mistake."""

import base64
import zlib
from collections.abc import Iterator
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


def in_pieces() -> Iterator[bytes]:
    """Pictures of a few megabytes that take minutes when everything in them is looked at."""
    out, scans = BytesIO(), BytesIO()
    Image.new("RGB", (8, 8)).save(out, "GIF")
    gif, at = out.getvalue(), out.getvalue().index(b",", 13)
    jpeg, plain = picture_bytes("JPEG"), picture_bytes("PNG")
    chunk = b"\0\0\0\0prVt" + zlib.crc32(b"prVt").to_bytes(4, "big")
    Image.new("RGB", (4000, 4000)).save(scans, "JPEG", progressive=True)
    slow = scans.getvalue()
    yield plain[:33] + chunk * 500_000 + plain[33:]
    yield jpeg[:2] + b"\xff\xe1\0\2" * 1_000_000 + jpeg[2:]
    yield slow[:-2] + slow[slow.rindex(b"\xff\xda") : -2] * 1000 + slow[-2:]
    yield gif[:at] + b"\x21\xfe" + b"\1a" * 2_000_000 + b"\0" + gif[at:]
    yield gif[:at] + b"\x21\xfe\1a\0" * 1_000_000 + gif[at:]


def test_a_picture_of_too_many_pieces_is_refused_before_most_of_them_are_read() -> None:
    for data in in_pieces():
        with pytest.raises(InvalidRequest, match="too many pieces"):
            images.look(data)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_a_picture_that_was_taken_sideways_is_turned_upright(kind: str) -> None:
    notes, out, sideways = Image.Exif(), BytesIO(), Image.new("RGB", (32, 16), "red")
    notes[0x112] = 6  # its right side is up
    sideways.paste("blue", (0, 0, 8, 16))
    sideways.save(out, kind, exif=notes)

    made = as_picture(images.as_png(data_url(out.getvalue())))

    assert made.size == (16, 32)
    red, _, blue = made.getpixel((8, 4))
    assert blue > red


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's word for such notes
def test_notes_that_are_damaged_do_not_damage_the_picture() -> None:
    notes, out = Image.Exif(), BytesIO()
    notes[0x112] = 6
    Image.new("RGB", (32, 16)).save(out, "JPEG", exif=notes)
    for i in range(6, 28):
        data = bytearray(out.getvalue())
        at = data.index(b"Exif") + i
        data[at : at + 4] = b"\xff\0\xff\xff"

        assert sorted(as_picture(images.as_png(data_url(bytes(data)))).size) == [16, 32]


def test_a_telephone_s_picture_with_others_behind_it_is_a_jpeg() -> None:
    out = BytesIO()
    Image.new("RGB", (3, 2)).save(out, "MPO", save_all=True, append_images=[Image.new("RGB", (3, 2))])

    assert images.look(out.getvalue()) == ("image/jpeg", 6)
    assert as_picture(images.as_png(data_url(out.getvalue()))).size == (3, 2)


def as_picture(url: str) -> Any:
    return Image.open(BytesIO(base64.b64decode(url.partition(",")[2])))


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
