"""An agent with a device's certificate that lies, and is otherwise the one that devices run."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from device_agent.commands import cli, launch
from edgefed.config.fleet.settings import AgentSettings
from edgefed.data.base.types import DeviceData
from edgefed.worker.outcomes import Outcome
from edgefed.worker.worker import Worker

ANNOUNCED = 2**40
"""Samples that the liar says it has."""


class SilentWorker(Worker):
    """Takes every task and never comes to an end."""

    def work(self, *arguments: Any, **named: Any) -> Outcome:
        """Sleep until the task is cancelled, and longer."""
        while True:
            time.sleep(1.0)


class GreedyWorker(Worker):
    """Says of every answer that it rests on far more samples than anybody has."""

    def work(self, *arguments: Any, **named: Any) -> Outcome:
        """Return the device's answer with another number of samples."""
        outcome = super().work(*arguments, **named)
        return replace(outcome, samples=ANNOUNCED) if outcome.status == "ok" else outcome


def run_silent(state: Path, data: Path) -> None:
    """Run an agent that takes tasks and never answers."""
    _run(state, data, Worker=SilentWorker)


def run_greedy(state: Path, data: Path) -> None:
    """Run an agent that announces 2^40 samples, and trains on wrong labels."""
    honest = launch.described

    def described(settings: AgentSettings, data: DeviceData) -> dict[str, Any]:
        return {**honest(settings, data), "samples": ANNOUNCED}

    with np.load(data) as found:
        arrays = dict(found)
    wrong = state / "wrong.npz"
    np.savez(wrong, **{**arrays, "y_train": arrays["y_train"].max() - arrays["y_train"]})
    _run(state, wrong, Worker=GreedyWorker, described=described)


def _run(state: Path, data: Path, **lies: object) -> None:
    vars(launch).update(lies)
    sys.argv = ["edgefed-agent", "--state", str(state), "run", "--data", f"npz:{data}"]
    cli.main()
