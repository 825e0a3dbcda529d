"""The benchmark against peers runs: EdgeFed and the plain loop, which need no installing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import sim_vs_peers
from benchmarks.peers.memory import PeakMemory
from tests.processes import PATIENCE, clean_environment
from tests.programs.forked_programs import ForkedProgram


def watched(command: Sequence[str], place: sim_vs_peers.Place) -> tuple[str, float]:
    """Run a program by a fork; return what it printed and its peak memory."""
    out, err = place.folder / "stdout", place.folder / "stderr"
    environment = {**clean_environment(), **sim_vs_peers.QUIET}
    program = ForkedProgram(command[2:], environment, out, err)
    with PeakMemory(program.pid) as memory:
        assert program.wait(PATIENCE) == 0, err.read_text()
    return out.read_text(), memory.megabytes


@pytest.mark.slow
def test_it_times_rounds_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sim_vs_peers, "_watched", watched)
    words = ["--only", "edgefed,plain", "--rounds", "1", "--cache", str(tmp_path), "--json"]
    monkeypatch.setattr("sys.argv", ["sim_vs_peers", *words])
    sim_vs_peers.main()
    found = json.loads(capsys.readouterr().out)
    for row in found["systems"].values():
        assert all(value > 0 for value in row.values())
    own, plain = (found["systems"][name]["updates_per_s"] for name in ("edgefed", "plain"))
    assert found["ratio_to_plain"] == pytest.approx(own / plain, abs=0.01)
