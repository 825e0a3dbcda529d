"""A simulation that ends before its last round says why."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands import edgefed

SMALL = ("data.limit=80", "model.name=mlp", "simulation.devices=2", "simulation.workers=1")


def test_a_simulation_tells_that_it_stopped_early(tmp_path: Path) -> None:
    early = ("evaluation.stop_patience=1", "evaluation.stop_min_change=1")
    sets = [word for key in (*SMALL, *early) for word in ("--set", key)]
    told = edgefed("--no-config", "sim", "run", "--rounds", "9", *sets, state=tmp_path)
    assert told.code == 0, told
    assert "stopped early: no better accuracy in 1 evaluation" in told.err
    assert "stopped" not in told.out
    whole = [word for key in SMALL for word in ("--set", key)]
    told = edgefed("--no-config", "sim", "run", "--rounds", "2", *whole, state=tmp_path)
    assert (told.code, "stopped" in told.err) == (0, False)
