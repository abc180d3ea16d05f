"""A conversation with a model through a real server: what the model is fed, what came from a cache, what the line says.

The network is tiny and random, so its caches are real; what it says is written beforehand.
"""

import asyncio
import json
import os
import random
import re
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import torch
from engine.tiny import CHATML, Readable, make_network, make_tokenizer

from mellea_responses.engine.engine import Engine
from mellea_responses.program.builtin import ModelProgram
from support.raw import Answer, ask, exchange, posting
from support.serving import serving

Json = dict[str, Any]

WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}{% for m in messages %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOL = {"type": "function", "name": "tide", "parameters": {"type": "object"}}


class Told(Readable):
    """Answers each prompt with the next text it was given; remembers the tokens behind every answer."""

    def tell(self, *answers: str) -> "Told":
        self.answers, self.prompts, self.said = list(answers), list[list[int]](), list[list[int]]()
        return self

    def forward(self, tokens: Sequence[int], cache: Any) -> torch.Tensor:
        if not hasattr(self, "answers") or cache is None:
            return super().forward(tokens, cache)
        behind = getattr(cache, "tokens_behind", [])[: cache.get_seq_length()]
        cache.tokens_behind = [*behind, *tokens]
        if len(tokens) > 1:
            text = self.answers.pop(0) if self.answers else "ok"
            self._script = [*self.tokenizer.encode(text, add_special_tokens=False), 0]
            self.prompts.append(cache.tokens_behind)
            self.said.append(list(self._script))
        logits = super().forward(tokens, cache)
        wanted = torch.full_like(logits, -100.0)
        wanted[self._script.pop(0) if self._script else 0] = 100.0
        return wanted


@asynccontextmanager
async def served(template: str, *answers: str, **options: Any) -> AsyncIterator[tuple[str, Told, Engine]]:
    settings = options.pop("settings", {})
    model = Told(make_network(options.pop("context", 2**14)), make_tokenizer(template), "tiny")
    engine = Engine(model, kv_cache_bytes=2**26, chunk=2**14, **options)
    engine.ready()
    model.tell(*answers)
    try:
        async with serving(ModelProgram(engine), **settings) as url:
            yield url, model, engine
    finally:
        engine.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[Json]]:
    """What the access log says of each response so far."""
    caplog.set_level("INFO", "mellea_responses.access")
    pattern = re.compile(r"match=(?P<match>.+?) usage=true input=(?P<input>\d+) cached=(?P<cached>\d+)")

    def read() -> list[Json]:
        records = [record.getMessage() for record in caplog.records if record.name == "mellea_responses.access"]
        return [found.groupdict() for record in records if (found := pattern.search(record))]

    return read


async def respond(url: str, body: Json, key: str = "") -> Json:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    answer = await ask(url, posting({"model": "m", "temperature": 0, **body}, **headers))
    assert answer.status == 200, answer.body
    response: Json = answer.json
    return response


def call_of(response: Json) -> Json:
    [call] = [item for item in response["output"] if item["type"] == "function_call"]
    return dict(call)


def result_for(response: Json, text: str) -> Json:
    return {"type": "function_call_output", "call_id": call_of(response)["call_id"], "output": text}


def as_the_template(hour: int) -> str:
    return f'<tool_call>\n{{"name": "tide", "arguments": {{"hour": {hour}}}}}\n</tool_call>'


def in_its_own_way(hour: int) -> str:
    return f'Wait.\n<tool_call>{{"name":"tide","arguments":{{"hour" :{hour}  }}}}</tool_call>'


async def tool_loop(url: str, how: str) -> list[Json]:
    """Three calls with their results and a last answer."""
    items: list[Json] = [{"type": "message", "role": "user", "content": "When is high tide?"}]
    more: Json = {"instructions": "Use the tool. " * 20, "tools": [TOOL]}
    responses = [await respond(url, {"input": items, **more})]
    for hour in range(3):
        result = result_for(responses[-1], f"{hour} feet")
        items = [*items, *responses[-1]["output"], result]
        if how == "chained":
            body: Json = {"previous_response_id": responses[-1]["id"], "input": [result]}
        else:
            body = {"input": items, "store": False}
        responses.append(await respond(url, {**body, **more}))
    return responses


