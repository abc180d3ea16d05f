import random

from engine.tiny import make_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from mellea_responses.engine.splice import Codec, Joint, Prompt, Trace, common_length, splice

TOKENIZER = make_tokenizer()
CODEC = Codec(TOKENIZER)
START, END = "<|im_start|>", "<|im_end|>"
ASK = f"{START}assistant\n"


def block(role: str, text: str) -> str:
    return f"{START}{role}\n{text}{END}\n"


def shattered(text: str, chance: random.Random) -> list[int]:
    """Tokens of a text as a model may have sampled them: not those the tokenizer would choose."""
    ids: list[int] = []
    while text:
        cut = chance.randint(1, 3)
        ids += TOKENIZER.encode(text[:cut], add_special_tokens=False)
        text = text[cut:]
    return ids


def finished(prompt: Prompt, answer: str, chance: random.Random) -> Trace:
    """What a turn leaves that was answered with `answer`."""
    tokens = prompt.tokens + tuple(shattered(answer, chance))
    joints = (*prompt.joints, Joint(len(prompt.text + answer), len(tokens)))
    return Trace(prompt.text + answer + END, (*tokens, 0), joints, len(prompt.text), END)


def decoded(prompt: Prompt) -> str:
    return str(TOKENIZER.decode(prompt.tokens, skip_special_tokens=False))


words = st.text(st.sampled_from("abc é🌊\n<|_"), max_size=12)


@given(words, words)
def test_joining_at_a_special_token_gives_the_tokens_of_the_whole(before: str, after: str) -> None:
    text = before + END + after
    left = TOKENIZER.encode(before, add_special_tokens=False)

    tokens, joints = CODEC.encode(text, len(before), len(left))

    assert left + tokens == TOKENIZER.encode(text, add_special_tokens=False)
    assert joints[0] == Joint(len(before), len(left))


@settings(max_examples=200)
@given(st.data())
def test_tokens_always_stand_for_exactly_the_prompt_whatever_was_edited(data: st.DataObject) -> None:
    chance = random.Random(data.draw(st.integers(0, 999)))
    traces: list[Trace] = []
    history: list[tuple[str, str]] = []
    for _ in range(data.draw(st.integers(1, 5))):
        history = [*data.draw(st.sampled_from(edits(history, data.draw(words)))), ("user", data.draw(words))]
        text = "".join(block(*turn) for turn in history) + ASK

        prompt = splice(text, {}, traces, CODEC)

        assert decoded(prompt) == text
        for joint in prompt.joints:
            assert TOKENIZER.decode(prompt.tokens[: joint.tokens], skip_special_tokens=False) == text[: joint.chars]
        answer = data.draw(words)
        traces.append(finished(prompt, answer, chance))
        history.append(("assistant", answer))


def edits(history: list[tuple[str, str]], word: str) -> list[list[tuple[str, str]]]:
    """The history as it is, cut, with a turn changed, dropped, doubled or swapped."""
    made = [history]
    for at, (role, text) in enumerate(history):
        made += [
            history[:at],
            [*history[:at], (role, text + word), *history[at + 1 :]],
            [*history[:at], (role, text.strip()), *history[at + 1 :]],
            [*history[:at], *history[at + 1 :]],
            [*history[:at], history[at], *history[at:]],
        ]
    return [*made, history[::-1]]


@given(words, words, words)
def test_an_unchanged_history_keeps_every_generated_token(ask: str, answer: str, then: str) -> None:
    first = splice(block("user", ask) + ASK, {}, [], CODEC)
    trace = finished(first, answer, random.Random(1))

    second = splice(trace.text + "\n" + block("user", then) + ASK, {}, [trace], CODEC)

    assert second.match == "exact"
    assert second.tokens[: len(trace.tokens)] == trace.tokens


@given(words.filter(bool), words)
def test_a_changed_answer_keeps_nothing_of_the_old_one(answer: str, other: str) -> None:
    first = splice(block("user", "hi") + ASK, {}, [], CODEC)
    trace = finished(first, answer, random.Random(1))
    text = first.text + answer + "!" + END + "\n" + block("user", other) + ASK

    second = splice(text, {}, [trace], CODEC)

    assert second.match == "text"
    assert decoded(second) == text


def test_a_call_written_differently_by_the_template_is_continued_by_its_digest() -> None:
    first = splice(block("user", "hi") + ASK, {}, [], CODEC)
    written, shown = '{"name":"f"}', '{ "name": "f" }'
    left = finished(first, written, random.Random(1))
    trace = Trace(left.text, left.tokens, left.joints, left.prompt_chars, END, b"turn", ("f",), calls=True)
    text = first.text + shown + END + "\n" + block("tool", "3") + ASK

    known = splice(text, {b"turn": False}, [trace], CODEC)
    unknown = splice(text, {b"else": False}, [trace], CODEC)

    assert known.match == "call id"
    assert known.tokens[: len(trace.tokens)] == trace.tokens
    assert unknown.match == "text"


def test_a_digest_does_not_help_when_the_template_shows_something_else() -> None:
    first = splice(block("user", "hi") + ASK, {}, [], CODEC)
    left = finished(first, "<think>deep</think>ok", random.Random(1))
    trace = Trace(left.text, left.tokens, left.joints, left.prompt_chars, END, b"turn", ("deep", "ok"))
    dropped = first.text + "ok" + END + "\n" + block("user", "more") + ASK

    spliced = splice(dropped, {b"turn": True}, [trace], CODEC)

    assert spliced.match == "text"
    assert decoded(spliced) == dropped


def test_an_answer_that_the_limit_cut_is_continued_when_a_special_token_follows() -> None:
    first = splice(block("user", "hi") + ASK, {}, [], CODEC)
    tokens = first.tokens + tuple(shattered("half an ans", random.Random(2)))
    text = first.text + "half an ans"
    trace = Trace(text, tokens, (*first.joints, Joint(len(text), len(tokens))), len(first.text))

    ended = splice(text + END + "\n" + block("user", "go on") + ASK, {}, [trace], CODEC)
    written_on = splice(text + "wer" + END + "\n" + block("user", "go on") + ASK, {}, [trace], CODEC)

    assert ended.match == "exact"
    assert ended.tokens[: len(tokens)] == tokens
    assert written_on.match == "text"
    assert decoded(written_on).startswith(text + "wer")


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_the_common_length_is_where_the_first_difference_is(a: list[int], b: list[int]) -> None:
    length = common_length(a, b)

    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]
