import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from engine.tiny import ask, make_network, make_tokenizer, request, text_of, user

from mellea_responses.engine import gguf, threads
from mellea_responses.engine.engine import Engine
from mellea_responses.engine.load import load_model
from mellea_responses.engine.progress import LineBar, QuietBar, shown_progress
from mellea_responses.engine.request import LoadError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_network().save_pretrained(tmp_path / "tiny")
    make_tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MELLEA_RESPONSES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


async def test_a_folder_is_loaded_and_answers(folder: Path) -> None:
    engine = Engine.load(str(folder), device="cpu", progress=False)

    try:
        assert engine.name == "tiny"
        assert engine.context_length == 2048
        assert text_of(await ask(engine, request(user("hello"))))
    finally:
        engine.close()


def test_the_cpu_computes_in_float32_unless_told_otherwise(folder: Path) -> None:
    make_network().to(torch.bfloat16).save_pretrained(folder)

    assert load_model(str(folder), device="cpu").dtype == torch.float32
    assert load_model(str(folder), device="cpu", dtype="bfloat16").dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "quantum"}, "quantum"),
        ({"dtype": "float99"}, "float99"),
        ({"dtype": "int64"}, "int64"),
        ({"dtype": "nn"}, "nn"),
    ],
)
def test_a_wrong_choice_is_named(folder: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(LoadError, match=said):
        load_model(str(folder), **options)  # type: ignore[arg-type]  # names of options


def test_a_model_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for source in (str(tmp_path / "nothing"), str(tmp_path / "nothing.gguf")):
        with pytest.raises(LoadError) as failed:
            load_model(source)

        assert "\n" not in str(failed.value)


def test_weights_that_are_not_safetensors_are_refused(folder: Path) -> None:
    weights = make_network().state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")

    with pytest.raises(LoadError):
        load_model(str(folder))


def test_a_file_that_is_no_gguf_is_refused_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "odd.gguf").write_bytes(b"no weights")

    with pytest.raises(LoadError, match=r"odd\.gguf"):
        load_model(str(tmp_path / "odd.gguf"), progress=False)

    assert list((cache / "gguf").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "odd.gguf").write_bytes(b"no weights")
    monkeypatch.setenv("MELLEA_RESPONSES_CACHE", str(tmp_path / "file"))

    with pytest.raises(LoadError, match="cannot be written"):
        gguf.converted(tmp_path / "odd.gguf")


def test_a_conversion_that_comes_second_uses_the_first(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"weights")

    def convert(file: Path, folder: Path) -> None:
        (folder / "config.json").write_text(folder.name)
        if not list((cache / "gguf").glob("model-*")):
            monkeypatch.setattr(gguf, "_convert", lambda file, folder: (folder / "config.json").write_text("first"))
            gguf.converted(file)

    monkeypatch.setattr(gguf, "_convert", convert)

    made = gguf.converted(file)

    assert (made / "config.json").read_text() == "first"
    assert [path.name for path in (cache / "gguf").iterdir()] == [made.name]


def test_another_file_of_the_same_name_is_converted_anew(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "_convert", lambda file, folder: (folder / "config.json").write_text("{}"))
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    first = gguf.converted(file)
    file.write_bytes(b"two")

    assert gguf.converted(file) != first


def test_a_missing_embedded_model_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "EMBEDDED", "no_such_package_here")

    with pytest.raises(LoadError, match="pip install"):
        gguf.embedded_model()


def test_asking_for_the_request_s_type_does_not_load_torch() -> None:
    code = "import sys, mellea_responses.engine as e; e.GenerateRequest; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_threads_are_passive_and_no_more_than_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)

    threads.size_threads()

    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert 1 <= int(os.environ["OMP_NUM_THREADS"]) <= (os.cpu_count() or 1)


@pytest.mark.parametrize(("limit", "cpus"), [("150000 100000", 2), ("10000 100000", 1), ("max 100000", 8), ("odd", 8)])
def test_the_cgroup_s_quota_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, cpus: int) -> None:
    (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(threads, "_CGROUP_LIMIT", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)

    assert threads.usable_cpus() == cpus


def test_a_bar_in_a_log_is_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    bar = LineBar(total=1000, desc="Loading...")
    bar._quick_until = 0

    for _ in range(1000):
        bar.update()

    assert capsys.readouterr().err.splitlines() == [f"Loading: {n} %" for n in (25, 50, 75, 100)]


def test_what_is_quick_or_not_wanted_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(LineBar(range(8))) == list(range(8))
    with QuietBar(total=3) as bar:
        bar.update(3)
        bar.set_postfix(x=1)

    assert capsys.readouterr().err == ""


def test_transformers_own_progress_is_put_back() -> None:
    from transformers.utils import logging

    before = logging.set_tqdm_hook(None)
    with shown_progress(wanted=True):
        pass

    assert logging.set_tqdm_hook(before) is None


@pytest.mark.model
@pytest.mark.skipif(importlib.util.find_spec(gguf.EMBEDDED) is None, reason="the embedded model is not installed")
async def test_the_embedded_model_answers_and_goes_on() -> None:
    engine = Engine.load(progress=False, device="cpu")
    try:
        first = request(user("What is the capital of France? Answer in one word."))
        answer = text_of(await ask(engine, first))
        second = request(*first.messages, {"role": "assistant", "content": answer}, user("And of Italy?"))
        await ask(engine, second)
    finally:
        engine.close()

    assert "Paris" in answer
    assert second.notes["match"] == "exact"


def test_what_a_killed_conversion_left_is_cleared_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "cache" / "gguf"
    old, fresh = home / ".converting-old", home / ".converting-fresh"
    old.mkdir(parents=True)
    fresh.mkdir()
    os.utime(old, (0, 0))
    monkeypatch.setenv("MELLEA_RESPONSES_CACHE", str(tmp_path / "cache"))
    (tmp_path / "odd.gguf").write_bytes(b"odd")

    with pytest.raises(LoadError):
        gguf.converted(tmp_path / "odd.gguf")

    assert not old.exists()
    assert fresh.exists()
