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
from typing import Any, Literal

import numpy as np

from benchmarks.studies.data import images, written
from edgefed.config.recipes.recipe import Recipe
from edgefed.files.writing import write_atomic
from edgefed.seeds import generator

Part = Literal["tune", "test"]
HELD_OUT, TESTED = 2000, 5000
"""Most images that choose settings, and those of the test set that are used."""


@dataclass(frozen=True)
class Setup:
    """One experiment.

    Attributes:
        model: the recipe's ``[model]`` table.
        layers: of the model, and so exchanges of a pass of matched averaging.
        devices: that train.
        size: training images of all devices, or characters of each role.
        data, training: keys of the recipe's tables.
        rates: learning rates that settings are chosen from.
        lengths: epochs of local training in a round, to those in the whole run.
        one_shot: epochs of local training in runs of one round.
        methods: names of those compared.
        milestones: rounds, or rounds of FedAvg whose bytes or epochs a method may use, at which
            the tables have its accuracy.
        tuning_share: share of a run's epochs after which settings are compared.
    """

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
        make = role_file if self.data["name"] == "shakespeare" else image_file
        return make(data, folder, part, self.devices, self.size, seed)


VARIANTS = (
    *("FedMA, gamma 1", "FedMA, last rate 0.1", "FedMA, samples", "FedMA, no growth"),
    *("FedMA, independent", "no retraining", "no retraining, independent"),
)
MNIST = Setup(
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
SETUPS: Mapping[str, Setup] = {
    "mnist": MNIST,
    "perceptron": PERCEPTRON,
    "shakespeare": SHAKESPEARE,
}


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


GAMMAS = {"gamma": (7.0, 0.001)}
ONCE: Mapping[str, Any] = {"part": "one-shot", "rate_as": "FedAvg"}


def _fedma(grid: Mapping[str, Any], *lengths: int, part: str = "", **more: Any) -> Method:
    """Return FedMA with other settings and, unless they are chosen all, FedMA's learning rate."""
    algorithm = {"name": "fedma", "layer_codec": "fp32", **more}
    rate_as = "FedMA" if lengths else ""
    return Method(algorithm, grid, passes=True, lengths=lengths, part=part, rate_as=rate_as)


def _unretrained(**more: Any) -> Method:
    algorithm = {"name": "fedma", "layer_codec": "fp32", "retrain_epochs": 0, **more}
    return Method(algorithm, GAMMAS, **ONCE)


METHODS: Mapping[str, Method] = {
    "FedAvg": Method({"name": "fedavg"}),
    "FedProx": Method({"name": "fedprox"}, {"mu": (0.001, 0.01, 0.1)}, rate_as="FedAvg"),
    "FedMA": _fedma(GAMMAS),
    "FedMA, gamma 1": _fedma({}, 5, 20, gamma=1.0),
    "FedMA, last rate 0.1": _fedma({}, 5, gamma=1.0, last_learning_rate=0.1),
    "FedMA, samples": _fedma({}, 5, part="rounds", gamma=1.0, last_layer="samples"),
    "FedMA, no growth": _fedma({}, 5, 20, part="rounds", most_growth=1.0),
    "FedMA, independent": _fedma(GAMMAS, 5, initial="independent"),
    "no retraining": _unretrained(),
    "no retraining, independent": _unretrained(initial="independent"),
    "PFNM": Method({"name": "pfnm"}, **ONCE),
    "PFNM, independent": Method({"name": "pfnm", "initial": "independent"}, **ONCE),
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

    def round_epochs(self, setup: Setup) -> int:
        """Return the epochs of local training in one round."""
        return self.epochs * (setup.layers if METHODS[self.method].passes else 1)

    def rounds(self, setup: Setup, share: float = 1.0) -> int:
        """Return the rounds of a run with this share of the epochs."""
        return max(1, round(share * self.total / self.round_epochs(setup)))


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


def recipe_of(
    setup: Setup, case: Case, choice: Choice, file: Path, seed: int, share: float = 1.0
) -> Recipe:
    """Return the recipe of a run with this share of the case's epochs."""
    method = METHODS[case.method]
    partition = {"partition": "iid"} if method.pooled else {}
    devices = 1 if method.pooled else setup.devices
    return Recipe.model_validate(
        {
            "seed": seed,
            "model": dict(setup.model),
            "data": {**setup.data, "path": str(file.absolute()), **partition},
            "algorithm": {**method.algorithm, **choice.more},
            "training": {**setup.training, "epochs": case.epochs, "learning_rate": choice.rate},
            "rounds": {"count": case.rounds(setup, share)},
            "simulation": {"devices": devices, "workers": 1, "engine": "sequential"},
            "wire": {"downlink": "fp32", "uplink": "fp32"},
        }
    )


# -- data -----------------------------------------------------------------------------------------


@cache
def image_file(data: Path, folder: Path, part: Part, devices: int, count: int, seed: int) -> Path:
    """Write ``count`` training images that a seed draws, and the images to score on.

    Args:
        data: folder of ``mnist/mnist.npz``; without it, scikit-learn's digits are used.
        folder: of the files that are written.
        part: whether settings are chosen on the file.
        devices: that share the images.
        count: training images; fewer where the half has fewer.
        seed: of the draw.
    """
    del devices
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