@pytest.mark.parametrize("how", ["chained", "replayed"])
@pytest.mark.parametrize("written", [as_the_template, in_its_own_way])
@pytest.mark.parametrize("template", [CHATML, WITH_TOOLS], ids=["tools in words", "tools by the template"])
async def test_each_step_of_a_tool_loop_feeds_what_is_new_and_the_model_has_seen_what_a_cold_one_would(
    template: str, written: Callable[[int], str], how: str, lines: Callable[[], list[Json]]
) -> None:
    answers = [*map(written, range(3)), "Noon."]
    async with served(template, *answers) as (url, model, _):
        responses = await tool_loop(url, how)
    said = lines()
    async with served(template, *answers, kv_cache=False) as (url, cold, _):
        await tool_loop(url, how)

    usages = [response["usage"] for response in responses]
    continued = "exact" if written is as_the_template else "call id"
    assert [line["match"] for line in said] == ["none", *[continued] * 3]
    assert responses[-1]["output"][0]["content"][0]["text"] == "Noon."
    for step in range(1, 4):
        before, now = usages[step - 1], usages[step]
        cached = now["input_tokens_details"]["cached_tokens"]
        assert cached == before["input_tokens"] + before["output_tokens"] - 1
        assert int(said[step]["cached"]) == cached
        assert int(said[step]["input"]) == now["input_tokens"] == len(model.prompts[step])
        # The model goes on from its own tokens, whatever the template would make of them.
        whole = model.prompts[step - 1] + model.said[step - 1]
        assert model.prompts[step][: len(whole)] == whole
    if written is as_the_template:
        assert model.prompts == cold.prompts
    else:
        assert [prompt[-20:] for prompt in model.prompts] == [prompt[-20:] for prompt in cold.prompts]
        assert model.prompts[0] == cold.prompts[0]


async def test_a_replay_and_a_chain_of_one_loop_feed_the_same(lines: Callable[[], list[Json]]) -> None:
    answers = [*map(in_its_own_way, range(3)), "Noon."]
    prompts = []
    for how in ("chained", "replayed"):
        async with served(WITH_TOOLS, *answers) as (url, model, _):
            await tool_loop(url, how)
        prompts.append(model.prompts)

    assert prompts[0] == prompts[1]
    assert [line["match"] for line in lines()] == ["none", *["call id"] * 3] * 2


async def test_two_coders_and_a_stranger_each_go_on_with_their_own(lines: Callable[[], list[Json]]) -> None:
    system = "You are a coding agent. Read the files, then change them. " * 30
    tasks = {"ada": "Fix the tests of the parser.", "bob": "Fix the lint of the writer."}
    history: dict[str, list[Json]] = {name: [] for name in tasks}
    totals: dict[str, int] = {}

    async with served(WITH_TOOLS, as_the_template(1), as_the_template(2), "hello", "done", "done") as (url, model, _):
        for name, task in tasks.items():
            history[name] = [{"type": "message", "role": "user", "content": task}]
            body = {"instructions": system, "tools": [TOOL], "input": history[name], "store": False}
            response = await respond(url, body)
            history[name] += [*response["output"], result_for(response, f"{name}'s files")]
            totals[name] = response["usage"]["input_tokens"] + response["usage"]["output_tokens"] - 1
        stranger = await respond(url, {"input": "hi"})
        again = {}
        for name in tasks:
            body = {"instructions": system, "tools": [TOOL], "input": history[name], "store": False}
            again[name] = await respond(url, body)

    said = [(line["match"], int(line["cached"])) for line in lines()]
    shared = [said[1][1], said[2][1]]
    assert said[0] == ("none", 0)
    assert said[1][0] == "text"  # the second coder has the system prompt of the first, and nothing else of it
    assert 0.7 * totals["ada"] < shared[0] < totals["ada"]
    assert said[2][0] in ("text", "none")
    assert shared[1] <= 2
    assert stranger["usage"]["input_tokens"] < 30
    assert said[3] == ("exact", totals["ada"])
    assert said[4] == ("exact", totals["bob"])
    assert [model.tokenizer.decode(prompt).count("'s files") for prompt in model.prompts] == [0, 0, 0, 1, 1]


