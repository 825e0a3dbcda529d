"""Settings of the study of label supplements: methods, optimisers, recipes, and a network."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from edgefed.config.recipes.recipe import Recipe

NORMALISED = f"{__name__}:normalised_lenet5"
"""The name of the network in a recipe."""

TRAININGS: Mapping[str, Mapping[str, Any]] = {
    "Adam": {"optimizer": "adam", "learning_rate": 0.001, "batch_size": 32},
    "Adam, rate 0.0001": {"optimizer": "adam", "learning_rate": 0.0001, "batch_size": 32},
    "SGD, rate 0.05": {"learning_rate": 0.05, "batch_size": 32},
    "SGD, rate 0.1": {"learning_rate": 0.1, "batch_size": 32},
    "SGD, rate 0.05, batches of 16": {"learning_rate": 0.05, "batch_size": 16},
}
"""The optimisers, by the words for them; ``Adam`` has the paper's rate, the last is the default."""


@dataclass(frozen=True)
class Method:
    """What devices train with.

    Attributes:
        labels: the recipe's ``[labels]`` table.
        algorithm: its name.
        grid: settings of the algorithm that it is tuned over.
        iid: whether every device has all labels.
        published: accuracy in table 1 of the paper.
    """

    labels: Mapping[str, Any] = field(default_factory=dict)
    algorithm: str = "fedavg"
    grid: tuple[Mapping[str, Any], ...] = ({},)
    iid: bool = False
    published: float | None = None


def _supplied(
    mixes: float, others: str = "any", noise: str = "oriented", amount: float = 0.1, **more: Any
) -> dict[str, Any]:
    return {"supplement": amount, "mix_share": mixes, "others": others, "noise": noise, **more}


