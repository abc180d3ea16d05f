"""What is fed is what was asked, whatever a client makes of the turns before."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from engine.tiny import assistant, make_tokenizer, request, user
from hypothesis import given, settings
from hypothesis import strategies as st

from mellea_responses.engine.messages import digests
from mellea_responses.engine.parse import make_splitter
from mellea_responses.engine.prompt import Prompter, offered
from mellea_responses.engine.recall import Recall
from mellea_responses.engine.request import GenerateRequest
from mellea_responses.engine.splice import Prompt, Trace
from mellea_responses.engine.writer import Writer
from mellea_responses.turn import Options

Message = dict[str, Any]

# Everything an answer holds, written in one way only: so what the model wrote reads as the template shows it.
KEEPS = (
    "{% if tools %}<|im_start|>tools {{ tools | tojson }}<|im_end|>\n{% endif %}{% if enable_thinking is defined %}"
    "<|im_start|>system\n{{ enable_thinking }}<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>"
    "{{ m['role'] }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m['content'] }}"
    '{% for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DROPS = KEEPS.replace("m.reasoning_content %}", "m.reasoning_content and loop.last %}")
TOOL = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}

words = st.lists(st.sampled_from(["deep", "good", "add", " "]), max_size=4).map(" ".join)
some = words.map(str.strip).filter(bool)
calls = st.lists(st.builds(lambda word: {"x": word}, words), max_size=2)
answers = st.builds(lambda thought, text, made: (thought, text, made), st.none() | some, some, calls)


class Model:
    """A model that answers with given words: its prompts are real, and so is what its turns leave."""

    def __init__(self, template: str, chance: random.Random) -> None:
        self.tokenizer = make_tokenizer(template)
        self.recall, self.traces, self._chance = Recall(), list[Trace](), chance
        self.prompter = Prompter(self.tokenizer, 2**16, self.recall)

    def prompt(self, asked: GenerateRequest) -> Prompt:
        return self.prompter.prepare(asked, self.traces)

    def answer(self, asked: GenerateRequest, thought: str | None, text: str, made: list[Mapping[str, str]]) -> Message:
        """The message that the client has of it, its hidden reasoning included."""
        body = [f'<tool_call>{{"name": "add", "arguments": {{"x": "{one["x"]}"}}}}</tool_call>' for one in made]
        return self.write(asked, (f"<think>{thought}</think>" if thought else "") + text + "".join(body))

    def write(self, asked: GenerateRequest, written: str) -> Message:
        """The message that the client has of an answer with this markup."""
        prompt = self.prompt(asked)
        splitter = make_splitter(self.tokenizer, prompt.text, offered(asked))
        writer = Writer(self.tokenizer, splitter, ends=frozenset({0}), stops=(), limit=2**12)
        for token in [*self._shattered(written), 0]:
            writer.take(token)
        trace, message = writer.trace(prompt), writer.message()
        self.traces.insert(0, trace)
        if thought := message.get("reasoning_content"):
            self.recall.keep("", trace.turn, thought)
        return message

    def _shattered(self, text: str) -> list[int]:
        """Tokens that the tokenizer would not choose."""
        tokens: list[int] = []
        while text:
            cut = self._chance.randint(1, 4)
            tokens += self.tokenizer.encode(text[:cut], add_special_tokens=False)
            text = text[cut:]
        return tokens

    def shows(self, prompt: Prompt) -> str:
        return str(self.tokenizer.decode(prompt.tokens, skip_special_tokens=False))


def edits(history: list[Message], word: str) -> list[list[Message]]:
    """What clients do to a history: hide or change what was thought, change, drop or repeat a message, cut it."""
    made = [history] * 4
    for at, message in enumerate(history):
        others = history[:at], history[at + 1 :]
        changed = [{**message, "content": f"{message['content']} {word}"}]
        if thought := message.get("reasoning_content"):
            hidden = {key: value for key, value in message.items() if key != "reasoning_content"}
            changed += [hidden, {**message, "reasoning_content": f"{word} {thought}"}]
            changed += [{**message, "reasoning_content": f"{thought} {word}"}, {**message, "reasoning_content": word}]
        made += [[*others[0], new, *others[1]] for new in changed]
        made.append(history[:at])
    return made


def quote(message: Message) -> str:
    """Everything a message says and hides, in the order in which a template would show it."""
    names = [call["function"]["name"] for call in message.get("tool_calls", ())]
    return " ".join([message.get("reasoning_content", ""), message["content"], *names])


@settings(max_examples=60)
@given(data=st.data(), template=st.sampled_from([KEEPS, DROPS]))
def test_the_tokens_stand_for_the_prompt_whatever_became_of_the_history(data: st.DataObject, template: str) -> None:
    model = Model(template, random.Random(data.draw(st.integers(0, 99))))
    history: list[Message] = []
    for _ in range(data.draw(st.integers(1, 4))):
        history = data.draw(st.sampled_from(edits(history, data.draw(some))))
        called = history[-1].get("tool_calls", ()) if history else ()
        says = words | st.sampled_from([quote(message) for message in history] or [""])
        results = [{"role": "tool", "tool_call_id": c["id"], "name": "add", "content": data.draw(says)} for c in called]
        options = Options(effort=data.draw(st.sampled_from([None, None, "none"])))
        asked = request(*history, *(results or [user(data.draw(says))]), tools=(TOOL,), options=options)

        prompt = model.prompt(asked)

        assert model.shows(prompt) == prompt.text
        history = [*asked.messages, model.answer(asked, *data.draw(answers))]


@pytest.mark.parametrize("quote", ["deep good?", "You thought 'deep' and said good.", "deep\ngood add"])
def test_a_message_that_quotes_what_the_model_thought_is_not_taken_for_its_answer(quote: str) -> None:
    model = Model(DROPS, random.Random(1))
    first = request(user("hello"))
    model.answer(first, "deep", "good", [])

    prompt = model.prompt(request(*first.messages, assistant("good"), user(quote)))

    assert model.shows(prompt) == prompt.text
    assert prompt.match == "text"


@pytest.mark.parametrize("thought", ["not deep at all", "deep, then deeper", "shallow"])
def test_reasoning_that_the_client_changed_is_fed_as_the_client_gives_it(thought: str) -> None:
    model = Model(KEEPS, random.Random(1))
    first = request(user("hello"))
    model.answer(first, "deep", "good", [])

    prompt = model.prompt(request(*first.messages, assistant("good", reasoning_content=thought), user("why?")))

    assert f"<think>{thought}</think>good" in model.shows(prompt)
    assert prompt.match == "text"


@pytest.mark.parametrize(
    "arguments", ['{"x": "\\ud800"}', '{"x": "\\udfff"}', '{"x": NaN}', '{"x": 1e999}', f'{{"x": {10**40}}}']
)
def test_arguments_with_what_json_hardly_holds_end_no_answer_and_can_be_continued(arguments: str) -> None:
    model = Model(KEEPS, random.Random(1))
    first = request(user("hello"), tools=(TOOL,))
    said = model.write(first, f'<tool_call>{{"name": "add", "arguments": {arguments}}}</tool_call>')
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "name": "add", "content": "3"}

    prompt = model.prompt(request(*first.messages, said, result, tools=(TOOL,)))

    assert prompt.match in ("call id", "exact")
    assert model.traces[0].tokens == prompt.tokens[: len(model.traces[0].tokens)]


@pytest.mark.parametrize("depth", range(900, 1010))
def test_arguments_nested_as_deep_as_json_goes_are_compared_or_like_no_others(depth: int) -> None:
    deep = f'{{"x": {"[" * depth}{"]" * depth}}}'
    message = assistant("", tool_calls=[{"id": "a", "function": {"name": "add", "arguments": deep}}])

    assert digests([message])
