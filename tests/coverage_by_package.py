"""Print the coverage that ``make coverage`` measured, package by package.

Started with ``python -m tests.coverage_by_package`` in the folder of the data file ``.coverage``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from coverage import Coverage

COLUMNS = "{:<24} {:>10} {:>8} {:>7}\n"


def package(file: str) -> str:
    """Return the package of a source file: its folder, down to the second level."""
    return ".".join(PurePath(file).parent.parts[:2])


def by_package(files: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return the statements of each package, and how many of them never ran.

    Args:
        files: the files of coverage's JSON report, by path.
    """
    found: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for file, each in files.items():
        statements, unrun = found[package(file)]
        summary = each["summary"]
        found[package(file)] = (
            statements + summary["num_statements"],
            unrun + summary["missing_lines"],
        )
    return dict(sorted(found.items()))


def table(packages: Mapping[str, tuple[int, int]]) -> str:
    """Return the table, with the total in its last line."""
    total = (sum(each[0] for each in packages.values()), sum(each[1] for each in packages.values()))
    lines = [COLUMNS.format("package", "statements", "missed", "covered")]
    for name, (statements, unrun) in (*packages.items(), ("total", total)):
        share = 100 * (statements - unrun) / statements if statements else 100.0
        lines.append(COLUMNS.format(name, statements, unrun, f"{share:.1f} %"))
    return "".join(lines)


def main() -> None:
    """Print the table for the data file in this folder."""
    measured = Coverage()
    measured.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        measured.json_report(outfile=str(report))
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    sys.stdout.write(table(by_package(files)))


if __name__ == "__main__":
    main()
