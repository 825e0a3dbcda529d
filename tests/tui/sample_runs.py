"""Past runs that tests list and compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edgefed.errors import EdgeFedError
from edgefed.events.history.known_runs import RunDetails, RunRow
from edgefed.tui.app import Dashboard
from tests.tui.samples import MIB, ago, dashboard


def past_run(number: int, rate: float = 4.0, rounds: int = 20, **changes: Any) -> RunDetails:
    """A run whose accuracy rises the faster the lower its rate."""
    history = [
        {
            "round": at,
            "accuracy": 0.8 - 0.6 * math.exp(-at / rate),
            "loss": 0.4 + 1.8 * math.exp(-at / rate),
        }
        for at in range(1, rounds + 1)
    ]
    values: dict[str, Any] = {
        "run": f"r-{number:04d}", "name": "nightly", "algorithm": "fedavg", "status": "finished",
        "created": ago(3600 * (200 - number)), "round": rounds, "rounds": rounds,
        "accuracy": history[-1]["accuracy"], "loss": history[-1]["loss"],
        "bytes_up": number * MIB, "bytes_down": 2 * number * MIB, "seconds": 60.0 * rounds,
        "recipe": {"seed": 1, "algorithm": {"name": "fedavg"},
                   "training": {"epochs": 1, "learning_rate": rate / 40}},
        "history": history,
    }  # fmt: skip
    return RunDetails.model_validate({**values, **changes})


def prox(number: int, **changes: Any) -> RunDetails:
    """A run by another algorithm, with a budget of privacy."""
    recipe = {
        "seed": 1,
        "algorithm": {"name": "fedprox", "mu": 0.01},
        "training": {"epochs": 3, "learning_rate": 0.1},
    }
    fields = {"algorithm": "fedprox", "epsilon": 2.41, "recipe": recipe, **changes}
    return past_run(number, 8.0, 30, **fields)


class KnownRuns:
    """Runs in memory; it fails with ``error`` when there is one."""

    def __init__(self, *runs: RunDetails, error: Exception | None = None) -> None:
        self.runs = list(runs)
        self.error = error
        self.asked: list[str] = []

    def list_runs(self) -> Sequence[RunRow]:
        self.asked.append("")
        if self.error is not None:
            raise self.error
        return self.runs

    def run_details(self, run: str) -> RunDetails:
        self.asked.append(run)
        if self.error is not None:
            raise self.error
        return next(each for each in self.runs if each.run == run)


GONE = EdgeFedError("The coordinator did not answer.", code="x", hint="see its log")

THREE = (prox(142), past_run(141), past_run(140, 2.0, name="first", status="failed"))


def with_runs(*runs: RunDetails, **settings: Any) -> Dashboard:
    """The app on the screen of runs, which are ``runs``."""
    known = KnownRuns(*runs)
    return dashboard(screen="runs", runs=known, **settings)