def _grid(key: str, *values: float, **more: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple({key: value, **more} for value in values)


METHODS: Mapping[str, Method] = {
    "none": Method(published=0.235),
    "noise": Method(_supplied(0), published=0.603),
    "noise, spectrum": Method(_supplied(0, noise="spectrum")),
    "noise, white": Method(_supplied(0, noise="white")),
    "half": Method(_supplied(0.5), published=0.939),
    "half, spectrum": Method(_supplied(0.5, noise="spectrum")),
    "half, white": Method(_supplied(0.5, noise="white")),
    "half, unfilled": Method(_supplied(0.5, noise="none")),
    "half, global": Method(_supplied(0.5, "global"), published=0.939),
    "mixes": Method(_supplied(1), published=0.970),
    "mixes, global": Method(_supplied(1, "global"), published=0.970),
    "samples": Method(_supplied(1, width=1, noise_scale=0.0)),
    "IID": Method(iid=True, published=0.986),
    "FedProx": Method(algorithm="fedprox", grid=_grid("mu", 0.01, 0.1, 1.0)),
    "FedLC": Method(
        algorithm="fedlc",
        grid=(
            {"calibration": 1.0, "absent": "mask"},
            *_grid("calibration", 0.003, 0.01, 0.03, absent="margin"),
        ),
    ),
    "FedRS": Method(algorithm="fedrs", grid=_grid("alpha", 0.1, 0.5, 0.9)),
    "NaiveMix": Method(algorithm="naivemix", grid=_grid("mixup_ratio", 0.2, 0.5, 0.8)),
    "FedMix": Method(
        algorithm="fedmix",
        grid=(
            *_grid("mixup_ratio", 0.05, 0.2),
            *_grid("mixup_ratio", 0.05, 0.2, taylor_labels="mixed"),
        ),
    ),
}
"""Every method; ``half`` is half mixes and half noise."""

ORDER = ("none", "noise", "half", "mixes", "IID")
"""Methods from the worst to the best, as published."""


@dataclass(frozen=True)
class Setup:
    """One experiment.

    Attributes:
        labels: on each device.
        trainings: optimisers that each method is tuned over.
        methods: that are compared.
        tuning: seeds of the runs that settings are chosen by.
        rounds: of a run; the model is evaluated after every second.
        network: a network; empty for LeNet-5, or a smaller one for digits.
        digits: whether scikit-learn's digits are used even where MNIST is.
        normalize: whether inputs are normalised.
        train, apart, tested: samples that devices train on, that are held out, and of the test set.
    """

    labels: int
    trainings: tuple[str, ...]
    methods: tuple[str, ...]
    tuning: tuple[int, ...] = (101,)
    rounds: int = 40
    network: str = ""
    digits: bool = False
    normalize: bool = True
    train: int = 6000
    apart: int = 2000
    tested: int = 5000


DEVICES = 10
SUPPLEMENTS = ("none", "noise", "half", "mixes", "IID")
SKEWED = ("FedLC", "FedRS", "NaiveMix")
"""Methods for skewed labels, without supplements."""

SETUPS: Mapping[str, Setup] = {
    "one-adam": Setup(
        1,
        ("Adam",),
        (
            *("none", "noise", "noise, spectrum", "noise, white"),
            *("half", "half, spectrum", "half, white", "half, unfilled", "half, global"),
            *("mixes", "mixes, global", "samples", "IID"),
            *("FedProx", *SKEWED, "FedMix"),
        ),
    ),
    "one-sgd": Setup(1, ("SGD, rate 0.05", "SGD, rate 0.1"), (*SUPPLEMENTS, *SKEWED)),
    "two-sgd": Setup(2, ("SGD, rate 0.1",), (*SUPPLEMENTS, *SKEWED[1:])),
    "two-adam": Setup(2, ("Adam",), ("none", "noise", "half")),
    "one-slow": Setup(1, ("Adam, rate 0.0001",), ("none", "noise")),
    "one-norm": Setup(1, ("Adam",), ("none", "noise"), network=NORMALISED),
    "one-long": Setup(1, ("Adam",), ("none", "noise"), rounds=120),
    "cnn-adam": Setup(1, ("Adam",), ("none", "noise"), network="cnn"),
    "cnn-sgd": Setup(1, ("SGD, rate 0.05", "SGD, rate 0.1"), ("none", "noise"), network="cnn"),
    "cnn-digits": Setup(
        1,
        ("SGD, rate 0.05, batches of 16",),
        ("none", "noise"),
        network="cnn",
        digits=True,
        normalize=False,
        train=1400,
        apart=0,
        tested=397,
    ),
}


def choices(method: Method, trainings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return everything that a method is tuned over, by the words for it."""
    found = {}
    for training, own in itertools.product(trainings, method.grid):
        words = ", ".join([training, *(f"{key} = {value}" for key, value in own.items())])
        found[words] = {"training": training, **own}
    return found


def recipe_of(
    setup: Setup, model: str, file: Path, method: Method, chosen: Mapping[str, Any]
) -> Recipe:
    """Return the recipe of a method with a setting of its grid and an optimiser."""
    own = {key: value for key, value in chosen.items() if key != "training"}
    partition = {"partition": "classes", "classes_per_device": setup.labels}
    return Recipe.model_validate(
        {
            "model": {"name": model},
            "data": {
                "name": "npz",
                "path": str(file.absolute()),
                "normalize": setup.normalize,
                **({"partition": "iid"} if method.iid else partition),
            },
            "algorithm": {"name": method.algorithm, **own},
            "training": TRAININGS[chosen["training"]],
            "labels": method.labels,
            "rounds": {"count": setup.rounds},
            "evaluation": {"every": 2},
            "simulation": {"devices": DEVICES, "workers": 1},
            "wire": {"downlink": "fp32", "uplink": "fp32"},
        }
    )


# -- a network ------------------------------------------------------------------------------------


def normalised_lenet5(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Return LeNet-5 for 28×28 pixels with batch normalisation.

    The running statistics are averaged like weights.
    """
    return nn.Sequential(
        *_halved(shape[0], 6),
        *_halved(6, 16),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def _halved(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 5), nn.BatchNorm2d(after), nn.MaxPool2d(2), nn.ReLU()]
