"""Federated mixture of experts: the row of its table that needs only averaging.

Reisser, Louizos, Gavves, Welling: Federated Mixture of Experts, arXiv 2107.06724, Table 1 and
Appendix A. Its FedAvg has Adam on the server.
"""

from __future__ import annotations

from edgefed.reproduce.table import (
    Column,
    Paper,
    Published,
    Row,
    Scaled,
    Score,
    Settings,
    Table,
)

MOE = Paper(
    "moe",
    "Reisser, Louizos, Gavves, Welling",
    "Federated Mixture of Experts",
    "arXiv 2107.06724",
)
PAPER = "the paper"

COMMON: Settings = {
    "algorithm.name": "fedopt",
    "algorithm.server": "adam",
    "algorithm.adam_variant": "kingma",
    "algorithm.server_learning_rate": 0.001,
    "algorithm.beta2": 0.999,
    "algorithm.tau": 1e-8,
    "training.learning_rate": 0.05,
    "training.batch_size": 64,
    "rounds.cohort": 10,
    "wire.downlink": "fp32",
    "wire.uplink": "fp32",
    "evaluation.on": "devices",
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
    "rounds.count": 30_000,
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
SMALL: Settings = {
    **CIFAR10,
    "model.name": "cnn",
    "data.limit": 6000,
    "rounds.count": 60,
    "evaluation.every": 10,
    "simulation.devices": 40,
}
DIGITS: Settings = {
    **COMMON,
    "model.name": "mlp",
    "model.hidden": [32],
    "data.name": "digits",
    "data.partition": "dirichlet-equal",
    "data.alpha": 1.0,
    "algorithm.server_learning_rate": 0.01,
    "rounds.count": 6,
    "rounds.cohort": 5,
    "simulation.devices": 10,
    "simulation.workers": 1,
}
OWN = Score("device_accuracy")
LEFT_OUT = {"other rows": "biased FedAvg, Liang et al. and the mixture are not here"}

TABLES = (
    Table(
        name="moe-table1",
        title="accuracy on devices' own samples; FedAvg with Adam on the server",
        paper=MOE,
        rows=(Row("FedAvg", {}),),
        scales={
            "smoke": Scaled(
                (Column("digits", "CIFAR-10", DIGITS, score=OWN),),
                (1, 2, 3),
                "about a second a run",
                {**LEFT_OUT, "CIFAR-100, FEMNIST": "nothing small enough stands for them"},
            ),
            "small": Scaled(
                (Column("CIFAR-10, small", "CIFAR-10", SMALL, score=OWN),),
                (1, 2, 3),
                "some ten seconds a run on two cores",
                {**LEFT_OUT, "CIFAR-100, FEMNIST": "nothing small enough stands for them"},
            ),
            "paper": Scaled(
                (
                    Column("CIFAR-10", "CIFAR-10", CIFAR10, score=OWN),
                    Column("CIFAR-100", "CIFAR-100", CIFAR100, score=Score("device_accuracy", 10)),
                    Column("FEMNIST", "FEMNIST", FEMNIST, score=Score("device_accuracy", 40)),
                ),
                (1, 2, 3),
                "for a GPU, hours a run; CIFAR-100's 30,000 rounds take days",
                LEFT_OUT,
                exact=True,
            ),
        },
        known="all accuracies of the paper's Table 1",
        published=(
            Published("FedAvg", "CIFAR-10", 69.36, PAPER),
            Published("FedAvg", "CIFAR-100", 49.58, PAPER),
            Published("FedAvg", "FEMNIST", 85.73, PAPER),
        ),
        notes=(
            "devices test on a tenth of their samples, which is our reading of the paper's"
            " accuracy per client",
        ),
    ),
)