async def test_nothing_is_shared_between_keys(lines: Callable[[], list[Json]]) -> None:
    settings = {"api_keys": ("ada=key-a", "bob=key-b")}
    body = {"instructions": "The secret word is herring. " * 20, "input": "hi"}
    async with served(CHATML, settings=settings) as (url, model, _):
        for key in ("key-a", "key-b", "key-a"):
            await respond(url, body, key)

    matches = [(line["match"], int(line["cached"])) for line in lines()]
    assert matches[:2] == [("none", 0)] * 2
    assert matches[2] == ("text", len(model.prompts[0]) - 1)


async def test_whoever_leaves_whenever_leaves_nothing_behind() -> None:
    chance = random.Random(7)
    async with served(CHATML, *["the cat sat on the mat " * 20] * 200) as (url, _, engine):
        await respond(url, {"input": "warm up", "max_output_tokens": 2})
        serving_threads = threading.active_count()

        async def one(number: int) -> Answer | None:
            body = {"model": "m", "input": f"hello {number % 5}", "stream": True, "store": bool(number % 2)}
            async with exchange(url, posting(body)) as opened:
                left = chance.randrange(12)
                async for _ in opened.frames():
                    left -= 1
                    if left < 0:
                        return None
                return opened.answer

        await asyncio.gather(*(one(number) for number in range(40)))
        while engine.counts()["rows"] + engine.counts()["waiting"]:  # noqa: ASYNC110  # the model's thread tells nobody
            await asyncio.sleep(0.005)
        counts = engine.counts()
        after = await respond(url, {"input": "still there?", "max_output_tokens": 2})

        assert (counts["rows"], counts["waiting"], counts["leases"]) == (0, 0, 0)
        assert counts["bytes"] <= 2**26
        assert after["usage"]["output_tokens"] == 2
        assert threading.active_count() <= serving_threads + (os.cpu_count() or 1) + 4  # the event loop's own pool
    assert not engine._worker._thread.is_alive()


LONG = [{"role": "user", "content": "hello cat " * 20}, {"role": "assistant", "content": "sat on the mat " * 20}] * 6


async def test_what_is_longer_than_the_context_is_counted_whole_unless_it_will_be_cut() -> None:
    body = {"model": "m", "input": [*LONG, {"role": "user", "content": "and now?"}]}
    async with served(CHATML, context=512) as (url, _, __):
        refused = await ask(url, posting(body))
        whole = await ask(url, posting(body, "/v1/responses/input_tokens"))
        cut = await ask(url, posting({**body, "truncation": "auto"}, "/v1/responses/input_tokens"))
        answered = await respond(url, {**body, "truncation": "auto"})

    assert (refused.status, refused.json["error"]["code"]) == (400, "context_length_exceeded")
    assert f"is {whole.json['input_tokens']} tokens" in refused.json["error"]["message"]
    assert cut.json["input_tokens"] == answered["usage"]["input_tokens"] < 512 < whole.json["input_tokens"]


@pytest.mark.parametrize("truncation", ["disabled", "auto"])
@pytest.mark.parametrize("threshold", [100, 1500])
async def test_what_is_longer_than_the_context_is_folded_by_its_threshold(truncation: str, threshold: int) -> None:
    long = [{"role": "assistant", "content": "sat on the mat " * 20}] * 20
    body = {
        "input": [{"role": "user", "content": "hello"}, *long, {"role": "user", "content": "and now?"}],
        "context_management": [{"type": "compaction", "compact_threshold": threshold}],
        "truncation": truncation,
    }
    async with served(CHATML, "a cat on a mat", "gone", context=1024) as (url, model, _):
        response = await respond(url, body)

    assert [item["type"] for item in response["output"]] == ["compaction", "message"]
    assert response["output"][1]["content"][0]["text"] == "gone"
    assert "a cat on a mat" in model.tokenizer.decode(model.prompts[-1])


def test_the_two_ways_to_write_a_call_differ() -> None:
    assert json.loads(as_the_template(1).split("\n")[1])["arguments"] == {"hour": 1}
    assert as_the_template(1) not in in_its_own_way(1)
