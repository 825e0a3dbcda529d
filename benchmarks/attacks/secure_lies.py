"""Have a coordinator lie about secure aggregation, over a real Mosquitto with TLS.

Each lie of ``tests/programs/lying_coordinator.py`` has a fleet of its own: a broker, the
coordinator that lies, and agents with certificates. The coordinator notes what is left when it has
removed every mask that it can; its error is that of the first layer, relative to the true update of
the victim, which a simulation of the same run in plain tells. Below 0.5 the update counts as
recovered.

    python -m benchmarks.attacks.secure_lies [NAME ...] [--json]
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.harness import parser, show
from edgefed.algorithms.secure.secure_device_half import grid_of
from edgefed.algorithms.secure.secure_phases import HEADER
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.learn.aggregation.exact_mean import grid_bits
from edgefed.learn.base.types import Tensors
from edgefed.process.clock import SystemClock
from edgefed.sharing.masking import signed
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.simulator.run import Simulation
from edgefed.terminal.console import columns
from tests.coordinator.fleets import delta_of
from tests.faults.fleet_processes import FleetProcesses, dealt, fleet
from tests.programs.lying_coordinator import GRID, LIES, VICTIM

DEVICES, ROUNDS = 4, 2

RECOVERED = 0.5
"""Largest relative error of an update that counts as recovered."""

LAYER = "fc1.weight"


def recipe(*, secure: bool) -> Recipe:
    """Return a run in which all devices train in every round."""
    return Recipe.model_validate(
        {
            "name": "lies",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [64]},
            "data": {"partition": "classes", "classes_per_device": 2, "limit": 400},
            "training": {"batch_size": 8, "learning_rate": 0.05},
            "rounds": {
                "count": ROUNDS,
                "min_devices": DEVICES,
                "cohort": DEVICES,
                "quorum": 0.7,
                "retries": 0,
                "lost_grace": "deadline",
            },
            "wire": {"uplink": "fp32"},
            "secure_aggregation": {"enabled": secure},
            "simulation": {"devices": DEVICES, "workers": 1},
        }
    )


def true_update(folder: Path) -> Tensors:
    """Return the victim's update of the first round."""
    replies, found = LocalFleet.replies, list[Tensors]()

    def noting(self: LocalFleet, exchange: OpenExchange, stop: Any) -> Iterator[Delivered]:
        for each in replies(self, exchange, stop):
            if each.reply.device == VICTIM and exchange.name == "fit":
                found.append(dict(delta_of(each)))
            yield each

    LocalFleet.replies = noting  # type: ignore[method-assign]
    try:
        Simulation(recipe(secure=False), folder, SystemClock()).run()
    finally:
        LocalFleet.replies = replies  # type: ignore[method-assign]
    return found[0]


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables that the fleet's processes inherit."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def attack(lie: str, folder: Path, update: Tensors, samples: Mapping[str, int]) -> dict[str, Any]:
    """Return what the coordinator recovers by a lie."""
    found, liar = folder / "found.npz", folder / "liar"
    variables = {"LIE": lie, "FOUND": str(found), "IMPERSONATOR": str(liar / VICTIM)}
    parts = {"signed": True, "ruled": True, "coordinator": "tests.programs.lying_coordinator"}
    plan = recipe(secure=True)
    with environment(**variables), fleet(folder / "home", plan, **parts) as home:
        assert home.trust is not None
        authority = copy.copy(home.trust)
        authority.folder, authority.parties = liar, {}
        authority.issue("device", VICTIM)
        home.wait_for_devices(DEVICES)
        run = home.begin()
        record = home.finish(run)
        reason = _refusal(home, run)
    error = _error(lie, found, update, samples)
    return {
        "lie": lie,
        "means": LIES[lie],
        "error": error,
        "refused": reason,
        "run": record["status"],
        "recovered": error is not None and error < RECOVERED,
    }


def _refusal(home: FleetProcesses, run: str) -> str:
    """Return the first reason for which a device other than the victim did not answer."""
    refused = [each for each in home.events(run, "reply") if each["outcome"] != "accepted"]
    others = [each for each in refused if each["device"] != VICTIM]
    return str((others or refused)[0]["reason"]) if refused else ""


def _error(lie: str, path: Path, update: Tensors, samples: Mapping[str, int]) -> float | None:
    """Return the relative error of what was found; None if nothing was."""
    if not path.exists():
        return None
    with np.load(path) as found:
        if f"delta.{LAYER}" in found:
            values = found[f"delta.{LAYER}"]
        else:
            total = sum(samples.values())
            grid = grid_of(update, *(GRID if lie == "grid" else (total, grid_bits(total))))
            sums = grid.sums(signed(found["cells"][HEADER:].view(np.uint64), grid.width))
            values = sums[LAYER] * 2.0**-grid.bits / samples[VICTIM]
    true = update[LAYER]
    return float(np.linalg.norm(values - true) / np.linalg.norm(true))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows for people."""
    lines = [("LIE", "ERROR", "VERDICT", "ANSWER OF THE DEVICES")]
    for row in rows:
        error = "nothing" if row["error"] is None else f"{row['error']:.1e}"
        verdict = "RECOVERED" if row["recovered"] else "not recovered"
        lines.append((row["lie"], error, verdict, row["refused"][:90]))
    return columns(lines)


def main() -> None:
    """Attack and print; exit code 1 if an update was recovered."""
    command = parser("attacks.secure_lies", __doc__)
    command.add_argument("names", nargs="*", metavar="NAME", help=", ".join(LIES))
    options = command.parse_args()
    if unknown := set(options.names) - set(LIES):
        command.error(f"there is no lie {min(unknown)}; there are {', '.join(LIES)}")
    samples = {name: len(shard.train) for name, shard in dealt(recipe(secure=True)).items()}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        update = true_update(folder / "plain")
        rows = [attack(lie, folder / lie, update, samples) for lie in options.names or LIES]
    show(options, rows, table(rows))
    if any(row["recovered"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
