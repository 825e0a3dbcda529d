"""Measure how a class is learned that one device alone holds, which joins after other rounds.

Four devices share the digits 0 to 8 and train for some rounds. Then a fifth joins with the digit 9
alone. Each line of the table is a way to go on from the same model: a recipe, or who holds the
class. Scores are of the digits that are held out for the coordinator's tests.

    python -m benchmarks.late_class [--seeds 5] [--only NAME …] [--json]
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgefed
from benchmarks.shared.harness import parser, show
from edgefed.learn.base.types import Array
from edgefed.simulator.sweep.statistics import spread
from edgefed.terminal.console import columns

LATE = 9
"""The class that joins late."""

OTHERS = 4
BEFORE, AFTER = 20, 40
"""Rounds until the device joins, and those from then on."""

SHOWN = (5, 10, 20, 40)
"""Rounds after which the table tells the scores."""

TRAINING: Mapping[str, Any] = {"epochs": 2, "batch_size": 16, "learning_rate": 0.05}


@dataclass(frozen=True)
class Way:
    """How to go on when the device joins.

    Attributes:
        tables: of the recipe, over those of all.
        copied: share of the device's samples that every other device gets too.
        late_samples: of the class, all where it is 0.
        afresh: whether to start from new weights and not from the model so far.
    """

    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    copied: float = 0.0
    late_samples: int = 0
    afresh: bool = False


def _algorithm(name: str, **settings: Any) -> dict[str, Mapping[str, Any]]:
    return {"algorithm": {"name": name, **settings}}


def _training(**changes: Any) -> dict[str, Mapping[str, Any]]:
    return {"training": {**TRAINING, **changes}}


_BOUNTIES = {"labels": {"supplement": 0.1, "mix_share": 1.0}}

_HEAD = {"model": {"train": "head"}}

WAYS: Mapping[str, Way] = {
    "fedavg": Way(),
    "one epoch": Way(_training(epochs=1)),
    "five epochs": Way(_training(epochs=5)),
    "learning_rate = 0.01": Way(_training(learning_rate=0.01)),
    "head": Way(_HEAD),
    "uniform": Way(_algorithm("fedavg", weighting="uniform")),
    "fedrs": Way(_algorithm("fedrs")),
    "fedlc": Way(_algorithm("fedlc")),
    "fedlc, margin": Way(_algorithm("fedlc", absent="margin", calibration=0.01)),
    "noise": Way({"labels": {"supplement": 0.1, "mix_share": 0.0}}),
    "bounties": Way(_BOUNTIES),
    "bounties, uniform": Way({**_algorithm("fedavg", weighting="uniform"), **_BOUNTIES}),
    "head, uniform": Way({**_HEAD, **_algorithm("fedavg", weighting="uniform")}),
    "head, bounties": Way({**_HEAD, **_BOUNTIES}),
    "copies": Way(copied=0.1),
    "afresh": Way(afresh=True),
    "few": Way(late_samples=20),
    "few, uniform": Way(_algorithm("fedavg", weighting="uniform"), late_samples=20),
    "few, fedrs": Way(_algorithm("fedrs"), late_samples=20),
    "few, bounties": Way(_BOUNTIES, late_samples=20),
}


def late_recall(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Count the samples of the late class that are recognised, and all of them."""
    late = targets == LATE
    return ((outputs.argmax(1) == LATE) & late).sum(), late.sum()


def digits(seed: int) -> tuple[dict[str, tuple[Array, Array]], tuple[Array, Array]]:
    """Return the samples of each device, and those of the coordinator's tests."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = (found.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = found.target.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    others, late = train[labels[train] != LATE], train[labels[train] == LATE]
    parts = {f"device-{number}": others[number::OTHERS] for number in range(OTHERS)}
    parts["late"] = late
    return {name: (images[rows], labels[rows]) for name, rows in parts.items()}, (
        images[test],
        labels[test],
    )


def recipe_of(way: Way, seed: int, start: str) -> dict[str, Any]:
    """Return the recipe of a way."""
    tables: dict[str, Any] = {
        "name": "late-class",
        "seed": seed,
        "model": {"name": "cnn", "start": start},
        "data": {"classes": 10},
        "training": TRAINING,
        "rounds": {"count": AFTER, "cohort": OTHERS + 1},
        "evaluation": {"metrics": ["benchmarks.late_class:late_recall"]},
    }
    for name, table in way.tables.items():
        tables[name] = {**tables.get(name, {}), **table}
    return tables


def held(way: Way, devices: Mapping[str, tuple[Array, Array]]) -> dict[str, tuple[Array, Array]]:
    """Return who holds which samples once the device has joined."""
    images, labels = devices["late"]
    if way.late_samples:
        images, labels = images[: way.late_samples], labels[: way.late_samples]
    shared = round(way.copied * len(labels))
    found = {"late": (images, labels)}
    for name, (own, targets) in devices.items():
        if name != "late":
            found[name] = (
                np.concatenate([own, images[:shared]]),
                np.concatenate([targets, labels[:shared]]),
            )
    return found


def measure(names: Sequence[str], seed: int, folder: Path) -> dict[str, list[dict[str, float]]]:
    """Return each way's scores after the rounds of ``SHOWN``."""
    devices, test = digits(seed)
    before = {name: part for name, part in devices.items() if name != "late"}
    first = recipe_of(Way({"rounds": {"count": BEFORE}}), seed, "")
    start = edgefed.simulate(first, data=before, test=test).save(folder / f"{seed}.safetensors")
    found = {}
    for name in names:
        way = WAYS[name]
        recipe = recipe_of(way, seed + 100, "" if way.afresh else str(start))
        rounds = edgefed.simulate(recipe, data=held(way, devices), test=test).rounds
        found[name] = [
            {"recall": row["late_recall"], "accuracy": row["accuracy"]}
            for row in (rounds[number - 1] for number in SHOWN)
        ]
    return found


def main() -> None:
    """Run the study and print its table."""
    command = parser("late_class", __doc__, only=WAYS)
    command.add_argument("--seeds", type=int, choices=range(2, 21), default=5)
    options = command.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = [measure(options.only, 1 + seed, Path(folder)) for seed in range(options.seeds)]
    rows: list[tuple[str, ...]] = [("WAY", *(f"ROUND {number}" for number in SHOWN))]
    for name in options.only:
        cells = []
        for place in range(len(SHOWN)):
            recall = spread([run[name][place]["recall"] for run in runs])
            accuracy = spread([run[name][place]["accuracy"] for run in runs])
            cells.append(f"{recall.mean:.2f} ± {recall.deviation:.2f} / {accuracy.mean:.3f}")
        rows.append((name, *cells))
    show(options, runs, f"recall of the class / accuracy of all\n{columns(rows)}", indent=2)


if __name__ == "__main__":
    main()
