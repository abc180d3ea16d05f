"""Installs the clients, drives them, and prints what works: one line a client, one column a feature.

`python test/clients/drive/table.py [--no-install] [PYTEST OPTIONS…]`; the status is pytest's.
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

from environments import ENVIRONMENTS, ROOT, install

sys.path.insert(0, str(ROOT / "test"))

from support.driving import FEATURES  # after the path

WORD = {"passed": "yes", "failed": "NO", "skipped": "?"}
Table = Mapping[str, Mapping[str, str]]


def main(arguments: list[str]) -> int:
    if "--no-install" in arguments:
        arguments.remove("--no-install")
    else:
        for environment in ENVIRONMENTS.values():
            if not install(environment):
                print(f"{environment.name}: {environment.missing}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", "clients", "-o", "junit_family=xunit1", f"--junitxml={report}"]
        status = subprocess.run([*command, str(ROOT / "test" / "clients"), *arguments], cwd=ROOT).returncode
        if report.exists():
            print(written(read(report)))
    return status


def read(report: Path) -> dict[str, dict[str, str]]:
    """What came of each client and feature: `passed`, `failed`, `skipped`, or why the client itself cannot."""
    found: dict[str, dict[str, str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        told = {one.get("name", ""): one.get("value", "") for one in case.iter("property")}
        if "client" in told:
            bad = {child.tag for child in case} & {"failure", "error"}
            skipped = any(child.tag == "skipped" for child in case)
            result = "failed" if bad else "skipped" if skipped else "passed"
            found.setdefault(told["client"], {})[told["feature"]] = told.get("cannot", result)
    return found


def written(table: Table) -> str:
    """The table, and under it in words what a client cannot do."""
    features = list(dict.fromkeys([*FEATURES, *(name for row in table.values() for name in row)]))
    lines = [f"| Client | {' | '.join(features)} |", f"| --- |{' --- |' * len(features)}"]
    notes: list[str] = []
    for client, row in sorted(table.items(), key=lambda pair: pair[0].lower()):
        cells = []
        for feature in features:
            result = row.get(feature, "-")
            if result not in WORD and result != "-":
                notes.append(f"- {client}, {feature}: {result}.")
            cells.append(WORD.get(result, result if result == "-" else "no"))
        lines.append(f"| {client} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *notes])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
