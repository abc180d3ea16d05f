"""A model without a program: two turns, streamed. There is no code on the server's side.

Serve it with `mellea-responses serve`.
"""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
)
model = os.environ.get("OPENAI_MODEL", "local")

previous = None
for question in ("My name is Ada. Say hello.", "What is my name?"):
    print(f"> {question}")
    with client.responses.stream(
        model=model, input=question, previous_response_id=previous, max_output_tokens=32, temperature=0
    ) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
        previous = stream.get_final_response().id
    print()
