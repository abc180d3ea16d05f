"""What comes with packages and models: every version is pinned, and no model runs code unless its owner says so."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import torch
from engine.tiny import make_network, make_tokenizer, request, user
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mellea_responses.engine.load import load_model
from mellea_responses.engine.prompt import Prompter
from mellea_responses.engine.recall import Recall
from mellea_responses.engine.request import LoadError
from mellea_responses.errors import InvalidRequest

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9._+!-]+)")

# ---------------------------------------------------------------- packages


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    found = [PIN.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(found), "constraints.txt holds pins and comments only"
    return {canonicalize_name(match[1]): match[2] for match in found if match}


def brought(name: str, extras: frozenset[str], seen: set[str]) -> None:
    """Adds every distribution that an install of `name` brings here."""
    for line in distribution(name).requires or ():
        need = Requirement(line)
        if need.marker and not any(need.marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            continue
        if (key := canonicalize_name(need.name)) not in seen:
            seen.add(key)
            brought(need.name, frozenset(need.extras), seen)


def test_everything_that_an_install_brings_is_pinned_and_installed_as_pinned() -> None:
    needed: set[str] = set()
    brought("mellea-responses", frozenset({"hf", "dev", "otel", "metrics"}), needed)
    pinned = pins()

    assert needed - pinned.keys() == set()
    installed = {}
    for name in needed:
        try:
            installed[name] = distribution(name).version.partition("+")[0]
        except PackageNotFoundError:
            continue  # another platform's
    assert {name: pinned[name] for name in installed} == installed
    assert len(installed) > 80


@pytest.mark.parametrize(("status", "said"), [(0, "fine"), (1, "nothing was audited")])
def test_the_audit_says_when_it_found_something_or_could_not_ask(tmp_path: Path, status: int, said: str) -> None:
    auditor = tmp_path / "bin" / "pip-audit"
    auditor.parent.mkdir()
    auditor.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\necho fine\nexit {status}\n')
    auditor.chmod(0o755)

    done = subprocess.run(["make", "audit", f"AUDIT={tmp_path}"], cwd=ROOT, capture_output=True, text=True, check=False)

    asked = (tmp_path / "asked").read_text()
    assert (done.returncode == 0) == (status == 0)
    assert said in done.stdout
    assert "--requirement constraints.txt" in asked
    assert "--strict" in asked  # without it, what cannot be looked up counts as fine


# ---------------------------------------------------------------- models

MARK = "ran.txt"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_network().save_pretrained(tmp_path / "tiny")
    make_tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


class Payload:
    """Unpickling it runs a command, as the pickles of strangers may."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> Any:
        return (os.system, (f"echo ran > {self._mark}",))


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "pytorch_model.bin.index"]
)
def test_pickled_weights_are_neither_read_nor_run(folder: Path, tmp_path: Path, name: str) -> None:
    mark = tmp_path / MARK
    (folder / "model.safetensors").unlink()
    if name.endswith(".index"):
        (folder / "pytorch_model.bin.index.json").write_text('{"metadata": {}, "weight_map": {"x": "part.bin"}}')
        name = "part.bin"
    torch.save({"x": Payload(mark)}, folder / name)

    with pytest.raises(LoadError, match="safetensors") as refused:
        load_model(str(folder), progress=False)

    assert not mark.exists()
    assert "\n" not in str(refused.value)
    torch.load(folder / name, weights_only=False)  # the trap is a trap
    assert mark.exists()


def with_code(folder: Path, mark: Path) -> None:
    """Makes the model one that brings its own Python."""
    body = f"open({str(mark)!r}, 'a').write(__name__)\n"
    (folder / "own_model.py").write_text(
        f"{body}from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
        "class OwnModel(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    (folder / "own_tokenizer.py").write_text(
        f"{body}from transformers import PreTrainedTokenizerFast\nclass OwnTokenizer(PreTrainedTokenizerFast): pass\n"
    )
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "own",
        "architectures": ["OwnModel"],
        "auto_map": {"AutoConfig": "own_model.OwnConfig", "AutoModelForCausalLM": "own_model.OwnModel"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer |= {
        "tokenizer_class": "OwnTokenizer",
        "auto_map": {"AutoTokenizer": [None, "own_tokenizer.OwnTokenizer"]},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))


@pytest.mark.parametrize("trusted", [False, True])
def test_code_that_a_model_brings_runs_only_when_its_owner_says_so(folder: Path, tmp_path: Path, trusted: bool) -> None:
    """In a process of its own: what once ran cannot be taken back."""
    mark = tmp_path / MARK
    with_code(folder, mark)
    code = (
        "import sys\nfrom mellea_responses.engine.load import load_model\n"
        f"load_model({str(folder)!r}, device='cpu', progress=False, trust={trusted})\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert mark.exists() == trusted, done.stderr[-2000:]
    assert (done.returncode == 0) == trusted, done.stderr[-2000:]
    if not trusted:
        assert "--trust-remote-code" in done.stderr.splitlines()[-1]


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('echo ran').read() }}",
    "{{ lipsum.__globals__['os'].environ }}",
    "{{ raise_exception.__globals__ }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
    "{{ messages.append('x') }}",
]


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_model_s_own_template_stays_in_its_sandbox_and_tells_nothing(escape: str) -> None:
    prompter = Prompter(make_tokenizer(escape + "{{ messages[0]['content'] }}"), 2048, Recall())

    try:
        told = prompter.prepare(request(user("hello"))).text
    except InvalidRequest as refused:
        told = str(refused)

    assert not re.search(r"root:|PATH|subclass|globals|site-packages|function|module", told)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 7 * 7 }}",
        "{% for a in range(9999999) %}{% for b in range(9999999) %}x{% endfor %}{% endfor %}",
        "{{ self.__init__.__globals__ }}",
        "{# comment #}",
        "{% raw %}",
        "{{",
    ],
)
def test_a_template_in_a_message_is_text(text: str) -> None:
    prompt = Prompter(make_tokenizer(), 2048, Recall()).prepare(request(user(text)))

    assert text in prompt.text
    assert "49" not in prompt.text
