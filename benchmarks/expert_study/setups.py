"""Settings of the study of mixtures of experts: methods, their grids, recipes and data."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.data import CLASSES, images, written
from edgefed.config.recipes.recipe import DataSection, Recipe
from edgefed.data.devices.partition import partition
from edgefed.learn.base.types import Array
from edgefed.seeds import generator


@dataclass(frozen=True)
class Method:
    """What is trained.

    Attributes:
        algorithm: the recipe's ``[algorithm]`` table, without the server optimiser.
        personal: the preset of the recipe's ``[personal]`` table.
        wider: factor of the network's channels and units; 2 gives about 4 times the bytes.
        tuned_as: the method whose settings are taken; empty for a grid of its own.
    """

    algorithm: Mapping[str, Any]
    personal: str = "none"
    wider: float = 1.0
    tuned_as: str = ""


FEDAVG: Mapping[str, Any] = {"name": "fedavg"}
ADAM = {"server": "adam", "adam_variant": "kingma", "beta2": 0.999, "tau": 1e-8}
"""What makes FedAvg's server optimiser that of ``fedmoe``."""


def _experts(count: int, tuned_as: str = "fedmoe, K = 4", **more: Any) -> Method:
    return Method({"name": "fedmoe", "experts": count, **more}, tuned_as=tuned_as)


METHODS: Mapping[str, Method] = {
    "FedAvg": Method(FEDAVG),
    "FedAvg, 4x bytes": Method(FEDAVG, wider=2.0),
    "FedAvg, 10x bytes": Method(FEDAVG, wider=10**0.5, tuned_as="FedAvg, 4x bytes"),
    "biased FedAvg": Method(FEDAVG, "biased"),
    "LG-FedAvg": Method(FEDAVG, "lg"),
    "FedPer": Method(FEDAVG, "fedper"),
    "IFCA, 4 models": Method({"name": "ifca", "clusters": 4}),
    "fedmoe, K = 2": _experts(2),
    "fedmoe, K = 4": _experts(4, tuned_as=""),
    "fedmoe, K = 10": _experts(10),
    "fedmoe, K = 2, pruned": _experts(2, prune=0.9),
    "fedmoe, K = 4, pruned": _experts(4, prune=0.9),
    "fedmoe, K = 10, pruned": _experts(10, prune=0.9),
}
"""Every method, in the order of the table."""

ABLATIONS: Mapping[str, Method] = {
    "entropy = local": _experts(4, entropy="local"),
    "entropy = direct": _experts(4, entropy="direct"),
    "entropy_weight = 0": _experts(4, entropy_weight=0.0),
    "start = updates": _experts(4, start="updates"),
    "prune = 0.3": _experts(4, prune=0.3),
    "prune = 0.6": _experts(4, prune=0.6),
    "prune = 0.99": _experts(4, prune=0.99),
}
"""Other settings of four experts."""

EVERY: Mapping[str, Method] = {**METHODS, **ABLATIONS}


@dataclass(frozen=True)
class Choice:
    """A setting that methods are tuned over; a table's rate of 0 is the server's."""

    server_learning_rate: float
    learning_rate: float
    table_learning_rate: float = 0.0

    @property
    def words(self) -> str:
        """The choice in words."""
        found = f"server {self.server_learning_rate:g}, local {self.learning_rate:g}"
        return found + (f", table {self.table_learning_rate:g}" if self.table_learning_rate else "")


SERVER_RATES, LOCAL_RATES, TABLE_RATE = (0.01, 0.03), (0.05, 0.15), 0.1


def choices(method: Method) -> dict[str, Choice]:
    """Return a method's settings by their words: four for all, and two more of a table's rate."""
    found = [Choice(*pair) for pair in itertools.product(SERVER_RATES, LOCAL_RATES)]
    if method.algorithm["name"] == "fedmoe":
        found += [Choice(SERVER_RATES[0], rate, TABLE_RATE) for rate in LOCAL_RATES]
    return {choice.words: choice for choice in found}


@dataclass(frozen=True)
class Setup:
    """One experiment.

    Attributes:
        devices, new: that train, and that never do.
        samples: of each device; a quarter of them is held out.
        alpha: concentration of labels, multiplied by each label's share.
        cohort, rounds: of a run.
        batch_size: of local training, one epoch a round.
        model: the recipe's ``[model]`` table for MNIST; digits have a smaller one.
    """

    devices: int = 40
    new: int = 20
    samples: int = 160
    alpha: float = 1.0
    cohort: int = 10
    rounds: int = 50
    batch_size: int = 32
    model: Mapping[str, Any] = field(
        default_factory=lambda: {"name": "lenet5-wide", "channels": [8, 16], "hidden": 64}
    )


DIGITS = Setup(devices=18, new=6, samples=36, cohort=6, batch_size=9, model={"name": "cnn"})
"""The set-up of the digits, of which there are 1,797."""


