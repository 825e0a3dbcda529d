"""What the study compares: methods, what their settings are chosen from, and their recipes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.matching_study.samples import Part, image_file, role_file


@dataclass(frozen=True)
class Setup:
    """One experiment.

    Attributes:
        name: ``mnist``, ``perceptron`` or ``shakespeare``.
        model: the recipe's ``[model]`` table.
        layers: of the model, and so exchanges of a pass of matched averaging.
        devices: that train.
        size: training images of all devices, or characters of each role.
        data: keys of the recipe's ``[data]`` table beside name and path.
        training: keys of the recipe's ``[training]`` table.
        rates: learning rates that settings are chosen from.
        lengths: epochs of local training in a round, to those in the whole run.
        one_shot: epochs of local training in runs of one round.
        methods: names of those compared.
        milestones: rounds, or rounds of FedAvg whose bytes or epochs a method may use, at which
            the tables tell its accuracy.
        tuning_share: share of a run's epochs after which settings are compared.
    """

    name: str
    model: Mapping[str, Any]
    layers: int
    devices: int
    size: int
    data: Mapping[str, Any]
    training: Mapping[str, Any]
    rates: tuple[float, ...]
    lengths: Mapping[int, int]
    one_shot: tuple[int, ...] = ()
    methods: tuple[str, ...] = ("FedAvg", "FedProx", "pooled")
    milestones: tuple[int, ...] = (1, 2, 4, 8, 16, 40)
    tuning_share: float = 0.25

    def file(self, data: Path, folder: Path, part: Part, seed: int) -> Path:
        """Return the file of a run's data, which is written if it is not there."""
        if self.name == "shakespeare":
            return role_file(data, folder, part, self.devices, self.size, seed)
        return image_file(data, folder, part, self.size, seed)


VARIANTS = (
    "FedMA, gamma 1",
    "FedMA, last rate 0.1",
    "FedMA, samples",
    "FedMA, no growth",
    "FedMA, independent",
    "no retraining",
    "no retraining, independent",
)

MNIST = Setup(
    "mnist",
    {"name": "lenet5-wide", "channels": [8, 16], "hidden": 64},
    4,
    8,
    2000,
    {"name": "npz", "normalize": True, "partition": "dirichlet", "alpha": 0.5},
    {"batch_size": 32, "momentum": 0.9},
    (0.003, 0.01, 0.03),
    {1: 40, 5: 80, 20: 160},
    (5, 20),
    ("FedAvg", "FedProx", "FedMA", *VARIANTS, "pooled"),
)
PERCEPTRON = Setup(
    "perceptron",
    {"name": "mlp", "hidden": [100]},
    2,
    MNIST.devices,
    MNIST.size,
    MNIST.data,
    MNIST.training,
    MNIST.rates,
    {},
    (20,),
    ("FedAvg", "FedMA", *VARIANTS, "PFNM", "PFNM, independent", "pooled"),
)
SHAKESPEARE = Setup(
    "shakespeare",
    {"name": "lstm", "layers": 1, "hidden": 64},
    3,
    8,
    8000,
    {"name": "shakespeare", "partition": "natural", "window": 20, "stride": 8},
    {"batch_size": 50, "momentum": 0.9},
    (0.15, 0.5, 1.0),
    {1: 15, 5: 45},
    methods=("FedAvg", "FedProx", "FedMA", "FedMA, independent"),
    milestones=(1, 3, 6, 9, 15),
    tuning_share=0.5,
)
SETUPS: Mapping[str, Setup] = {each.name: each for each in (MNIST, PERCEPTRON, SHAKESPEARE)}


@dataclass(frozen=True)
class Method:
    """What is trained.

    Attributes:
        algorithm: the recipe's ``[algorithm]`` table.
        grid: keys of ``algorithm`` that are chosen, each with its values.
        passes: whether a round is a pass, which trains once for each layer.
        pooled: whether one device has all samples.
        lengths: epochs of a round in runs of many rounds; empty for all of the set-up.
        part: of the study in which it is, ``one-shot`` or ``rounds``; empty for both.
        rate_as: the method whose learning rate is taken; empty for its own.
    """

    algorithm: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    passes: bool = False
    pooled: bool = False
    lengths: tuple[int, ...] = ()
    part: str = ""
    rate_as: str = ""


def _fedma(**more: Any) -> dict[str, Any]:
    return {"name": "fedma", "layer_codec": "fp32", **more}


