"""Loading a model from the hub, a folder, a GGUF file or the embedded default."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from mellea_responses.engine.gguf import converted, embedded_model
from mellea_responses.engine.model import Model
from mellea_responses.engine.progress import shown_progress
from mellea_responses.engine.request import LoadError

_PICKLES = {".bin", ".pt", ".pth", ".ckpt"}


def load_model(
    source: str | None, *, device: str = "auto", dtype: str = "auto", progress: bool = True, trust: bool = False
) -> Model:
    """Load a model and its tokenizer.

    Args:
        source: Hub id, folder or `.gguf` file; None is the embedded default.
        device: `auto` takes CUDA, then MPS, then the CPU.
        dtype: `auto` takes float32 on the CPU, where it makes reuse exact, and the checkpoint's own elsewhere.
        progress: Show what takes long, on stderr.
        trust: Run code that comes with the model and read weights that are not safetensors.

    Raises:
        LoadError: It cannot be loaded; the message says why in one line.
    """
    file = embedded_model() if source is None else Path(source)
    name = file.stem if file.suffix == ".gguf" else str(source).rstrip("/").rsplit("/", 1)[-1] or str(source)
    place, kind = _device(device), _dtype(dtype)
    if kind == "auto" and place.type == "cpu":
        kind = torch.float32
    with shown_progress(progress):
        folder = str(_gguf(file) if file.suffix == ".gguf" else source)
        tokenizer, network = _read(folder, kind, place, trust)
    return Model(network, tokenizer, name)


def _gguf(file: Path) -> Path:
    if not file.is_file():
        raise LoadError(f"{file} is not a file.")
    return converted(file)


def _read(source: str, dtype: Any, device: torch.device, trust: bool) -> tuple[Any, Any]:
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=trust)
        network: Any = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, trust_remote_code=trust, use_safetensors=None if trust else True
        )
    except Exception as exc:
        raise LoadError(f"{source} cannot be loaded: {_reason(source, exc, trust)}") from exc
    return tokenizer, network.to(device).eval()


def _reason(source: str, exc: Exception, trust: bool) -> str:
    """Why, in one line; what only a flag allows is said in our own words, since the library's name its arguments."""
    files = {file.suffix for file in Path(source).glob("*.*")} if Path(source).is_dir() else set()
    if not trust and "trust_remote_code" in str(exc):
        return "it brings Python code of its own, which runs only with --trust-remote-code."
    if not trust and files & _PICKLES and ".safetensors" not in files:
        return "its weights are pickles, not safetensors; they are read only with --trust-remote-code."
    return (str(exc).strip() or type(exc).__name__).splitlines()[0][:300]


def _device(wanted: str) -> torch.device:
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as exc:
        raise LoadError(f"Device {wanted!r} cannot be used; auto, cpu, cuda or mps can be asked for.") from exc
    return device


def _dtype(wanted: str) -> Any:
    if wanted == "auto":
        return wanted
    dtype = getattr(torch, wanted, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise LoadError(f"dtype {wanted!r} is not known; auto, float32, bfloat16 or float16 can be asked for.")
    return dtype
