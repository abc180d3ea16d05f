"""What a user gets from the wheel, the source archive and an editable checkout, each in an environment of its own."""

import os
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = "Scripts" if os.name == "nt" else "bin"
HEAVY = ["accelerate", "litestar", "mellea", "numpy", "torch", "transformers", "uvicorn"]


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(target: str, source: Path, into: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", into, cwd=source)
    (archive,) = into.iterdir()
    return archive


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


def environment(folder: Path, *install: str | Path) -> Path:
    """A new environment with `install` in it and this one's dependencies on its path, but not this one's checkout.

    A path file inside a path file's folder is not read, so the editable install of this environment stays invisible.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=ROOT)
    python = folder / SCRIPTS / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run(*pip, "--no-build-isolation", *install, cwd=ROOT)
    return folder / SCRIPTS


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("installed"), wheel)


@pytest.fixture(scope="session")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("editable"), "--editable", ROOT)


def names(archive: Path) -> set[str]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as whl:
            return set(whl.namelist())
    with tarfile.open(archive) as tar:
        return {name.partition("/")[2] for name in tar.getnames()}


def test_the_wheel_holds_the_package_its_command_and_its_licence_and_nothing_else(wheel: Path) -> None:
    held = names(wheel)

    tops = {name.partition("/")[0].partition("-")[0] for name in held}
    assert tops == {"mellea_responses", "mellea_responses_m.pth"}
    assert {"mellea_responses/py.typed", "mellea_responses/cli/main.py", "mellea_responses/cli/serve.py"} <= held
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert not any("__pycache__" in name for name in held)


def test_every_module_of_the_checkout_is_in_the_wheel(wheel: Path) -> None:
    package = ROOT / "mellea_responses"
    modules = {path.relative_to(ROOT).as_posix() for path in [*package.rglob("*.py"), *package.glob("cli/*.py")]}

    assert modules <= names(wheel)


def test_the_source_archive_has_no_folder_cli_at_its_top_and_builds_the_same_wheel(
    sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as tar:
        tar.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()

    again = build("wheel", source, tmp_path / "built")

    assert not (source / "cli").exists()
    assert names(again) == names(wheel)


def test_the_base_install_asks_for_no_model_libraries_and_no_script_m(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as whl:
        texts = {name.rpartition("/")[2]: whl.read(name).decode() for name in whl.namelist() if ".dist-info/" in name}

    needs = [line.removeprefix("Requires-Dist: ") for line in texts["METADATA"].splitlines() if "Requires-Dist" in line]
    base = [need for need in needs if "extra ==" not in need]
    assert not [need for need in base if need.startswith(("torch", "transformers", "accelerate", "llguidance"))]
    assert texts["entry_points.txt"].split() == [
        "[console_scripts]",
        "mellea-responses",
        "=",
        "mellea_responses.cli.main:main",
    ]


@pytest.mark.parametrize("kind", ["installed", "editable"])
def test_the_command_and_the_module_answer_help_and_version(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    scripts: Path = request.getfixturevalue(kind)

    assert "serve" in run(scripts / "mellea-responses", "--help", cwd=tmp_path)
    assert "--response-ttl" in run(scripts / "python", "-m", "mellea_responses", "serve", "--help", cwd=tmp_path)
    assert run(scripts / "mellea-responses", "--version", cwd=tmp_path).startswith("mellea-responses ")


@pytest.mark.parametrize(("kind", "place"), [("installed", "site-packages"), ("editable", str(ROOT))])
def test_the_package_and_its_command_come_from_where_they_were_installed(
    kind: str, place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    scripts: Path = request.getfixturevalue(kind)
    code = "import mellea_responses, mellea_responses.cli.main as main; print(mellea_responses.__file__, main.__file__)"

    package, command = run(scripts / "python", "-c", code, cwd=tmp_path).split()

    assert place in package
    assert Path(command) == Path(package).parent / "cli" / "main.py"


@pytest.mark.parametrize("kind", ["installed", "editable"])
def test_mellea_keeps_its_own_top_level_cli(kind: str, request: pytest.FixtureRequest) -> None:
    scripts: Path = request.getfixturevalue(kind)
    code = "import cli.serve.models, importlib.metadata as m; print(cli.__file__); print(m.version('mellea'))"

    # Run in the checkout on purpose: there the folder `cli` stands first on the path.
    where, _ = run(scripts / "python", "-c", code, cwd=ROOT).splitlines()

    assert Path(where).parent.parent == Path(sysconfig.get_path("purelib"))


@pytest.mark.parametrize("kind", ["installed", "editable"])
def test_mellea_s_own_command_serves_with_our_options(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    scripts: Path = request.getfixturevalue(kind)
    code = "from cli.m import cli; cli(['serve', '--help'], prog_name='m')"

    assert "--response-ttl" in run(scripts / "python", "-c", code, cwd=tmp_path)


def test_help_loads_no_server_and_no_model_library(installed: Path, tmp_path: Path) -> None:
    code = f"import sys, mellea_responses.cli.main; print([name for name in {HEAVY} if name in sys.modules])"

    assert run(installed / "python", "-c", code, cwd=tmp_path).strip() == "[]"


def test_the_package_itself_imports_nothing(installed: Path, tmp_path: Path) -> None:
    code = (  # the hook for `m` has loaded the package, and itself, when Python started
        "import sys; before = set(sys.modules) - {'mellea_responses'}; import mellea_responses; "
        "print(sorted(set(sys.modules) - before))"
    )

    assert run(installed / "python", "-c", code, cwd=tmp_path).strip() == "['mellea_responses']"


@contextmanager
def serving(scripts: Path, cwd: Path, *arguments: str) -> Iterator[Callable[[str, bytes | None], str]]:
    """The command, serving on a free port until the block ends; yields a way to ask it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(scripts / "mellea-responses"), "serve", *arguments, "--port", str(port)]

    def ask(path: str, body: bytes | None = None) -> str:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())

    log = cwd / "server.log"
    with log.open("w") as out, subprocess.Popen(command, cwd=cwd, stdout=out, stderr=out) as server:
        try:
            for _ in range(600):
                assert server.poll() is None, log.read_text()
                try:
                    ask("/ready")
                    break
                except (urllib.error.URLError, ConnectionError):
                    time.sleep(0.05)
            yield ask
        finally:
            server.terminate()
            server.wait(10)


def test_the_installed_command_serves_a_program(installed: Path, tmp_path: Path) -> None:
    assert "HELLO" in answer_of_a_program(installed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_the_base_install_alone_serves_a_program(wheel: Path, tmp_path: Path) -> None:
    """With pip and the package index, as a user would: nothing of this environment is in reach."""
    run(sys.executable, "-m", "venv", tmp_path / "base", cwd=tmp_path)
    scripts = tmp_path / "base" / SCRIPTS
    run(scripts / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)

    assert "HELLO" in answer_of_a_program(scripts, tmp_path)
    assert "torch" not in run(scripts / "python", "-m", "pip", "list", cwd=tmp_path)


def answer_of_a_program(scripts: Path, folder: Path) -> str:
    (folder / "shout.py").write_text(
        "def serve(input, requirements=None, model_options=None):\n    return input[-1].content.upper()\n", "utf-8"
    )
    with serving(scripts, folder, "shout.py") as ask:
        return ask("/v1/responses", b'{"model": "any", "input": "hello"}')
