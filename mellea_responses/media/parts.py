"""Where pictures, sounds, videos and files stand in items, and which of them can never be read."""

from collections.abc import Iterable, Sequence

from mellea_responses.errors import InvalidRequest
from mellea_responses.media.inline import is_data_url
from mellea_responses.media.limits import PARTS
from mellea_responses.wire import items as w

Media = w.InputImage | w.InputFile | w.InputAudio | w.InputVideo
_MEDIA = (w.InputImage, w.InputFile, w.InputAudio, w.InputVideo)  # as a tuple, for every item of every turn is asked
_OUTPUTS = (w.FunctionCallOutput, w.CustomToolCallOutput)


def media(item: object) -> list[tuple[str, Media]]:
    """Every part of an item that is no text, with its place: `content[0]`, `output[1]`."""
    parts: Sequence[w.Part]
    if isinstance(item, w.Message):
        field, parts = "content", item.content
    elif isinstance(item, _OUTPUTS) and not isinstance(item.output, str):
        field, parts = "output", item.output
    else:
        return []
    return [(f"{field}[{i}]", part) for i, part in enumerate(parts) if isinstance(part, _MEDIA)]


def check_media(items: Iterable[object], path: str = "input", *, remote: bool = False) -> None:
    """Refuses what this server never reads: addresses of files, uploaded files, videos, and too many of anything.

    Args:
        items: Items as the client sent them; what else stands among them is passed over.
        path: The field they stand in.
        remote: Whether pictures may stand at web addresses.

    Raises:
        InvalidRequest: a part cannot be read; `param` is its path.
    """
    count = 0
    for i, item in enumerate(items):
        for place, part in media(item):
            count += 1
            where = f"{path}[{i}].{place}"
            if count > PARTS:
                raise InvalidRequest(f"At most {PARTS} pictures and files are read in one request.", param=where)
            _check(part, where, remote)


def _check(part: Media, path: str, remote: bool) -> None:
    if isinstance(part, w.InputImage):
        _check_image(part, path, remote)
    elif isinstance(part, w.InputFile) and not part.file_data:
        seen = "keeps no uploaded files" if part.file_id else "fetches no files"
        raise InvalidRequest(f"This server {seen}; send the file itself as file_data.", param=path)
    elif isinstance(part, w.InputVideo):
        raise InvalidRequest("This server cannot see videos.", param=path)


def _check_image(part: w.InputImage, path: str, remote: bool) -> None:
    if part.image_url is None:
        raise InvalidRequest("This server keeps no uploaded files; send the image as a data URL.", param=path)
    if is_data_url(part.image_url) or (remote and is_web_address(part.image_url)):
        return
    also = " or http and https addresses" if remote else ""
    raise InvalidRequest(f"Images must be data URLs{also}: `data:image/png;base64,…`.", param=path)


def is_web_address(url: str) -> bool:
    """Whether an address has a scheme that can be fetched at all."""
    return url[:8].lower().startswith(("http://", "https://"))
