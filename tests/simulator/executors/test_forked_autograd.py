"""A program whose autograd has threads simulates in one process, since its forks cannot train."""

from __future__ import annotations

from pathlib import Path

from tests.programs.forked_programs import run_module


def test_a_program_that_has_used_autograds_threads_simulates_in_its_own_process(
    tmp_path: Path,
) -> None:
    code, out, err = run_module("tests.simulator.executors.autograd_threads", str(tmp_path))
    assert code == 0, err
    assert out.splitlines() == ["[true, false]", "finished ", "sweep.jobs"]
    (events,) = tmp_path.glob("**/events.jsonl")
    assert "trains one device after another: autograd has threads here" in events.read_text()