def recipe_of(setup: Setup, method: Method, choice: Choice, file: Path, seed: int) -> Recipe:
    """Return the recipe of a run."""
    rates = {"server_learning_rate": choice.server_learning_rate}
    if method.algorithm["name"] == "fedmoe":
        server: Mapping[str, Any] = {}
        rates["table_learning_rate"] = choice.table_learning_rate
    else:
        server = ADAM
    simulation = {"devices": setup.devices, "holdout": 0.25, "workers": 1, "engine": "sequential"}
    return Recipe.model_validate(
        {
            "seed": seed,
            "model": widened(setup.model, method.wider),
            "data": {
                "name": "npz",
                "path": str(file.absolute()),
                "normalize": True,
                "partition": "natural",
                "min_samples": 1,
            },
            "algorithm": {**server, **method.algorithm, **rates},
            "personal": {"preset": method.personal},
            "training": {"batch_size": setup.batch_size, "learning_rate": choice.learning_rate},
            "rounds": {"count": setup.rounds, "cohort": setup.cohort},
            "evaluation": {"every": 0, "on": "devices", "weighting": "devices"},
            "simulation": simulation,
            "wire": {"downlink": "fp32", "uplink": "fp32"},
        }
    )


def widened(model: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Return a network with so many times the channels and units."""

    def wider(value: Any) -> Any:
        if isinstance(value, list):
            return [wider(each) for each in value]
        return round(factor * value) if isinstance(value, int) else value

    return {key: wider(value) for key, value in model.items()}


# -- permuted labels ------------------------------------------------------------------------------

STARTS = ("independent", "updates")


@dataclass(frozen=True)
class Permuted:
    """An experiment with devices whose labels are renamed by one of a few permutations.

    Attributes:
        samples: of each device.
        permutations: of labels, of which each device gets one at random.
    """

    devices: int = 20
    samples: int = 250
    permutations: int = 4
    rounds: int = 10
    batch_size: int = 64
    hidden: int = 64


PERMUTED_DIGITS = Permuted(samples=80, batch_size=20)


def permuted_recipe(setup: Permuted, experts: int, start: str, file: Path, seed: int) -> Recipe:
    """Return the recipe of a run in which experts are conditioned on the device."""
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
                "server": "adam",
                "server_learning_rate": 0.01,
            },
            "training": {"epochs": 3, "batch_size": setup.batch_size, "learning_rate": 0.05},
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


# -- data -----------------------------------------------------------------------------------------


def read(data: Path) -> dict[str, Array]:
    """Return images and labels: MNIST's training images, or all digits where it is not there."""
    arrays = images(data)
    parts = ("train",) if (data / "mnist/mnist.npz").exists() else ("train", "test")
    inputs = np.concatenate([arrays[f"x_{part}"] for part in parts])
    labels = np.concatenate([arrays[f"y_{part}"] for part in parts])
    return {"inputs": inputs, "labels": labels.astype(np.int64)}


def halves(arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Return two parts without a common sample: one to choose settings on, and one to test on."""
    order = np.random.default_rng(7).permutation(len(arrays["labels"]))
    parts = zip(("tune", "test"), np.array_split(order, 2), strict=True)
    return {part: {name: each[rows] for name, each in arrays.items()} for part, rows in parts}


def dealt(
    arrays: Mapping[str, Array], sizes: tuple[int, int], each: int, alpha: float, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Deal samples to devices that train and to new ones, by one draw of label proportions.

    Args:
        arrays: ``inputs`` and ``labels``.
        sizes: numbers of devices that train, and of new ones.
        each: samples of a device.
        alpha: concentration, multiplied by the share of each label (Hsu et al.).
        seed: of which samples are taken, and of who has which.

    Returns:
        The arrays of two files, whose ``groups_train`` says which device has a sample.
    """
    count = sum(sizes)
    taken = generator(seed, "samples").permutation(len(arrays["labels"]))[: count * each]
    inputs, labels = arrays["inputs"][taken], arrays["labels"][taken]
    section = DataSection(partition="dirichlet-equal", alpha=alpha)
    parts = partition(section, labels, count, CLASSES, generator(seed, "devices"))
    known, new = (_grouped(inputs, labels, p) for p in (parts[: sizes[0]], parts[sizes[0] :]))
    return known, new


def _grouped(inputs: Array, labels: Array, parts: tuple[Array, ...]) -> dict[str, Any]:
    rows = np.concatenate(parts)
    return {
        "x_train": inputs[rows],
        "y_train": labels[rows],
        "groups_train": np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        "x_test": inputs[:0],
        "y_test": labels[:0],
    }


def permuted_file(setup: Permuted, data: Path, folder: Path, seed: int) -> Path:
    """Write the file of the devices' samples, and of a few to test on; return it."""
    arrays = read(data)
    count = setup.devices * setup.samples
    taken = generator(seed, "samples").permutation(len(arrays["labels"]))[: count + 100]
    train, test = np.split(taken, [len(taken) - 100])
    x, y = arrays["inputs"], arrays["labels"]
    whole = {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}
    return written(folder, "permuted", whole)
