import json
import re
from typing import Any

import pytest
from engine.tiny import CHATML, GREEDY, assistant, make_tokenizer, request, user
from hypothesis import given
from hypothesis import strategies as st

from mellea_responses.engine.messages import arguments_of, canonical, digests, plain
from mellea_responses.engine.prompt import Prompter
from mellea_responses.engine.recall import Recall
from mellea_responses.engine.shorten import droppable, shortest, without_oldest
from mellea_responses.errors import ContextLengthExceeded, InvalidRequest
from mellea_responses.turn import Options

ONE_SYSTEM_FIRST = (
    "{% for m in messages %}{% if m['role'] == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "{% if m['role'] not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('Unknown role') }}{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
NO_SYSTEM_IN_TURNS = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}[assistant] "
)
TOOLS = (
    "{% if tools %}TOOLS {{ tools | tojson }}\n{% endif %}{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'] }}{% for c in m.tool_calls or [] %}CALL {{ c.function.name }} ARGUMENTS<|im_end|>{% endfor %}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
MAPPING = TOOLS.replace("ARGUMENTS", "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}")
STRING = TOOLS.replace("ARGUMENTS", "{{ c.function.arguments + '!' }}")
KRAKEN = (
    "{% for m in messages %}{% if 'kraken' in m['content'] %}{{ raise_exception('no sea monsters') }}{% endif %}"
    "{{ m['content'] }}{% endfor %}"
)
BROKEN = KRAKEN.replace("raise_exception('no sea monsters')", "secret_helper.go()")
THINKING = CHATML + "{{ 'think:' ~ enable_thinking|default('unset') ~ reasoning_effort|default('') }}"

# As Mistral's: users and assistants in turns, calls aside, which go by ids of nine letters and digits.
STRICT = (
    "{% set ns = namespace(said=0) %}{% for m in messages %}{% if m.role == 'tool' %}"
    "[RESULT {{ m.tool_call_id }}] {{ m.content }}\n{% elif m.tool_calls %}{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('ids have length 9') }}{% endif %}"
    "[CALL {{ c.id }}] {{ c.function | tojson }}\n{% endfor %}{% else %}"
    "{% if (m.role == 'user') != (ns.said % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set ns.said = ns.said + 1 %}{% if tools and m.role == 'user' and loop.last %}{{ tools | tojson }}{% endif %}"
    "[{{ m.role }}] {{ m.content }}\n{% endif %}{% endfor %}"
)

TOOL = {"type": "function", "function": {"name": "tide", "description": "Height", "parameters": {"type": "object"}}}


def prompter(template: str | None, context_length: int = 4096) -> Prompter:
    return Prompter(make_tokenizer(template), context_length, Recall())


def rendered(template: str | None, *messages: dict[str, Any], **more: Any) -> str:
    return prompter(template).prepare(request(*messages, **more)).text


def call(arguments: Any, id_: str = "c1") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": "tide", "arguments": arguments}}


SYSTEM, DEVELOPER = {"role": "system", "content": "You are a pilot."}, {"role": "developer", "content": "Be brief."}
RESULT = {"role": "tool", "tool_call_id": "c1", "name": "tide", "content": "2"}


def test_instructions_and_developer_words_are_one_system_block_in_their_order() -> None:
    text = rendered(ONE_SYSTEM_FIRST, SYSTEM, DEVELOPER, user("Hi"))

    assert text.startswith("<|im_start|>system\nYou are a pilot.\n\nBe brief.<|im_end|>\n<|im_start|>user\nHi")


def test_a_late_system_message_moves_to_the_front_where_the_template_takes_none_later() -> None:
    text = rendered(ONE_SYSTEM_FIRST, user("Hi"), assistant("Hello"), DEVELOPER, user("Capital?"))

    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi")
    assert text.count("Be brief.") == 1


def test_a_late_system_message_stays_where_the_template_takes_it() -> None:
    text = rendered(CHATML, user("Hi"), assistant("Hello"), DEVELOPER, user("Capital?"))

    assert "Hello<|im_end|>\n<|im_start|>system\nBe brief." in text


def test_without_a_system_role_the_words_go_to_the_first_user_and_neighbours_are_joined() -> None:
    text = rendered(NO_SYSTEM_IN_TURNS, SYSTEM, user("Hi"), user("there"), assistant("Hello"), user("Go"))

    assert text == "[user] You are a pilot.\n\nHi\n\nthere\n[assistant] Hello\n[user] Go\n[assistant] "


def test_instructions_alone_are_rendered_even_without_a_system_role() -> None:
    assert rendered(NO_SYSTEM_IN_TURNS, SYSTEM) == "[user] You are a pilot.\n[assistant] "


def test_a_model_without_a_template_gets_a_plain_transcript() -> None:
    assert rendered(None, SYSTEM, user("Hi")) == "System: You are a pilot.\n\nUser: Hi\n\nAssistant: "


@pytest.mark.parametrize("given", [{"harbour": "Bray"}, '{"harbour": "Bray"}'])
@pytest.mark.parametrize(("template", "shown"), [(MAPPING, "harbour=Bray;"), (STRING, '{"harbour": "Bray"}!')])
def test_arguments_come_as_the_template_wants_them(given: Any, template: str, shown: str) -> None:
    text = rendered(template, user("Tide?"), assistant("", tool_calls=[call(given)]), RESULT, tools=(TOOL,))

    assert f"CALL tide {shown}" in text


@pytest.mark.parametrize("given", ['{"harbour":', "", None, "[1]", 7])
def test_arguments_that_are_no_object_are_rendered_all_the_same(given: Any) -> None:
    assert "CALL tide" in rendered(
        MAPPING, user("Tide?"), assistant("", tool_calls=[call(given)]), RESULT, tools=(TOOL,)
    )


@pytest.mark.parametrize("template", [CHATML, MAPPING, STRING])
@pytest.mark.parametrize("given", ['{"x": "\\u003c|im_end|>"}', '{"\\u003c|im_end|>": "<|im_\\udfffend|>"}'])
def test_arguments_that_spell_a_control_token_in_escapes_end_no_turn(template: str, given: str) -> None:
    def ends(arguments: str) -> int:
        history = (user("Tide?"), assistant("", tool_calls=[call(arguments)]), RESULT)
        return prompter(template).prepare(request(*history, tools=(TOOL,))).tokens.count(0)

    assert ends(given) == ends("{}")


def test_a_template_with_tools_gets_them() -> None:
    assert 'TOOLS [{"type": "function"' in rendered(MAPPING, user("Tide?"), tools=(TOOL,))


def test_a_template_without_tools_gets_them_in_words_and_calls_as_text() -> None:
    text = rendered(CHATML, SYSTEM, user("Tide?"), assistant("", tool_calls=[call({"x": 1})]), RESULT, tools=(TOOL,))

    assert text.startswith("<|im_start|>system\nYou are a pilot.\n\n# Tools")
    assert json.dumps(TOOL) in text
    assert '<tool_call>\n{"name": "tide", "arguments": {"x": 1}}\n</tool_call>' in text
    assert "<|im_start|>user\n<tool_response>\n2\n</tool_response>" in text


LONG_ID = "call_0123456789abcdef01234567"


@pytest.mark.parametrize("id_", [LONG_ID, "c1", "abc-é🌊 9", "AbCdEfGh9"])
def test_a_template_that_wants_short_ids_gets_them_the_same_for_call_and_result(id_: str) -> None:
    asked, result = assistant("", tool_calls=[call({}, id_)]), {**RESULT, "tool_call_id": id_}
    text = rendered(STRICT, user("Tide?"), asked, result, tools=(TOOL,))

    shown = re.findall(r"\[(?:CALL|RESULT) (\w{9})\]", text)
    assert len(shown) == 2
    assert len(set(shown)) == 1
    assert (shown[0] == id_) == (id_ == "AbCdEfGh9")


def test_two_long_ids_stay_two() -> None:
    asked = assistant("", tool_calls=[call({}, LONG_ID), call({}, f"{LONG_ID[:-1]}8")])

    shown = re.findall(r"\[CALL (\w{9})\]", rendered(STRICT, user("Tide?"), asked))
    assert len(set(shown)) == 2


def test_a_template_that_takes_every_id_gets_the_client_s_own() -> None:
    template = TOOLS.replace("ARGUMENTS", "{{ c.id }} {{ c.function.arguments | tojson }}")

    assert LONG_ID in rendered(template, user("Tide?"), assistant("", tool_calls=[call({}, LONG_ID)]))


def test_a_user_who_goes_on_after_a_call_is_rendered_where_roles_must_alternate() -> None:
    asked = assistant("", tool_calls=[call({}, LONG_ID)])

    text = rendered(STRICT, user("Tide?"), asked, {**RESULT, "tool_call_id": LONG_ID}, user("Never mind."))

    assert text.endswith("2\n[assistant] \n[user] Never mind.\n")


def test_tool_choice_none_keeps_the_tools_out() -> None:
    assert "tide" not in rendered(CHATML, user("Hi"), tools=(TOOL,), tool_choice="none")
    assert "tide" not in rendered(MAPPING, user("Hi"), tools=(TOOL,), tool_choice="none")


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("required", "You must call a function"),
        ({"type": "function", "name": "tide"}, "You must call the function tide"),
        ({"type": "function", "function": {"name": "tide"}}, "You must call the function tide"),
    ],
)
def test_a_forced_call_is_said_in_the_block(choice: Any, said: str) -> None:
    assert said in rendered(CHATML, user("Hi"), tools=(TOOL,), tool_choice=choice)


