"""The official OpenAI SDK's asynchronous client; `test/http/conftest.py` closes what a test opens."""

from openai import AsyncOpenAI

opened: list[AsyncOpenAI] = []


def client_of(url: str, key: str = "unused") -> AsyncOpenAI:
    """An unmodified client that never retries, so that the first answer is the one a test sees."""
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
    opened.append(client)
    return client
