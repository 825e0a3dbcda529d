"""Predict the round time and the bytes of one recipe from a profile that another one measured.

Eight agents, each a process on a link of its own with a slow uplink, train a small MLP for a few
rounds of four epochs. The profile of this fleet, whose speeds that run measured, predicts rounds of
other recipes on the twin: another model, fewer and more epochs, another codec. Then each recipe is
run on the fleet.

    python -m benchmarks.advice.times [--rounds 5] [--json]
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.fleets.loopback import Fleet, plain_fleet
from benchmarks.shared.harness import parser, show, table
from broker.address import LOOPBACK
from edgefed.advise.advice import predicted
from edgefed.advise.advising import predict
from edgefed.advise.candidates import recipe_from
from edgefed.advise.profile import Profile, profile_of
from edgefed.api.recipe_source import checked
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.data.devices.partition import deal
from edgefed.data.devices.shard_files import write_shard
from edgefed.events.base.snapshot import Snapshot
from edgefed.files.writing import make_folder
from edgefed.process.clock import SystemClock
from edgefed.report.speeds import round_overhead, speeds_of_folder
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.sweep.trials import run_trials
from tests.faults.faulty_link import FaultyLink

UPLINKS = (20e3, 20e3, 30e3, 30e3, 40e3, 40e3, 60e3, 80e3)
"""Bytes per second of each device."""

FAST = 1e9

MEASURED: Mapping[str, Any] = {
    "model": {"name": "mlp", "hidden": [64]},
    "training": {"epochs": 4},
}
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "same": MEASURED,
    "larger model, fp32": {
        "model": {"name": "mlp", "hidden": [128]},
        "wire": {"uplink": "fp32"},
    },
    "cnn, int8": {"model": {"name": "cnn"}, "wire": {"uplink": "int8"}},
    "1 epoch": {**MEASURED, "training": {"epochs": 1}},
    "20 epochs": {**MEASURED, "training": {"epochs": 20}},
}


def main() -> None:
    """Measure and print."""
    options = parser("advice.times", __doc__, rounds=5).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with _throttled(folder / "fleet") as fleet:
            profile = _profile(fleet, _recipe(MEASURED, options.rounds))
            rows = [
                _row(key, fleet, profile, _recipe(tables, options.rounds), folder / "twin")
                for key, tables in OTHERS.items()
            ]
    worst = {
        "worst_seconds_error": max(abs(row["seconds_error"]) for row in rows),
        "worst_bytes_error": max(abs(row["bytes_error"]) for row in rows),
    }
    show(options, {**worst, "rows": rows}, f"{table(rows)}\n\n{table([worst])}")


def _recipe(tables: Mapping[str, Any], rounds: int) -> Recipe:
    devices = len(UPLINKS)
    common = {
        "rounds": {"count": rounds, "min_devices": devices},
        "simulation": {"devices": devices},
        "evaluation": {"on": "coordinator"},
    }
    return recipe_from({**common, **tables}, checked)


@contextmanager
def _throttled(folder: Path) -> Iterator[Fleet]:
    """Start the fleet; each agent's connection passes a link of its own."""
    recipe = _recipe(MEASURED, 1)
    shards = deal(load_dataset(recipe, None), recipe.data, len(UPLINKS), 0.0, recipe.seed)
    with plain_fleet(folder, {}) as fleet:
        processes, own = fleet.processes, fleet.address
        links = [FaultyLink(own.port, down=FAST, up=rate) for rate in UPLINKS]
        try:
            for name, shard, link in zip(device_names(len(shards)), shards, links, strict=True):
                path = make_folder(folder / "shards") / f"{name}.npz"
                write_shard(path, shard)
                processes.address = Address(LOOPBACK, link.port)
                processes.start_agent(name, f"npz:{path}")
            processes.address = own
            fleet.wait_for_devices(len(shards))
            yield fleet
        finally:
            for link in links:
                link.close()


def _profile(fleet: Fleet, recipe: Recipe) -> Profile:
    record = fleet.run(recipe)
    with fleet.client() as client:
        snapshot = Snapshot.model_validate(client.ask("snapshot")["snapshot"])
    run = Path(record["folder"])
    speeds, _ = speeds_of_folder(run)
    return profile_of(snapshot, speeds, record["run"], recipe, overhead=round_overhead(run))


def _row(key: str, fleet: Fleet, profile: Profile, recipe: Recipe, folder: Path) -> dict[str, Any]:
    score, twin = predict(
        recipe, profile, folder, (1,), checked, lambda plan: run_trials(plan, folder, SystemClock())
    )
    made = predicted(score, recipe, len(UPLINKS), twin)
    record = fleet.run(recipe)
    rounds = record["history"][1:]  # the first one has the whole weights, and warms up
    seconds = sum(row["seconds"] for row in rounds) / len(rounds)
    moved = (record["bytes_up"] + record["bytes_down"]) / len(UPLINKS)
    assert made.seconds is not None
    assert made.bytes is not None
    expected = made.seconds / recipe.rounds.count
    return {
        "recipe": key,
        "predicted_s": expected,
        "reached_s": seconds,
        "seconds_error": expected / seconds - 1,
        "predicted_bytes": made.bytes,
        "reached_bytes": moved,
        "bytes_error": made.bytes / moved - 1,
    }


if __name__ == "__main__":
    main()
