"""Settings of the study of matched averaging: set-ups, methods, their recipes and their data.

Images: MNIST's training images are halved once. Settings are chosen on the first half, of which a
part is held out. Tests train on the second half and are scored on MNIST's test images. Roles: half
of the roles are for choosing settings, the others for tests; each role's text is cut by time.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.data import images, written
from benchmarks.studies.trials import Part, Tables, each, read_tables, recipe_of
from edgefed.config.recipes.recipe import Recipe
from edgefed.files.writing import write_atomic
from edgefed.seeds import generator

HELD_OUT, TESTED = 2000, 5000
"""Most images that choose settings, and those of the test set that are used."""


@dataclass(frozen=True)
class Setup:
    """One experiment.

    Attributes:
        layers: of the model, and so exchanges of a pass of matched averaging.
        size: training images of all devices, or characters of each role.
        rates: learning rates that settings are chosen from.
        methods: names of those compared.
        recipe: its tables over those of all.
        devices: that train.
        lengths: epochs of local training in a round, each with those in the whole run.
        one_shot: epochs of local training in runs of one round.
        milestones: rounds, or rounds of FedAvg whose bytes or epochs a method may use, at which
            the tables have its accuracy.
        tuning_share: share of a run's epochs after which settings are compared.
    """

    layers: int
    size: int
    rates: Sequence[float]
    methods: Sequence[str]
    recipe: Tables
    devices: int = 8
    lengths: Sequence[tuple[int, int]] = ()
    one_shot: Sequence[int] = ()
    milestones: Sequence[int] = (1, 2, 4, 8, 16, 40)
    tuning_share: float = 0.25

    def file(self, data: Path, folder: Path, part: Part, seed: int) -> Path:
        """Return the file of a run's data, which is written if it is not there."""
        if self.recipe["data"]["name"] == "shakespeare":
            return role_file(data, folder, part, self.devices, self.size, seed)
        return image_file(data, folder, part, self.size, seed)


@dataclass(frozen=True)
class Method:
    """What is trained.

    Attributes:
        algorithm: the recipe's ``[algorithm]`` table.
        grid: keys of ``algorithm`` that are chosen, each with its values.
        passes: whether a round is a pass, which trains once for each layer.
        lengths: epochs of a round in runs of many rounds; empty for all of the set-up.
        part: of the study in which it is, ``one-shot`` or ``rounds``; empty for both.
        rate_as: the method whose learning rate is taken; empty for its own.
        recipe: its tables over those of the set-up.
    """

    algorithm: Tables
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    passes: bool = False
    lengths: Sequence[int] = ()
    part: str = ""
    rate_as: str = ""
    recipe: Tables = field(default_factory=dict)


TABLES = read_tables(__file__)
SETUPS = each(Setup, TABLES["setups"])
METHODS = each(Method, TABLES["methods"])
VARIATIONS: Mapping[str, Tables] = TABLES["variations"]
VARIED = 5
"""Epochs of local training of the runs with variations."""


@dataclass(frozen=True)
class Case:
    """A method with so much local training in a round, and so much in the run.

    Attributes:
        epochs: of local training before the first layer is sent, or before all are.
        total: epochs of the run; 0 for a run of one round.
    """

    method: str
    epochs: int
    total: int = 0

    def round_epochs(self, setup: Setup) -> int:
        """Return the epochs of local training in one round."""
        return self.epochs * (setup.layers if METHODS[self.method].passes else 1)

    def rounds(self, setup: Setup, share: float = 1.0) -> int:
        """Return the rounds of a run with this share of the epochs."""
        return max(1, round(share * self.total / self.round_epochs(setup)))

    def recipe(
        self, setup: Setup, choice: Tables, file: Path, seed: int, share: float = 1.0
    ) -> Recipe:
        """Return the recipe of a run with a choice and with this share of the epochs."""
        method = METHODS[self.method]
        more = {key: value for key, value in choice.items() if key != "rate"}
        own = {
            "algorithm": {**method.algorithm, **more},
            "training": {"epochs": self.epochs, "learning_rate": choice["rate"]},
            "rounds": {"count": self.rounds(setup, share)},
            "simulation": {"devices": setup.devices},
        }
        return recipe_of(file, seed, TABLES["recipe"], setup.recipe, own, method.recipe)


