"""Every benchmark of this folder, one after the other, in one table.

A benchmark is a module with `measure(quick)`, which yields rows.
"""

import argparse
import importlib
import os
import sys
from pathlib import Path

from benchmarks.common import Row, table


def names() -> list[str]:
    files = sorted(Path(__file__).parent.glob("*.py"))
    return [file.stem for file in files if "\ndef measure(" in file.read_text("utf-8")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these of: {', '.join(names())}")
    parser.add_argument("--quick", action="store_true", help="a few requests: shows that they run")
    options = parser.parse_args()
    rows: list[Row] = []
    for name in options.names or names():
        print(f"{name} …", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"benchmarks.{name}").measure(options.quick)
    print(table(rows))
    print(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
