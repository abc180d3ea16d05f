"""Paints a picture, sends it as JPEG beside the words, and reads what the program saw."""

import base64
import io
import os

from openai import OpenAI
from PIL import Image

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
)
model = os.environ.get("OPENAI_MODEL", "local")

painted = io.BytesIO()
Image.new("RGB", (48, 32), (20, 120, 220)).save(painted, "JPEG")
url = "data:image/jpeg;base64," + base64.b64encode(painted.getvalue()).decode()

response = client.responses.create(
    model=model,
    input=[
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": url, "detail": "auto"},
            ],
        }
    ],
)
print(response.output_text)