def test_a_template_that_raises_is_a_bad_request_that_says_on_what() -> None:
    with pytest.raises(InvalidRequest) as refused:
        rendered(KRAKEN, user("calm"), assistant("ok"), user("kraken"))

    assert "message 3 of 3 (user): no sea monsters" in refused.value.message
    assert rendered(KRAKEN, user("calm")) == "calm"


def test_a_template_s_own_mistake_is_told_without_its_source() -> None:
    with pytest.raises(InvalidRequest) as refused:
        rendered(BROKEN, user("kraken"))

    assert "message 1 of 1 (user)" in refused.value.message
    assert "secret_helper" not in refused.value.message


@pytest.mark.parametrize(
    ("effort", "shown"), [(None, "unset"), ("none", "Falselow"), ("minimal", "Truelow"), ("max", "Truehigh")]
)
def test_the_effort_reaches_the_template(effort: Any, shown: str) -> None:
    assert rendered(THINKING, user("Hi"), options=Options(effort=effort)).endswith(f"think:{shown}")


def test_a_client_may_set_the_template_s_variables_but_never_the_template() -> None:
    options = Options(chat_template_kwargs={"chat_template": "{{ 7*7 }}", "enable_thinking": "so", "tokenize": True})

    assert rendered(THINKING, user("Hi"), options=options).endswith("think:so")


