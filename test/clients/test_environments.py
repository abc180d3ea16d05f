"""Installing clients: once, whoever asks at the same time, and with a reason where it cannot be done."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clients.drive import environments
from clients.drive.environments import Environment, install


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    return tmp_path


def does(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(environments, "_commands", lambda environment: [[sys.executable, "-c", program]])


def test_two_that_ask_at_once_install_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    does(monkeypatch, "import time; open('../times', 'a').write('x'); time.sleep(0.3)")

    with ThreadPoolExecutor(2) as pool:
        there = list(pool.map(install, [Environment("one", ("one==1",))] * 2))

    assert there == [True, True]
    assert (folder / "times").read_text() == "x"


def test_another_version_is_installed_over_the_old_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    does(monkeypatch, "open('../times', 'a').write('x')")

    assert install(Environment("one", ("one==1",)))
    assert not Environment("one", ("one==2",)).installed
    assert install(Environment("one", ("one==2",)))

    assert (folder / "times").read_text() == "xx"


def test_what_cannot_be_installed_says_why_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Environment("one", ("one==1",))
    does(monkeypatch, "import sys; sys.exit('no such version')")
    assert not install(one)
    assert one.missing == "one could not be installed: no such version"

    does(monkeypatch, "pass")
    assert install(one)


def test_without_npm_its_clients_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    one = Environment("one", ("one@1",), npm=True)

    assert not install(one)
    assert one.missing == "one needs npm, and there is none on this machine"


def test_what_make_test_drives_is_known() -> None:
    assert set(environments.QUICK) <= environments.ENVIRONMENTS.keys()
