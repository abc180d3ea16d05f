"""`m serve` in fresh environments, with pip and with uv: any order of installs, upgrades, editable, and gone again."""

import importlib.metadata
import os
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="scripts lie elsewhere on Windows")

ROOT = Path(__file__).parents[2]
OURS, MELLEA, EDITABLE = "ours", "mellea", "editable"
PLAIN = {"PATH": os.defpath, "COLUMNS": "200", "TERM": "dumb", "HOME": str(Path.home())}


def run(*command: str | Path, **env: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What is given to an installer: our wheel, Mellea's, our checkout."""
    folder = tmp_path_factory.mktemp("wheels")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (ours,) = folder.iterdir()
    return {OURS: [str(ours)], MELLEA: [str(wheel_of("mellea", folder))], EDITABLE: ["--editable", str(ROOT)]}


def wheel_of(name: str, folder: Path) -> Path:
    """The wheel that an installed distribution came from, put together again: no index is needed."""
    found = importlib.metadata.distribution(name)
    held = [
        file
        for file in found.files or []
        if ".." not in file.parts
        and "__pycache__" not in file.parts
        and file.name not in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
    ]
    info = next(file.parts[0] for file in held if file.parts[0].endswith(".dist-info"))
    wheel = folder / f"{name}-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in held:
            archive.write(str(file.locate()), file.as_posix())
        archive.writestr(f"{info}/RECORD", "".join(f"{file.as_posix()},,\n" for file in held) + f"{info}/RECORD,,\n")
    return wheel


class Environment:
    """A new environment that borrows the dependencies of this one, but neither its Mellea command nor our checkout.

    A path file inside a path file's folder is not read, so the editable install of this environment stays invisible.
    """

    def __init__(self, folder: Path, installer: str, parts: dict[str, list[str]]) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        self.bin, self._parts = folder / "bin", parts
        self.packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
        (self.packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
        self.empty = self.files()
        self._uv = installer == "uv"
        self._command: list[str]
        if self._uv:
            self._command = [pytest.importorskip("uv", reason="uv is not installed").find_uv_bin(), "pip"]
        else:
            self._command = [sys.executable, "-m", "pip", "--python", str(self.bin / "python")]

    def install(self, *names: str) -> None:
        """In one command. What is there already is replaced, as an upgrade does."""
        quiet = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
        again = ["--reinstall", "--no-cache"] if self._uv else ["--force-reinstall"]
        self._do("install", [*quiet, *again, *(word for name in names for word in self._parts[name])])

    def uninstall(self, name: str) -> None:
        self._do("uninstall", [name] if self._uv else ["--yes", "--quiet", name])

    def _do(self, what: str, words: list[str]) -> None:
        where = ["--python", str(self.bin / "python")] if self._uv else []
        run(*self._command, what, *where, *words)

    def files(self) -> set[str]:
        found = {path.relative_to(self.packages).as_posix() for path in self.packages.rglob("*")}
        return {name for name in found if "__pycache__" not in name} | {
            f"bin/{path.name}" for path in self.bin.iterdir()
        }

    def m(self, *words: str) -> str:
        """What `m` prints; nothing may be on stderr, where a failing hook would complain."""
        done = subprocess.run(
            [str(self.bin / "m"), *words], env=PLAIN, cwd=self.bin, capture_output=True, text=True, timeout=100
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def check(self, ours: bool = True) -> None:
        """`serve` is ours or not, and the other commands work."""
        served = self.m("serve", "--help")
        assert ("--response-ttl" in served, "--host" in served) == (ours, True)
        assert "decompose" in self.m("decompose", "--help")


New = Callable[[str], Environment]


@pytest.fixture
def new(tmp_path: Path, parts: dict[str, list[str]]) -> New:
    return lambda installer: Environment(tmp_path / "env", installer, parts)


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_it_is_ours_after_an_upgrade_of_mellea_and_gone_without_a_trace(installer: str, new: New) -> None:
    env = new(installer)
    env.install(MELLEA)
    mellea_alone = env.files()

    env.install(OURS)
    env.install(MELLEA)  # `-U mellea`
    env.check()
    env.uninstall("mellea-responses")

    env.check(ours=False)
    assert env.files() == mellea_alone
    assert mellea_alone > env.empty


ORDERS = {
    "mellea then ours": [[MELLEA], [OURS]],
    "ours then mellea": [[OURS], [MELLEA]],
    "both in one command": [[OURS, MELLEA]],
    "ours then mellea then ours again": [[OURS], [MELLEA], [OURS]],
    "mellea then editable": [[MELLEA], [EDITABLE]],
    "editable then mellea": [[EDITABLE], [MELLEA]],
    "wheel then mellea then editable": [[OURS], [MELLEA], [EDITABLE]],
    "editable then mellea then wheel": [[EDITABLE], [MELLEA], [OURS]],
}
QUICK = [("uv", "both in one command"), ("uv", "editable then mellea")]


@pytest.mark.parametrize(
    ("installer", "order"),
    [
        pytest.param(installer, order, marks=() if (installer, order) in QUICK else pytest.mark.slow)
        for order in ORDERS
        for installer in ("pip", "uv")
    ],
)
def test_it_is_ours_in_every_order_of_installs(installer: str, order: str, new: New) -> None:
    env = new(installer)

    for names in ORDERS[order]:
        env.install(*names)

    env.check()


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_mellea_removed_first_leaves_our_own_command_and_an_interpreter_that_starts(installer: str, new: New) -> None:
    env = new(installer)
    env.install(MELLEA, OURS)

    env.uninstall("mellea")

    assert not (env.bin / "m").exists()
    assert "--response-ttl" in run(env.bin / "mellea-responses", "serve", "--help", **PLAIN)
    env.uninstall("mellea-responses")
    assert env.files() == env.empty


@pytest.mark.slow
def test_the_script_m_serves_a_program_and_keeps_its_answers(new: New, tmp_path: Path) -> None:
    env = new("pip")
    env.install(MELLEA, OURS)
    (tmp_path / "shout.py").write_text("def serve(input, **options):\n    return input[-1].content.upper()\n", "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [env.bin / "m", "serve", tmp_path / "shout.py", "--response-ttl", "600", "--port", str(port)]
    ask = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/responses", b'{"input": "hello"}', {"Content-Type": "application/json"}
    )

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=PLAIN) as server:
        try:
            answer = answered(ask, server)
        finally:
            server.terminate()

    assert "HELLO" in answer


def answered(ask: urllib.request.Request, server: subprocess.Popen[bytes]) -> str:
    for _ in range(600):
        assert server.poll() is None
        try:
            with urllib.request.urlopen(ask, timeout=10) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    raise AssertionError("nothing listens")
