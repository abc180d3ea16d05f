"""Asks for a greeting and gets the attempt that keeps the program's requirements."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
)
model = os.environ.get("OPENAI_MODEL", "local")

response = client.responses.create(model=model, input="Greet the whole team.")
print(response.output_text)
