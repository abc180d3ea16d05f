"""Is refused, reads why, and asks again."""

import os

from openai import BadRequestError, OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
)
model = os.environ.get("OPENAI_MODEL", "local")

for question in ("I should like to ask you something about everything.", "Well?"):
    try:
        with client.responses.stream(model=model, input=question) as stream:
            print(stream.get_final_response().output_text)
    except BadRequestError as error:
        print("Refused:", error.code, error.body["message"])
