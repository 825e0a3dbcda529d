"""The second part of the study: which devices' labels are permuted alike (appendix B of the paper).

Devices have all labels, renamed by one of a few permutations. Experts are conditioned on the device
(``condition = "device"``). A device belongs to the expert with its largest share; after each round
experts are matched to permutations one to one, by the assignment that suits most devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.expert_study.runs import Look, Observed, Runner
from benchmarks.expert_study.samples import CLASSES, read, written
from edgefed.algorithms.base import State
from edgefed.algorithms.expert_records import mixtures_of
from edgefed.config.recipe import Recipe
from edgefed.data.partition import planted_orders
from edgefed.seeds import generator
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.sweep.planted_clusters import matched, overlaps

STARTS = ("independent", "updates")


@dataclass(frozen=True)
class Setup:
    """One experiment.

    Attributes:
        samples: of each device.
        permutations: of labels, of which each device gets one at random.
        server: the algorithm's server optimiser.
    """

    devices: int = 20
    samples: int = 250
    permutations: int = 4
    rounds: int = 10
    epochs: int = 3
    batch_size: int = 64
    learning_rate: float = 0.05
    hidden: int = 64
    server: str = "adam"
    server_learning_rate: float = 0.01


@dataclass(frozen=True)
class Row:
    """A number of experts with one start.

    Attributes:
        accuracy: of the clustering, one list a seed with one value a round.
        reachable: the best that so many experts can do, by seed.
        pure: whether after the last round no expert has devices of two permutations, by seed.
    """

    experts: int
    start: str
    accuracy: tuple[tuple[float, ...], ...]
    reachable: tuple[float, ...]
    pure: tuple[bool, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the row as ``--json`` has it."""
        return dict(self.__dict__)

    @property
    def rounds(self) -> list[int | None]:
        """By seed, the first round from which on the clustering stays at its best, if any."""
        found: list[int | None] = []
        for values, best in zip(self.accuracy, self.reachable, strict=True):
            wrong = [place for place, each in enumerate(values, 1) if each < best - 1e-9]
            first = (wrong[-1] if wrong else 0) + 1
            found.append(first if first <= len(values) else None)
        return found


def row(
    setup: Setup, experts: int, start: str, data: Path, runner: Runner, seeds: Sequence[int]
) -> Row:
    """Return the row of a number of experts with one start."""
    accuracy, reachable, pure = [], [], []
    for seed in seeds:
        recipe = recipe_of(setup, experts, start, _file(setup, data, runner.folder, seed), seed)
        groups = planted(recipe)
        line = runner.line(f"permutation, K = {experts}, {start}", recipe, looks(groups))
        accuracy.append(tuple(note["accuracy"] for note in line["notes"]))
        pure.append(bool(line["notes"]) and line["notes"][-1]["pure"])
        sizes = sorted(Counter(groups.values()).values(), reverse=True)
        reachable.append(sum(sizes[:experts]) / len(groups))
    return Row(experts, start, tuple(accuracy), tuple(reachable), tuple(pure))


def recipe_of(setup: Setup, experts: int, start: str, file: Path, seed: int) -> Recipe:
    """Return the recipe of a run."""
    return Recipe.model_validate(
        {
            "seed": seed,
            "model": {"name": "mlp", "hidden": [setup.hidden]},
            "data": {
                "name": "npz",
                "path": str(file.absolute()),
                "normalize": True,
                "partition": "iid",
                "transform": "permutation",
                "permutations": setup.permutations,
            },
            "algorithm": {
                "name": "fedmoe",
                "experts": experts,
                "condition": "device",
                "start": start,
                "server": setup.server,
                "server_learning_rate": setup.server_learning_rate,
            },
            "training": {
                "epochs": setup.epochs,
                "batch_size": setup.batch_size,
                "learning_rate": setup.learning_rate,
            },
            "rounds": {"count": setup.rounds},
            "evaluation": {"every": 0, "on": "coordinator"},
            "simulation": {
                "devices": setup.devices,
                "holdout": 0.0,
                "workers": 1,
                "engine": "sequential",
            },
            "wire": {"downlink": "fp32", "uplink": "fp32"},
        }
    )


def planted(recipe: Recipe) -> dict[str, int]:
    """Return the number of each device's permutation, by device."""
    orders = planted_orders(recipe.data, recipe.simulation.devices, recipe.seed)
    return dict(zip(device_names(len(orders)), orders.tolist(), strict=True))


def looks(planted: Mapping[str, int]) -> Look:
    """Return what notes the clustering of every round."""

    def look(number: int, state: State, devices: Observed) -> dict[str, Any]:
        del number, devices
        mixtures = mixtures_of(state)
        chosen = {each: int(np.argmax(mixtures[each].shares)) for each in planted}
        counts = overlaps(planted, chosen)
        pure = bool(((counts > 0).sum(axis=1) <= 1).all())
        return {"accuracy": matched(counts) / len(planted), "pure": pure}

    return look


def _file(setup: Setup, data: Path, folder: Path, seed: int) -> Path:
    """Return the file of the devices' samples, and of a few to test on."""
    arrays = read(data)
    count = setup.devices * setup.samples
    taken = generator(seed, "samples").permutation(len(arrays["labels"]))[: count + 100]
    train, test = np.split(taken, [len(taken) - 100])
    whole: Mapping[str, Any] = {
        "x_train": arrays["inputs"][train],
        "y_train": arrays["labels"][train],
        "x_test": arrays["inputs"][test],
        "y_test": arrays["labels"][test],
        "classes": np.array(CLASSES),
    }
    return written(folder / "data", "permuted", whole)


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the rows as text."""
    found: list[tuple[str, ...]] = [
        ("EXPERTS", "START", "ROUND 1", "ROUND 10", "REACHABLE", "FROM ROUND", "PURE")
    ]
    for each in rows:
        first = " ".join(f"{values[0]:.2f}" for values in each.accuracy)
        last = " ".join(f"{values[-1]:.2f}" for values in each.accuracy)
        best = " ".join(f"{value:.2f}" for value in each.reachable)
        rounds = " ".join(str(number or "-") for number in each.rounds)
        pure = f"{sum(each.pure)} of {len(each.pure)}"
        found.append((str(each.experts), each.start, first, last, best, rounds, pure))
    return found