def cases(setup: Setup, part: str) -> list[Case]:
    """Return the cases of a part, ``one-shot`` or ``rounds``, in the order of the tables.

    FedAvg in one round also trains for as long as FedMA's longest pass.
    """
    methods = [name for name in setup.methods if METHODS[name].part in ("", part)]
    if part == "one-shot":
        found = [Case(method, epochs) for epochs in setup.one_shot for method in methods]
        longest = setup.layers * max(setup.one_shot, default=0)
        return [*found, *([Case("FedAvg", longest)] if longest else [])]
    return [
        Case(method, epochs, total)
        for epochs, total in setup.lengths
        for method in methods
        if epochs in (METHODS[method].lengths or [epochs])
    ]


def axes(setup: Setup, method: str) -> dict[str, Sequence[Any]]:
    """Return what is chosen for a method, each with its values: ``rate``, and the grid's keys."""
    return {"rate": setup.rates, **METHODS[method].grid}


def words_of(choice: Tables) -> str:
    """Return a value on each axis in words."""
    return ", ".join(
        f"{key} {value:g}" if key == "rate" else f"{key} {value}" for key, value in choice.items()
    )


def choices(setup: Setup, method: str) -> dict[str, Tables]:
    """Return everything that a method's choice is among, by its words."""
    known = axes(setup, method)
    found = [dict(zip(known, values, strict=True)) for values in itertools.product(*known.values())]
    return {words_of(choice): choice for choice in found}


# -- data -----------------------------------------------------------------------------------------


@cache
def image_file(data: Path, folder: Path, part: Part, count: int, seed: int) -> Path:
    """Write ``count`` training images that a seed draws, and the images to score on.

    Args:
        data: folder of ``mnist/mnist.npz``; without it, scikit-learn's digits are used.
        folder: of the files that are written.
        part: whether settings are chosen on the file.
        count: training images; fewer where the half has fewer.
        seed: of the draw.
    """
    arrays = images(data)
    x, y = arrays["x_train"], arrays["y_train"].astype(np.int64)
    tune, half = np.array_split(np.random.default_rng(7).permutation(len(y)), 2)
    scored = {
        "x_test": arrays["x_test"][:TESTED],
        "y_test": arrays["y_test"].astype(np.int64)[:TESTED],
    }
    if part == "tune":
        apart, half = np.split(tune, [min(HELD_OUT, len(tune) // 4)])
        scored = {"x_test": x[apart], "y_test": y[apart]}
    rows = generator(seed, "samples").permutation(half)[:count]
    return written(folder, f"images-{part}", {"x_train": x[rows], "y_train": y[rows], **scored})


@cache
def role_file(data: Path, folder: Path, part: Part, roles: int, length: int, seed: int) -> Path:
    """Write roles that a seed draws, each with its first ``length`` characters.

    Args:
        data: folder of ``shakespeare/shakespeare_roles.jsonl``.
        folder: of the files that are written.
        part: whether settings are chosen on the file.
        roles: their number; all have at least ``length`` characters.
        length: characters of each role.
        seed: of the draw.
    """
    path = folder / f"roles-{part}-{roles}-{length}-{seed}.jsonl"
    lines = (data / "shakespeare/shakespeare_roles.jsonl").read_text("utf-8").splitlines()
    long = [record for record in map(json.loads, lines) if len(record["text"]) >= length]
    order = np.random.default_rng(7).permutation(len(long))
    half = dict(zip(("tune", "test"), np.array_split(order, 2), strict=True))[part]
    chosen = generator(seed, "roles").permutation(half)[:roles]
    kept = [{"role": long[n]["role"], "text": long[n]["text"][:length]} for n in chosen]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(json.dumps(record) + "\n" for record in kept).encode())
    return path
