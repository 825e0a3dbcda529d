"""What the study compares: methods, what they are tuned over, and their recipes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefed.config.recipe import Recipe


@dataclass(frozen=True)
class Method:
    """What is trained.

    Attributes:
        algorithm: the recipe's ``[algorithm]`` table, without the server optimiser.
        personal: the preset of the recipe's ``[personal]`` table.
        wider: factor of the network's channels and units; 2 gives about 4 times the bytes.
        tuned_as: the method whose settings are taken; empty for a grid of its own.
        expectation: what the paper leads one to expect on known devices and on a new shard.
    """

    algorithm: Mapping[str, Any]
    personal: str = "none"
    wider: float = 1.0
    tuned_as: str = ""
    expectation: str = ""


FEDAVG: Mapping[str, Any] = {"name": "fedavg"}
ADAM = {"server": "adam", "adam_variant": "kingma", "beta2": 0.999, "tau": 1e-8}
"""What makes FedAvg's server optimiser that of ``fedmoe``."""


def _experts(count: int, **more: Any) -> Mapping[str, Any]:
    return {"name": "fedmoe", "experts": count, **more}


METHODS: Mapping[str, Method] = {
    "FedAvg": Method(FEDAVG),
    "FedAvg, 4x bytes": Method(FEDAVG, wider=2.0),
    "FedAvg, 10x bytes": Method(FEDAVG, wider=10**0.5, tuned_as="FedAvg, 4x bytes"),
    "biased FedAvg": Method(FEDAVG, "biased"),
    "LG-FedAvg": Method(FEDAVG, "lg"),
    "FedPer": Method(FEDAVG, "fedper"),
    "IFCA, 4 models": Method({"name": "ifca", "clusters": 4}),
    "fedmoe, K = 2": Method(_experts(2), tuned_as="fedmoe, K = 4"),
    "fedmoe, K = 4": Method(_experts(4)),
    "fedmoe, K = 10": Method(_experts(10), tuned_as="fedmoe, K = 4"),
    "fedmoe, K = 2, pruned": Method(_experts(2, prune=0.9), tuned_as="fedmoe, K = 4"),
    "fedmoe, K = 4, pruned": Method(_experts(4, prune=0.9), tuned_as="fedmoe, K = 4"),
    "fedmoe, K = 10, pruned": Method(_experts(10, prune=0.9), tuned_as="fedmoe, K = 4"),
}
"""Every method, in the order of the table."""

ABLATIONS: Mapping[str, Method] = {
    "entropy = local": Method(_experts(4, entropy="local"), tuned_as="fedmoe, K = 4"),
    "entropy = direct": Method(_experts(4, entropy="direct"), tuned_as="fedmoe, K = 4"),
    "entropy_weight = 0": Method(_experts(4, entropy_weight=0.0), tuned_as="fedmoe, K = 4"),
    "start = updates": Method(_experts(4, start="updates"), tuned_as="fedmoe, K = 4"),
    "prune = 0.3": Method(_experts(4, prune=0.3), tuned_as="fedmoe, K = 4"),
    "prune = 0.6": Method(_experts(4, prune=0.6), tuned_as="fedmoe, K = 4"),
    "prune = 0.99": Method(_experts(4, prune=0.99), tuned_as="fedmoe, K = 4"),
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


def recipe_of(setup: Setup, method: Method, choice: Choice, file: Path, seed: int) -> Recipe:
    """Return the recipe of a run."""
    kingma = ADAM if method.algorithm["name"] != "fedmoe" else {}
    rate = {"server_learning_rate": choice.server_learning_rate}
    if method.algorithm["name"] == "fedmoe":
        rate["table_learning_rate"] = choice.table_learning_rate
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
            "algorithm": {**kingma, **method.algorithm, **rate},
            "personal": {"preset": method.personal},
            "training": {
                "batch_size": setup.batch_size,
                "learning_rate": choice.learning_rate,
            },
            "rounds": {"count": setup.rounds, "cohort": setup.cohort},
            "evaluation": {"every": 0, "on": "devices", "weighting": "devices"},
            "simulation": {
                "devices": setup.devices,
                "holdout": 0.25,
                "workers": 1,
                "engine": "sequential",
            },
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
