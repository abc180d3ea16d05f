"""Two turns, streamed; the second continues the first by its id, and most of its prompt is in the cache."""

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
        response = stream.get_final_response()
    previous = response.id
    print(f"\n({response.usage.input_tokens_details.cached_tokens} of {response.usage.input_tokens} tokens known)")