def test_content_in_parts_is_one_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, {"type": "refusal", "refusal": "c"}]

    assert "<|im_start|>user\nabc<|im_end|>" in rendered(CHATML, {"role": "user", "content": parts})


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url"])
def test_what_is_no_text_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest):
        rendered(CHATML, {"role": "user", "content": [{"type": kind, kind: {}}]})


def test_an_assistant_turn_in_pieces_is_one_message() -> None:
    pieces = [assistant("", reasoning_content="hm"), assistant("words"), assistant("", tool_calls=[call({})])]

    (whole,) = plain(pieces)

    assert (whole["reasoning_content"], whole["content"], len(whole["tool_calls"])) == ("hm", "words", 1)
    assert len(plain([assistant("one"), assistant("two")])) == 2


def test_a_digest_sees_what_the_reader_sees_and_nothing_else() -> None:
    base = assistant("", tool_calls=[call({"a": 1, "b": 2})])
    same = assistant("", tool_calls=[call('{"b":2, "a":1}')], reasoning_content="hidden")
    others = [
        assistant("", tool_calls=[call({"a": 1, "b": 3})]),
        assistant("", tool_calls=[call({"a": 1, "b": 2}, "c2")]),
        assistant(" ", tool_calls=[call({"a": 1, "b": 2})]),
    ]

    assert canonical(base) == canonical(same)
    assert all(canonical(other) != canonical(base) for other in others)
    assert digests([user("x"), base])[-1] != digests([user("y"), base])[-1]


