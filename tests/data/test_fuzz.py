"""Hundreds of broken files: no crash, no error that is not ours, no more memory than is given."""

from __future__ import annotations

import json
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks.fuzzing import running
from benchmarks.fuzzing.targets import TARGETS
from tests.processes import PATIENCE

INPUTS = 60


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, target in TARGETS.items() if target.kind == "file"]
)
def test_broken_files_end_in_errors_of_ours(name: str, tmp_path: Path) -> None:
    process = get_context("fork").Process(target=_fuzz, args=(name, tmp_path / "report"))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    report = running.Report(**json.loads((tmp_path / "report").read_text().splitlines()[-1]))
    assert report.crashes == []
    assert report.inputs >= INPUTS
    assert len(report.outcomes) > 1, "some are read or refused otherwise"


def _fuzz(name: str, path: Path) -> None:
    sys.argv = ["running", name, str(INPUTS), "0", ""]
    sys.stdout = path.open("w")
    running.main()
