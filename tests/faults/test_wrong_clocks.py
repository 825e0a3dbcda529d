"""Boards without a battery clock, on which every program starts in 1970."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.simulator.local_fleet import device_names
from tests.faults.fleet_processes import FleetProcesses, fleet, wait_until
from tests.faults.shifted_clock import ShiftedClocks, can_shift_clocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.mosquitto,
    pytest.mark.skipif(not can_shift_clocks(), reason="clocks cannot be shifted here"),
]

(DEVICE,) = device_names(1)
PARTS = ("coordinator", DEVICE)
PLAN = Recipe.model_validate(
    {
        "name": "clocks",
        "model": {"name": "mlp", "hidden": [8]},
        "data": {"limit": 100},
        "rounds": {"count": 2},
        "evaluation": {"every": 0},
        "simulation": {"devices": 1, "holdout": 0.0},
    }
)


class Boards:
    """The parts of a fleet on machines whose clocks can be set.

    Args:
        home: the fleet; its parts are started anew here.
        folder: of the clocks.
    """

    def __init__(self, home: FleetProcesses, folder: Path) -> None:
        folder.mkdir()
        self._home = home
        self._clocks = ShiftedClocks(folder)

    def start_in_1970(self, part: str) -> Path:
        """Start a part, in place of one that runs, and return the file of its words."""
        if part in self._home.processes:
            self._home.kill(part)
        self._clocks.jump(part, -int(time.time()))
        kept = {name: text for name, text in os.environ.items() if not name.startswith("EDGEFED_")}
        command = [sys.executable, "-m", *self._home._command(part)]
        environment = {**kept, **self._clocks.environment(part)}
        words = self._home.folder / f"{part}-1970.log"
        with words.open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._home.processes[part] = process
        return words

    def set_clock(self, part: str) -> None:
        """Set the clock of a part to the time."""
        self._clocks.jump(part, 0)


@contextmanager
def boards(folder: Path, *, signed: bool) -> Iterator[tuple[FleetProcesses, Boards]]:
    with fleet(folder / "home", PLAN, signed=signed, absent=[DEVICE]) as home:
        yield home, Boards(home, folder / "clocks")


def test_without_certificates_a_fleet_in_1970_trains_while_its_clocks_are_set(
    tmp_path: Path,
) -> None:
    with boards(tmp_path, signed=False) as (home, machines):
        for part in PARTS:
            machines.start_in_1970(part)
        run = home.begin(paused=True)
        home.step(run)
        assert str(home.record(run)["created"]).startswith("1970-01-01T00:")
        for part in PARTS:
            machines.set_clock(part)
        home.resume(run)
        record = home.finish(run)
        assert record["status"] == "finished", (record["reason"], home.logs())


def test_with_certificates_a_part_says_why_in_one_line_and_starts_once_its_clock_is_set(
    tmp_path: Path,
) -> None:
    with boards(tmp_path, signed=True) as (home, machines):
        said = {part: machines.start_in_1970(part) for part in PARTS}
        for part, words in said.items():
            process = home.processes[part]
            wait_until(lambda process=process: process.poll() is not None, "its end")  # type: ignore[misc]
            assert process.poll() == 4
            first, *hints = words.read_text().splitlines()
            assert "[trust.clock]" in first
            assert "this machine's clock says 1970-01-01 00:" in first
            assert hints == ["  try: set the clock of this machine: timedatectl"]
        for part in PARTS:
            home.start(part)
        record = home.finish(home.begin())
        assert record["status"] == "finished", (record["reason"], home.logs())