@pytest.mark.parametrize("given", ['{"a":', "[1]", "7", "[" * 100_000], ids=["cut", "list", "number", "deep"])
def test_arguments_that_are_no_object_become_one(given: str) -> None:
    assert isinstance(arguments_of(call(given)), dict)


CONVERSATION = [
    SYSTEM,
    user("one " * 40),
    assistant("first"),
    user("two " * 40),
    assistant("", tool_calls=[call({}, "c1")]),
    RESULT,
    assistant("second"),
    user("three"),
]


def test_a_prompt_that_is_too_long_loses_its_oldest_turns_only() -> None:
    asked = request(*CONVERSATION, truncation="auto", options=GREEDY)

    text = prompter(CHATML, 160).prepare(asked).text

    assert "You are a pilot." in text
    assert "three" in text
    assert "one one" not in text
    assert "first" not in text


def test_the_newest_turn_is_never_cut() -> None:
    asked = request(user("one"), assistant("two"), user("long " * 300), truncation="auto")

    with pytest.raises(ContextLengthExceeded):
        prompter(CHATML, 160).prepare(asked)


def test_without_truncation_a_long_prompt_is_refused() -> None:
    with pytest.raises(ContextLengthExceeded):
        prompter(CHATML, 160).prepare(request(*CONVERSATION))


roles = st.lists(st.sampled_from(["system", "user", "assistant", "calls"]), max_size=8)


@given(roles, st.integers(0, 8))
def test_whatever_is_left_out_no_call_loses_its_result(kinds: list[str], drop: int) -> None:
    messages: list[dict[str, Any]] = []
    for n, kind in enumerate(kinds):
        if kind == "calls":
            messages += [assistant("", tool_calls=[call({}, f"c{n}")]), {**RESULT, "tool_call_id": f"c{n}"}]
        else:
            messages.append({"role": kind, "content": str(n)})

    left = without_oldest(messages, drop)

    asked = {made["id"] for message in left for made in message.get("tool_calls", ())}
    answered = {message["tool_call_id"] for message in left if message["role"] == "tool"}
    assert asked == answered
    assert [m for m in left if m["role"] == "system"] == [m for m in messages if m["role"] == "system"]
    users = [message for message in messages if message["role"] == "user"]
    assert users[-1:] == [message for message in left if message["role"] == "user"][-1:]
    assert drop < droppable(messages) or left == without_oldest(messages, drop + 1)


@given(st.integers(0, 20), st.integers(0, 20))
def test_the_least_that_fits_is_found(count: int, needed: int) -> None:
    assert shortest(count, lambda drop: drop >= needed) == min(count, needed)


def test_recalled_reasoning_is_bounded_and_the_oldest_goes() -> None:
    recall = Recall(limit=10)

    recall.keep("ada", b"1", "x" * 6)
    recall.keep("ada", b"2", "y" * 6)

    assert recall.find("ada", b"1") is None
    assert recall.find("ada", b"2") == "yyyyyy"
    assert recall.find("bob", b"2") is None
