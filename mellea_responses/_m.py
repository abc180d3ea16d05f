"""Makes `m serve` ours, whoever wrote the script `m`: Mellea's command with more options.

A `.pth` file imports this whenever Python starts, so it imports nothing itself and does nothing until Mellea's
command is loaded. Whatever fails here leaves Mellea's own command in place.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Finder:
    """Waits for the one module `cli.m`, and replaces a command once it has run."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """What the import system asks of everyone; only one name is of interest."""
        if name != "cli.m":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: "Any") -> None:
                load(module)
                extend(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # the point of the hook
        return spec


def extend(module: "Any") -> None:
    """Puts our `serve` in the place of Mellea's; every other command stays."""
    try:
        from mellea_responses.cli.serve import serve

        [command] = [command for command in module.cli.registered_commands if command.name == "serve"]
        command.callback = serve
    except Exception as exc:
        print(f"mellea-responses: `m serve` is Mellea's own, since ours cannot be loaded: {exc}", file=sys.stderr)


def install() -> None:
    """Asks to be told of `cli.m`."""
    sys.meta_path.insert(0, Finder())


install()
