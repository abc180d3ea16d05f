"""Small PDFs, written by hand: with text, without, encrypted, and as bombs."""

import hashlib
import zlib
from collections.abc import Sequence

_PAD = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


def pdf(*pages: str) -> bytes:
    """A page for each text, its lines below each other; an empty text is a page without any."""
    return _written(_page_objects([_shown(text) for text in pages]), b"")


def bomb(size: int) -> bytes:
    """One page whose few bytes become `size` bytes of instructions."""
    packer = zlib.compressobj(9)
    piece = b"BT /F1 9 Tf 10 10 Td (a) Tj ET\n" * 4096
    packed = b"".join(packer.compress(piece) for _ in range(size // len(piece))) + packer.flush()
    return _written(_page_objects([packed], b"/Filter /FlateDecode "), b"")


def encrypted(text: str, password: str) -> bytes:
    """A PDF that only opens with a password (the oldest handler there is)."""
    key_id, permissions = b"0123456789abcdef", -4
    owner = _rc4(hashlib.md5(_padded(password)).digest()[:5], _padded(password))
    flags = permissions.to_bytes(4, "little", signed=True)
    key = hashlib.md5(_padded(password) + owner + flags + key_id).digest()[:5]
    handler = b"<< /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P %d >>" % (
        owner.hex().encode(), _rc4(key, _PAD).hex().encode(), permissions,
    )  # fmt: skip
    objects = _page_objects([_shown(text)])
    return _written([*objects, handler], b"/Encrypt %d 0 R /ID [<%s> <%s>] " % (
        len(objects) + 1, key_id.hex().encode(), key_id.hex().encode(),
    ))  # fmt: skip


def _shown(text: str) -> bytes:
    lines = b"".join(
        b"(" + line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)").encode("latin-1") + b") Tj T*\n"
        for line in text.splitlines()
    )
    return b"BT /F1 12 Tf 14 TL 72 720 Td\n" + lines + b"ET" if lines else b""


def _page_objects(contents: Sequence[bytes], about: bytes = b"") -> list[bytes]:
    """Catalog, pages, font, then a page and its content for each."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * n) for n in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(contents)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for n, content in enumerate(contents):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * n)
        )
        objects.append(b"<< %s/Length %d >>\nstream\n%s\nendstream" % (about, len(content), content))
    return objects


def _written(objects: Sequence[bytes], more: bytes) -> bytes:
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    out += b"trailer\n<< /Size %d /Root 1 0 R %s>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, more, end)
    return bytes(out)


def _padded(password: str) -> bytes:
    return (password.encode("latin-1") + _PAD)[:32]


def _rc4(key: bytes, data: bytes) -> bytes:
    box, j = list(range(256)), 0
    for i in range(256):
        j = (j + box[i] + key[i % len(key)]) % 256
        box[i], box[j] = box[j], box[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + box[i]) % 256
        box[i], box[j] = box[j], box[i]
        out.append(byte ^ box[(box[i] + box[j]) % 256])
    return bytes(out)
