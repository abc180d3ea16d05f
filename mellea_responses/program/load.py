"""Finds and loads a program: a path to a file, or `package.module:function`."""

import importlib
import importlib.util
import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from mellea_responses.program.call import WrongSignature
from mellea_responses.program.user import UserProgram
from mellea_responses.settings import Settings

logger = logging.getLogger("mellea_responses.program")


class LoadError(Exception):
    """The program cannot be served; the message is one line for the person who started the server."""


def load_program(target: str, settings: Settings) -> UserProgram:
    """Loads a program.

    Args:
        target: Path of a Python file that defines `serve()`, or `package.module:function`.
        settings: What the program runs with.

    Raises:
        LoadError: no such file or module, it cannot be imported, or its `serve` has the wrong form.
    """
    module, function = _module(target)
    serve = getattr(module, function, None)
    if not callable(serve):
        raise LoadError(f"{target}: no function `{function}` found in it.")
    check, compact = _own(module, "check"), _own(module, "compact")
    _warn_of_shared_sessions(module, target)
    try:
        program = UserProgram(
            serve,
            check=check,
            compact=compact,
            name=settings.model_names[0] if settings.model_names else _name(target),
            settings=settings,
        )
    except (WrongSignature, ValueError) as exc:
        raise LoadError(f"{target}: {exc}") from None
    program.warm()
    return program


def _warn_of_shared_sessions(module: ModuleType, target: str) -> None:
    if "mellea" not in sys.modules:
        return
    from mellea_responses.program.inputs import shared_sessions

    for name in shared_sessions(module):
        logger.warning(
            "%s: `%s` is one Mellea session with a chat context for every request, so conversations mix. Make a "
            "session inside serve(), from to_context(input); until then, --exclusive keeps requests from "
            "overtaking each other.", target, name
        )  # fmt: skip


def _own(module: ModuleType, name: str) -> Callable[..., Any] | None:
    """A function of the program itself; one it only imported is not meant."""
    function = getattr(module, name, None)
    return function if callable(function) and getattr(function, "__module__", None) == module.__name__ else None


def _name(target: str) -> str:
    return target.split(":")[0].rpartition(".")[2] if ":" in target and not Path(target).exists() else Path(target).stem


def _module(target: str) -> tuple[ModuleType, str]:
    path = Path(target)
    if path.suffix == ".py" or path.is_file():
        if not path.is_file():
            raise LoadError(f"{target}: no such file.")
        return _guarded(target, lambda: _from_file(path.resolve())), "serve"
    name, _, function = target.partition(":")
    if not function or not all(part.isidentifier() for part in name.split(".")):
        raise LoadError(f"{target}: neither a Python file nor `package.module:function`.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return _guarded(target, lambda: importlib.import_module(name)), function


def _from_file(path: Path) -> ModuleType:
    """The file under its own name, its folder importable, and no real module overwritten by it."""
    taken = _taken(path)  # before its folder can be searched
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem.isidentifier() and not taken else f"mellea_program_{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _taken(path: Path) -> bool:
    """Whether another module has the file's name; that one is loaded, so that a later import finds it and not ours."""
    if path.stem in sys.modules:
        return True
    try:
        spec = importlib.util.find_spec(path.stem)
        if spec is None or spec.origin == str(path):
            return False
        importlib.import_module(path.stem)
    except Exception:
        logger.debug("the module %s cannot be loaded", path.stem, exc_info=True)
    return True


def _guarded(target: str, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        return load()
    except SyntaxError as exc:
        raise LoadError(f"{target}: {exc.msg} (line {exc.lineno}).") from None
    except SystemExit as exc:
        raise LoadError(f"{target}: it ended the process while it was loaded (exit {exc.code}).") from None
    except Exception as exc:
        where = _last_line(exc)
        reason = next(iter(str(exc).splitlines()), "")
        raise LoadError(f"{target}: {type(exc).__name__}: {reason}{where}") from exc


def _last_line(exc: Exception) -> str:
    frames: list[Any] = [
        frame for frame in traceback.extract_tb(exc.__traceback__) if "importlib" not in frame.filename
    ]
    return f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if len(frames) > 1 else ""
