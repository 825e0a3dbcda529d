"""Measure how a class is learned that one device alone holds, which joins after other rounds.

Four devices share the digits 0 to 8 and train for some rounds. Then a fifth joins with the digit 9
alone. Each line of the table is a way to go on from the same model: a recipe, or who holds the
class. Scores are of the digits that are held out for the coordinator's tests.

    python -m benchmarks.late_class [--seeds 5] [--only NAME …] [--json]
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import edgefed
from benchmarks.late_class.recall import LATE
from benchmarks.shared.harness import parser, show, table
from benchmarks.studies.trials import each, merged, read_tables
from edgefed.learn.base.types import Array
from edgefed.simulator.sweep.statistics import spread

BEFORE = 20
"""Rounds until the device joins; 40 follow."""

OTHERS = 4
SHOWN = (5, 10, 20, 40)
"""Rounds after which the table tells the scores."""


@dataclass(frozen=True)
class Way:
    """How to go on when the device joins.

    Attributes:
        changes: names of tables over those of all.
        copied: share of the device's samples that every other device gets too.
        late_samples: of the class, all where it is 0.
        afresh: whether to start from new weights and not from the model so far.
    """

    changes: Sequence[str] = ()
    copied: float = 0.0
    late_samples: int = 0
    afresh: bool = False


TABLES = read_tables(__file__)
WAYS = each(Way, TABLES["ways"])


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
    first = merged(TABLES["recipe"], {"seed": seed, "rounds": {"count": BEFORE}})
    start = edgefed.simulate(first, data=before, test=test).save(folder / f"{seed}.safetensors")
    found = {}
    for name in names:
        way = WAYS[name]
        own = {"seed": seed + 100, "model": {"start": "" if way.afresh else str(start)}}
        recipe = merged(TABLES["recipe"], *(TABLES["changes"][name] for name in way.changes), own)
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
    rows = [
        {
            "way": name,
            **{
                f"{figure}, {number}": spread([run[name][place][figure] for run in runs])
                for place, number in enumerate(SHOWN)
                for figure in ("recall", "accuracy")
            },
        }
        for name in options.only
    ]
    show(options, runs, table(rows), indent=2)


if __name__ == "__main__":
    main()
