"""Pictures for programs: Mellea reads PNG alone, clients send JPEG, WebP and GIF too."""

import base64
import binascii
import struct
import warnings
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from mellea_responses.errors import InvalidRequest
from mellea_responses.turn import Turn
from mellea_responses.wire import items as w

MAX_BYTES = 20 * 2**20
MAX_PIXELS = 40_000_000
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_PNG = b"\x89PNG\r\n\x1a\n"


def is_picture(url: str) -> bool:
    """Whether the address holds the picture itself."""
    return url.startswith("data:")


def check_images(turn: Turn) -> None:
    """Looks at the head of every picture of this request, without decoding it.

    Raises:
        InvalidRequest: one cannot be read or is too large; `param` is its path.
    """
    for path, url in _pictures(turn):
        _open(url, path)


def has_images(turn: Turn) -> bool:
    """Whether this request brings pictures."""
    return next(_pictures(turn), None) is not None


def _pictures(turn: Turn) -> Iterator[tuple[str, str]]:
    """Path and address of each; a path counts in the request's own input, where it is a list."""
    for i, item in enumerate(turn.input):
        for field, parts in (("content", getattr(item, "content", None)), ("output", getattr(item, "output", None))):
            for j, part in enumerate(parts if isinstance(parts, list | tuple) else ()):
                if isinstance(part, w.InputImage) and part.image_url and is_picture(part.image_url):
                    yield f"input[{i}].{field}[{j}]", part.image_url


def as_png(url: str, path: str = "input") -> str:
    """The same picture as a PNG data URL; of an animation, its first frame.

    Raises:
        InvalidRequest: it cannot be read or is too large.
    """
    data, image = _open(url, path)
    if data.startswith(_PNG):
        return f"data:image/png;base64,{base64.b64encode(data).decode()}"
    out = BytesIO()
    try:
        image.seek(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.convert("RGBA" if "A" in image.getbands() or "transparency" in image.info else "RGB").save(out, "PNG")
    except (OSError, ValueError, SyntaxError, EOFError):
        raise InvalidRequest("The image's data is damaged.", param=path) from None
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"


def _open(url: str, path: str) -> tuple[bytes, Any]:
    from PIL import Image, UnidentifiedImageError

    data = _decoded(url, path)
    if data.startswith(_PNG):  # passed on as it is, so only its declared size matters here
        width, height = struct.unpack(">II", data[16:24].ljust(8, b"\0"))
        _check_pixels(width, height, path)
        return data, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # our limit is lower than the one Pillow warns at
            image = Image.open(BytesIO(data), formats=FORMATS)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise InvalidRequest("The image must be PNG, JPEG, WebP or GIF.", param=path) from None
    _check_pixels(image.width, image.height, path)
    return data, image


def _check_pixels(width: int, height: int, path: str) -> None:
    if width * height > MAX_PIXELS:
        raise InvalidRequest(f"The image has {width} × {height} pixels; at most {MAX_PIXELS:,} are read.", param=path)


def _decoded(url: str, path: str) -> bytes:
    _, found, text = url.partition(";base64,")
    if not found:
        raise InvalidRequest("The image must be a base64 data URL.", param=path)
    if len(text) > MAX_BYTES * 4 // 3 + 4:
        raise InvalidRequest(f"The image is larger than {MAX_BYTES // 2**20} MiB.", param=path)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("The image's base64 is broken.", param=path) from None
