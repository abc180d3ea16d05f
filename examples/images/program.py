"""A picture in the question. Whatever the client sent, JPEG, WebP or GIF, is PNG here, which is all Mellea reads.

`to_message(input[-1])` gives the same picture to a Mellea session; this program looks for itself.

Serve it with `mellea-responses serve examples/images/program.py`.
"""

import base64
import io

from PIL import Image


def serve(input, requirements=None, model_options=None):
    urls = input[-1].get_image_urls()
    if not urls:
        return "There is no picture."
    picture = Image.open(io.BytesIO(base64.b64decode(urls[0].partition(",")[2])))
    [(_, colour)] = picture.convert("RGB").resize((1, 1)).getcolors()
    strongest = max(zip(colour, ("red", "green", "blue"), strict=True))[1]
    return f"{input[-1].get_text_content()} {strongest}, {picture.width} by {picture.height}, as {picture.format}."
