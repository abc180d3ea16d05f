"""Installs the clients, drives them, and prints what works: one line a client, one column a feature.

`python test/clients/drive/table.py [--no-install] [--write] [PYTEST OPTIONS…]`; the status is pytest's. With `--write`
the table goes into docs/clients.md as well.
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

from common import PAGE
from environments import ENVIRONMENTS, ROOT, install

sys.path.insert(0, str(ROOT / "test"))
sys.path.insert(0, str(ROOT / "docs"))

from marked import filled  # after the path

from support.driving import FEATURES

WORD = {"passed": "yes", "failed": "NO", "skipped": "?"}
COLUMNS = (*FEATURES, "MCP", "patch", "compaction", "embedded model", "its tools")
Table = Mapping[str, Mapping[str, str]]


def main(arguments: list[str]) -> int:
    options = [one for one in arguments if one not in ("--no-install", "--write")]
    if "--no-install" not in arguments:
        for environment in ENVIRONMENTS.values():
            if not install(environment):
                print(environment.missing, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", "clients", "-o", "junit_family=xunit1", f"--junitxml={report}"]
        status = subprocess.run([*command, str(ROOT / "test" / "clients"), *options], cwd=ROOT).returncode
        if report.exists():
            table = written(read(report))
            print(table)
            if "--write" in arguments:
                PAGE.write_text(filled(PAGE.read_text("utf-8"), "table", table), "utf-8")
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
    features = list(dict.fromkeys([*COLUMNS, *(name for row in table.values() for name in row)]))
    lines = [f"| Client | {' | '.join(features)} |", f"| --- |{' --- |' * len(features)}"]
    rows = sorted(table.items(), key=lambda pair: pair[0].lower())
    reasons: dict[str, dict[str, list[str]]] = {}
    for client, row in rows:
        cells = []
        for feature in features:
            result = row.get(feature, "-")
            if result not in WORD and result != "-":
                reasons.setdefault(result, {}).setdefault(client, []).append(feature)
            cells.append(WORD.get(result, result if result == "-" else "no"))
        lines.append(f"| {client} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(_note(reason, of) for reason, of in reasons.items())])


def _note(reason: str, of: Mapping[str, list[str]]) -> str:
    """One line for a reason, whoever shares it."""
    features = list(dict.fromkeys(feature for row in of.values() for feature in row))
    return f"- {'; '.join(of)} – {', '.join(features)}: {reason}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
