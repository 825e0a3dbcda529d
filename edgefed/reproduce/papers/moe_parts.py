"""Building blocks of the mixture-of-experts tables: the paper, rows, and set-ups at each scale.

Reisser, Louizos, Gavves, Welling: Federated Mixture of Experts, arXiv 2107.06724, Appendix A. Its
FedAvg has Adam on the server. It calls its method FedMix; here it is FedMoE, as another paper has a
FedMix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgefed.reproduce.table import Paper, Row, Scale, Settings

MOE = Paper(
    "moe",
    "Reisser, Louizos, Gavves, Welling",
    "Federated Mixture of Experts",
    "arXiv 2107.06724",
)
SOURCE = "the paper"
SEEDS = (1, 2, 3)

# -- rows -----------------------------------------------------------------------------------------

SERVER: Settings = {
    "algorithm.name": "fedopt",
    "algorithm.server": "adam",
    "algorithm.adam_variant": "kingma",
    "algorithm.beta2": 0.999,
    "algorithm.tau": 1e-8,
}
"""Adam with the defaults of its paper, as ``fedmoe`` has it; its step size is the set-up's."""


def averaged(label: str, **personal: Any) -> Row:
    """Return a row of FedAvg with keys of the recipe's ``[personal]`` table."""
    return Row(label, {**SERVER, **{f"personal.{key}": value for key, value in personal.items()}})


def experts(label: str, count: int, **settings: Any) -> Row:
    """Return a row of ``fedmoe`` with so many experts."""
    own = {f"algorithm.{key}": value for key, value in settings.items()}
    rate = {"algorithm.table_learning_rate": 0.0}  # the paper has one rate for all
    return Row(label, {"algorithm.name": "fedmoe", "algorithm.experts": count, **rate, **own})


def collecting(row: Row) -> Row:
    """Return a row whose coordinator has the devices' gates in the end."""
    return Row(row.label, {**row.settings, "algorithm.collect_gates": True})


FEDAVG = averaged("FedAvg")
BIASED = averaged("biased FedAvg", preset="biased")
LOCAL_GLOBAL = averaged("Liang et al.", preset="lg")
FEDPER = averaged("FedPer", preset="fedper")
IFCA = Row("IFCA, 4 models", {**SERVER, "algorithm.name": "ifca", "algorithm.clusters": 4})
DOUBLE = averaged("FedAvg, bytes of K=2")
FOURFOLD = averaged("FedAvg, bytes of K=4")
TWO = experts("FedMoE K=2", 2)
FOUR = experts("FedMoE K=4", 4)
TEN = experts("FedMoE K=10", 10)
FOUR_PRUNED = experts("FedMoE K=4, eta=0.99", 4, prune=0.99)
TEN_PRUNED = experts("FedMoE K=10, eta=0.9", 10, prune=0.9)
FOUR_BIASED = experts("biased FedMoE K=4", 4, personal_bias=True)

# -- set-ups --------------------------------------------------------------------------------------

COMMON: Settings = {
    "algorithm.server_learning_rate": 0.001,
    "training.learning_rate": 0.05,
    "training.batch_size": 64,
    "rounds.cohort": 10,
    "rounds.test_cohort": 0,
    "wire.downlink": "fp32",
    "wire.uplink": "fp32",
    "evaluation.on": "devices",
    "evaluation.weighting": "devices",
    "simulation.holdout": 0.1,
}
CIFAR10: Settings = {
    **COMMON,
    "model.name": "lenet5-wide",
    "data.name": "cifar10",
    "data.normalize": True,
    "data.partition": "dirichlet-equal",
    "data.alpha": 1.0,
    "rounds.count": 2000,
    "evaluation.every": 50,
    "simulation.devices": 100,
}
CIFAR100: Settings = {
    **COMMON,
    "model.name": "resnet20",
    "model.norm": "group",
    "data.name": "cifar100",
    "data.normalize": True,
    "data.partition": "pachinko",
    "data.crop": 4,
    "data.flip": True,
    "training.batch_size": 20,
    "rounds.count": 6000,
    "evaluation.every": 100,
    "simulation.devices": 500,
}
FEMNIST: Settings = {
    **COMMON,
    "model.name": "lenet5-wide",
    "data.name": "femnist",
    "data.partition": "natural",
    "training.batch_size": 20,
    "rounds.count": 6000,
    "evaluation.every": 50,
    "simulation.devices": 3500,
}
MNIST: Settings = {
    **CIFAR10,
    "data.name": "mnist",
}
SMALL: Settings = {
    **MNIST,
    "model.name": "mlp",
    "model.hidden": [64],
    "data.limit": 6000,
    "algorithm.server_learning_rate": 0.01,
    "training.batch_size": 16,
    "rounds.count": 60,
    "evaluation.every": 20,
    "simulation.devices": 40,
    "simulation.holdout": 0.2,
}
DIGITS: Settings = {
    **COMMON,
    "model.name": "mlp",
    "model.hidden": [32],
    "data.name": "digits",
    "data.partition": "dirichlet-equal",
    "data.alpha": 1.0,
    "algorithm.server_learning_rate": 0.01,
    "training.batch_size": 16,
    "rounds.count": 6,
    "rounds.cohort": 5,
    "evaluation.every": 0,
    "simulation.devices": 10,
    "simulation.holdout": 0.2,
    "simulation.workers": 1,
}
SETUPS: Mapping[Scale, Settings] = {"smoke": DIGITS, "small": SMALL, "paper": CIFAR10}

TABLE_RATES: Mapping[Scale, float] = {"smoke": 0.3, "small": 0.03, "paper": 0.0}
"""Step sizes of the table: times the rounds, they are about the paper's, 2000 of 0.001; 0 is that
of the experts."""


def with_table_rates(scale: Scale, rows: Iterable[Row]) -> dict[str, Settings]:
    """Return what the rows with experts have of their own at a scale, by label."""
    own = {"algorithm.table_learning_rate": TABLE_RATES[scale]}
    return {row.label: own for row in rows if row.settings["algorithm.name"] == "fedmoe"}


STANDS_FOR: Mapping[Scale, str] = {"smoke": "digits", "small": "MNIST, small"}
"""What stands for the paper's data."""

TAKES: Mapping[Scale, str] = {
    "smoke": "seconds a run",
    "small": "some ten seconds a run on two cores",
    "paper": "for a GPU, hours a run",
}

NOTES = (
    "devices test on a tenth of their samples, at smoke and small on a fifth, all of them equally,"
    " which is our reading of the paper's average accuracy across clients",
    "the server's step size is Adam's default 0.001; at smoke and small, whose rounds are few,"
    " 0.01, and for the table of shares 0.3 and 0.03, which times the rounds is about the paper's",
)
