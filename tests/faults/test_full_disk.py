"""The coordinator's disk fills up while replies come: the fleet waits; the bits are the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from tests.faults.filled_disk import Filler
from tests.faults.fleet_processes import FLEET, FleetProcesses, wait_until
from tests.faults.traffic_recorder import Spy

DISK = "100m"
DEADLINE = 12.0
"""Seconds that an exchange may take; the disk is full for longer."""

RECIPE = Recipe.model_validate(
    {
        "name": "full",
        "seed": 7,
        "model": {"name": "mlp", "hidden": [600, 600]},
        "data": {"classes_per_device": 4, "limit": 240},
        "training": {"epochs": 2, "batch_size": 8, "learning_rate": 0.05},
        "rounds": {
            "count": 3,
            "deadline": DEADLINE,
            "quorum": 1.0,
            "min_devices": 2,
            "retries": 0,
        },
        "wire": {"downlink": "bf16", "uplink": "int8"},
        "simulation": {"devices": 2},
    }
)


class SmallDisk(FleetProcesses):
    """A fleet whose coordinator has a disk in memory that only it can see."""

    def start(self, name: str) -> None:
        if name != "coordinator":
            super().start(name)
            return
        disk = self.folder / "disk"
        disk.mkdir()
        mount = f"mount -t tmpfs -o size={DISK} tmpfs {disk}"
        alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
        if subprocess.run([*alone, mount], capture_output=True, check=False).returncode:
            pytest.skip("a process may not mount a disk of its own here")
        words = [sys.executable, "-m", *self._command(name)]
        words[words.index("--state") + 1] = str(disk)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("EDGEFED_")}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*alone, f"{mount} && exec {' '.join(words)}"],
                stdout=log,
                stderr=log,
                env=environment,
            )

    @property
    def ballast(self) -> Path:
        """A file on that disk, as this process sees it."""
        process = self.processes["coordinator"]
        return Path(f"/proc/{process.pid}/root{self.folder}/disk/ballast")

    def lines(self) -> list[str]:
        """Return what the event pane shows."""
        return [line["text"] for line in self._ask("snapshot")["snapshot"]["lines"]]

    def reasons(self, run: str) -> tuple[tuple[str, str], tuple[str, str]]:
        """Return status and reason of the run, as its row and as the snapshot tell them."""
        row, view = self.record(run), self._ask("snapshot")["snapshot"]["run"]
        return (row["status"], row["reason"]), (view["status"], view["reason"])


@pytest.mark.slow
@pytest.mark.mosquitto
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare here")
def test_a_full_disk_while_replies_come_costs_nothing_but_time(tmp_path: Path) -> None:
    wanted = Simulation(RECIPE, tmp_path / "simulated", SystemClock()).run().record
    folder = tmp_path / "home"
    folder.mkdir()
    home = SmallDisk(folder, RECIPE)
    spy = Spy(home.address, FLEET)
    try:
        run = home.begin()
        fillers: list[Filler] = []
        spy.at(2, "training", "device-01", lambda: fillers.append(Filler(home.ballast)))
        wait_until(
            lambda: any("disk is full" in line for line in home.lines()), "the news", home.logs
        )
        time.sleep(DEADLINE + 3)  # with a deadline that went on, the run would have failed
        row, view = home.reasons(run)
        assert row == view
        assert row[0] == "running"
        fillers[0].stop()
        record = home.finish(run)
    finally:
        spy.close()
        home.close()
    assert record["status"] == "finished", record["reason"]
    assert record["weights_digest"] == wanted.weights_digest
