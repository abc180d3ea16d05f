"""Pictures: whether they are what they say, and as PNG, which is all that Mellea reads."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

from mellea_responses.errors import InvalidRequest
from mellea_responses.media import limits
from mellea_responses.media.inline import decode

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
# A JPEG with more pictures behind its first one, as telephones write them, is one too.
_KINDS = {"PNG": "image/png", "JPEG": "image/jpeg", "MPO": "image/jpeg", "WEBP": "image/webp", "GIF": "image/gif"}
_PNG_MARK = b"\x89PNG\r\n\x1a\n"


_SCAN = b"\xff\xda"
"""What begins each scan of a JPEG; in the scan's own data it cannot stand."""


class Picture(NamedTuple):
    """What is known of a picture: its media type, and how many pixels its first frame has."""

    kind: str
    pixels: int


def look(data: bytes) -> Picture:
    """Decodes the picture once, a JPEG at an eighth of its size: what is cut off or damaged ends here.

    Raises:
        InvalidRequest: it is no picture of a kind that is read, is damaged or too large.
    """
    with _opened(data) as image:
        picture = Picture(_KINDS.get(image.format or "", ""), image.width * image.height)
        image.draft("RGB", (max(image.width // 8, 1), max(image.height // 8, 1)))
        image.load()
    return picture


def check(url: str) -> Picture:
    """The same for a picture in a data URL.

    A PNG of nothing but its mark passes: clients try servers out with it, and there is nothing in it that could be
    damaged or too large.
    """
    data = decode(url, limits.IMAGE_BYTES, "image").data
    return Picture("image/png", 0) if data == _PNG_MARK else look(data)


def is_picture(url: str) -> bool:
    """Whether the address holds the picture itself."""
    return url[:5].lower() == "data:"


def as_data_url(data: bytes, kind: str) -> str:
    """The bytes as an address that holds them."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def as_png(url: str) -> str:
    """The same picture as a PNG data URL, the right way up; of an animation, its first frame.

    Raises:
        InvalidRequest: it cannot be read or is too large.
    """
    data = decode(url, limits.IMAGE_BYTES, "image").data
    if data == _PNG_MARK:
        return as_data_url(data, "image/png")
    with _opened(data) as image:
        if image.format != "PNG":
            upright, out = _upright(image), BytesIO()
            mode = "RGBA" if "A" in upright.getbands() or "transparency" in upright.info else "RGB"
            upright.convert(mode).save(out, "PNG", compress_level=1)  # photographs hardly shrink at any
            data = out.getvalue()
    return as_data_url(data, "image/png")


def _upright(image: "Image") -> "Image":
    """The picture as the camera was held, which a JPEG only notes and a PNG of ours would not."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # the notes are damaged, in any of many ways, and the picture is not
        return image


@contextmanager
def _opened(data: bytes) -> "Iterator[Image]":
    """The picture with its head read and judged; what is found wrong with the rest is the client's mistake too."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(_Pieces(data), formats=FORMATS) as image:
            if image.format in ("JPEG", "MPO") and data.count(_SCAN) > limits.IMAGE_SCANS:
                raise _too_many_pieces()
            if image.width * image.height > limits.IMAGE_PIXELS:
                raise _too_many(f"{image.width} × {image.height}")
            yield image
    except UnidentifiedImageError:
        raise InvalidRequest(
            "The image is no PNG, JPEG, WebP or GIF, or damaged at its head.", code="invalid_image"
        ) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):  # Pillow's limits are higher than ours
        raise _too_many("far too many") from None
    except (OSError, ValueError, SyntaxError, EOFError, MemoryError, Warning):
        raise InvalidRequest("The image's data is damaged.", code="invalid_image") from None


class _Pieces(BytesIO):
    """A picture's bytes, read in a bounded number of pieces: each may be a few bytes, and costs time all the same."""

    left = limits.IMAGE_PIECES

    def read(self, size: int | None = -1, /) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise _too_many_pieces()
        return super().read(size)


def _too_many_pieces() -> InvalidRequest:
    return InvalidRequest("The image is made of too many pieces to be read.", code="invalid_image")


def _too_many(count: str) -> InvalidRequest:
    return InvalidRequest(
        f"The image has {count} pixels; at most {limits.IMAGE_PIXELS:,} are read.", code="invalid_image"
    )
