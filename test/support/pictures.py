"""Pictures to send: sound ones of every kind, and PNGs that say more than they hold."""

import base64
import struct
import zlib
from io import BytesIO

from PIL import Image

MARK = b"\x89PNG\r\n\x1a\n"


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def picture_bytes(kind: str, size: tuple[int, int] = (3, 2), mode: str = "RGB") -> bytes:
    out = BytesIO()
    Image.new(mode, size, 1).save(out, kind)
    return out.getvalue()


def picture(kind: str, size: tuple[int, int] = (3, 2), mode: str = "RGB") -> str:
    return data_url(picture_bytes(kind, size, mode), f"image/{kind.lower()}")


def png(width: int, height: int, rows: bytes, *, checked: bool = True) -> bytes:
    """A PNG that claims this size, over whatever rows are given; its checksums are wrong where `checked` is not."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return MARK + b"".join(
        _chunk(name, data, checked)
        for name, data in ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    )


def _chunk(name: bytes, data: bytes, checked: bool) -> bytes:
    crc = zlib.crc32(name + data) ^ (0 if checked else 1)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", crc)