GAMMAS = {"gamma": (7.0, 0.001)}
METHODS: Mapping[str, Method] = {
    "FedAvg": Method({"name": "fedavg"}),
    "FedProx": Method({"name": "fedprox"}, {"mu": (0.001, 0.01, 0.1)}, rate_as="FedAvg"),
    "FedMA": Method(_fedma(), GAMMAS, passes=True),
    "FedMA, gamma 1": Method(_fedma(gamma=1.0), passes=True, lengths=(5, 20), rate_as="FedMA"),
    "FedMA, last rate 0.1": Method(
        _fedma(gamma=1.0, last_learning_rate=0.1), passes=True, lengths=(5,), rate_as="FedMA"
    ),
    "FedMA, samples": Method(
        _fedma(gamma=1.0, last_layer="samples"),
        passes=True,
        lengths=(5,),
        part="rounds",
        rate_as="FedMA",
    ),
    "FedMA, no growth": Method(
        _fedma(most_growth=1.0), passes=True, lengths=(5, 20), part="rounds", rate_as="FedMA"
    ),
    "FedMA, independent": Method(
        _fedma(initial="independent"), GAMMAS, passes=True, lengths=(5,), rate_as="FedMA"
    ),
    "no retraining": Method(_fedma(retrain_epochs=0), GAMMAS, part="one-shot", rate_as="FedAvg"),
    "no retraining, independent": Method(
        _fedma(retrain_epochs=0, initial="independent"), GAMMAS, part="one-shot", rate_as="FedAvg"
    ),
    "PFNM": Method({"name": "pfnm"}, part="one-shot", rate_as="FedAvg"),
    "PFNM, independent": Method(
        {"name": "pfnm", "initial": "independent"}, part="one-shot", rate_as="FedAvg"
    ),
    "pooled": Method({"name": "fedavg"}, pooled=True, lengths=(5,)),
}
"""Every method, in the order of the tables."""


VARIATIONS: Mapping[str, Mapping[str, Any]] = {
    "as above": {},
    "gamma = 0.001": {"gamma": 0.001},
    "gamma = 0.001, independent": {"gamma": 0.001, "initial": "independent"},
    "gamma = 1": {"gamma": 1.0},
    "sigma = sigma0 = 1": {"sigma": 1.0, "sigma0": 1.0},
    "last_learning_rate = 0.1": {"last_learning_rate": 0.1},
    "last_layer = samples": {"last_layer": "samples"},
    "weighting = examples": {"weighting": "examples"},
    "average = map": {"average": "map"},
    "reference = true": {"reference": True},
}
"""Other settings of FedMA, which are compared on the samples kept apart."""

VARIED = 5
"""Epochs of local training of these runs."""


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

    @property
    def words(self) -> str:
        """The case in words."""
        return f"{self.method}, E = {self.epochs}, {self.total or 'one round'}"

    def rounds(self, setup: Setup, share: float = 1.0) -> int:
        """Return the rounds of a run with this share of the epochs."""
        each = self.epochs * (setup.layers if METHODS[self.method].passes else 1)
        return max(1, round(share * self.total / each))


@dataclass(frozen=True)
class Choice:
    """Settings that a method is run with.

    Attributes:
        rate: the learning rate.
        more: keys of the recipe's ``[algorithm]`` table.
    """

    rate: float
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The choice in words."""
        return ", ".join([f"rate {self.rate:g}", *(f"{k} {v}" for k, v in self.more.items())])


def choices(setup: Setup, method: Method) -> dict[str, Choice]:
    """Return the settings that a method's are chosen from, by their words."""
    values = itertools.product(setup.rates, itertools.product(*method.grid.values()))
    found = [Choice(rate, dict(zip(method.grid, each, strict=True))) for rate, each in values]
    return {choice.words: choice for choice in found}


def recipe_keys(
    setup: Setup, case: Case, choice: Choice, file: Path, seed: int, share: float = 1.0
) -> dict[str, Any]:
    """Return the keys of the recipe of a run with this share of the case's epochs."""
    method = METHODS[case.method]
    return {
        "seed": seed,
        "model": dict(setup.model),
        "data": {**setup.data, "path": str(file.absolute()), **_pooled(method)},
        "algorithm": {**method.algorithm, **choice.more},
        "training": {**setup.training, "epochs": case.epochs, "learning_rate": choice.rate},
        "rounds": {"count": case.rounds(setup, share)},
        "simulation": {
            "devices": 1 if method.pooled else setup.devices,
            "workers": 1,
            "engine": "sequential",
        },
        "wire": {"downlink": "fp32", "uplink": "fp32"},
    }


def _pooled(method: Method) -> dict[str, Any]:
    return {"partition": "iid"} if method.pooled else {}


def cases(setup: Setup, part: str) -> list[Case]:
    """Return the cases of a part, ``one-shot`` or ``rounds``, in the order of the tables.

    FedAvg in one round also trains for as long as FedMA's longest pass.
    """
    methods = [each for each in setup.methods if METHODS[each].part in ("", part)]
    if part == "one-shot":
        found = [Case(method, epochs) for epochs in setup.one_shot for method in methods]
        longest = setup.layers * max(setup.one_shot, default=0)
        return [*found, *([Case("FedAvg", longest)] if longest else [])]
    return [
        Case(method, epochs, total)
        for epochs, total in setup.lengths.items()
        for method in methods
        if epochs in (METHODS[method].lengths or [epochs])
    ]
