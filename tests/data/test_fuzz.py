"""Hundreds of broken files: no crash, no error that is not ours, no more memory than is given."""

from __future__ import annotations

import json

import pytest

from benchmarks.fuzzing.file_targets import TARGETS
from benchmarks.fuzzing.running import Report
from tests.forked_programs import run_module

INPUTS = 150


@pytest.mark.slow
@pytest.mark.parametrize("name", [target.name for target in TARGETS])
def test_broken_files_end_in_errors_of_ours(name: str) -> None:
    code, out, err = run_module("benchmarks.fuzzing.running", name, str(INPUTS), "0", "")
    assert code == 0, err
    report = Report(**json.loads(out.splitlines()[-1]))
    assert report.crashes == []
    assert report.inputs >= INPUTS
    assert len(report.outcomes) > 1, "some are read or refused otherwise"
