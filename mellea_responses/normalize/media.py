"""Pictures, sounds and files in the input: what can never be read is refused before anything runs, with its place."""

import re
from collections.abc import Iterable, Iterator

from mellea_responses.errors import InvalidRequest
from mellea_responses.normalize.items import InputItem
from mellea_responses.wire import items as w

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w-]+=[^;,]*)*);base64,")


def check_media(items: Iterable[InputItem]) -> None:
    """Refuses what this server never reads: remote and local addresses, uploaded files, videos.

    Raises:
        InvalidRequest: a part cannot be read; `param` is its path.
    """
    for i, item in enumerate(items):
        for place, part in _parts(item):
            _check(part, f"input[{i}].{place}")


def _parts(item: InputItem) -> Iterator[tuple[str, w.Part]]:
    if isinstance(item, w.Message):
        yield from ((f"content[{j}]", part) for j, part in enumerate(item.content))
    elif isinstance(item, w.FunctionCallOutput | w.CustomToolCallOutput) and not isinstance(item.output, str):
        yield from ((f"output[{j}]", part) for j, part in enumerate(item.output))


def _check(part: w.Part, path: str) -> None:
    if isinstance(part, w.InputImage):
        if part.image_url is None:
            raise InvalidRequest("This server keeps no uploaded files; send the image as a data URL.", param=path)
        if not _DATA_URL.match(part.image_url[:256]):
            raise InvalidRequest("Images must be data URLs: `data:image/png;base64,…`.", param=path)
    elif isinstance(part, w.InputFile):
        raise InvalidRequest("This server cannot read files; send their text as input_text.", param=path)
    elif isinstance(part, w.InputVideo):
        raise InvalidRequest("This server cannot see videos.", param=path)
