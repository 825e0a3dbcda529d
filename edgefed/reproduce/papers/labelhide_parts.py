"""Building blocks of the DP-LabelHide tables: the paper, its rows, and set-ups at each scale.

Where the paper's value is unknown, a comment marks the value here as our interpretation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefed.reproduce.table import Paper, Row, Scale, Settings

LABELHIDE = Paper(
    "labelhide",
    "Sang, Rabbani, Huang",
    "Balancing Label Imbalance in Federated Environments Using Only Mixup and"
    " Artificially-Labeled Noise",
    "ICPRAI 2024",
)
SOURCE = "the paper"
SEEDS = (1, 2, 3)

# -- rows -----------------------------------------------------------------------------------------


def row(label: str, name: str = "fedavg", **labels: Any) -> Row:
    """Return a row: its label, its algorithm, and keys of the recipe's ``[labels]`` table."""
    return Row(label, {"algorithm.name": name, **{f"labels.{key}": v for key, v in labels.items()}})


MIXES = row("100% Mix/0% Nat", mix_share=1.0)
MIXES_75 = row("75% Mix/25% Nat", mix_share=0.75)
MIXES_50 = row("50% Mix/50% Nat", mix_share=0.5)
MIXES_25 = row("25% Mix/75% Nat", mix_share=0.25)
NOISE = row("0% Mix/100% Nat", mix_share=0.0)
ONLY_75 = row("75% Mix/0% Nat", mix_share=0.75, noise="none")
ONLY_50 = row("50% Mix/0% Nat", mix_share=0.5, noise="none")
ONLY_25 = row("25% Mix/0% Nat", mix_share=0.25, noise="none")
OWN_OTHERS = row("50% Mix/50% Nat, own others", mix_share=0.5, others="any")
NONE = row("No Supplement", count=0)
IID = Row("IID", {**NONE.settings, "data.partition": "iid"})
FEDLC = row("FedLC", "fedlc", count=0)
FEDRS = row("FedRS", "fedrs", count=0)

# -- set-ups --------------------------------------------------------------------------------------

COMMON: Settings = {
    "data.partition": "classes",
    "labels.others": "global",
    "training.optimizer": "adam",
    "training.learning_rate": 0.001,
    "training.epochs": 1,
    "wire.downlink": "fp32",
    "wire.uplink": "fp32",
    "simulation.devices": 10,
}
"""Section 5 of the paper. Adam's betas are lost: 0.9 and 0.999, the defaults."""

PAPER: Settings = {
    **COMMON,
    "model.name": "resnet18",
    "data.normalize": True,  # our reading: the paper does not tell
    "training.batch_size": 128,
    "rounds.count": 200,  # stated for MNIST only; our reading for the others
}
SMALL: Settings = {
    **COMMON,
    "model.name": "cnn",
    "data.name": "mnist",
    "data.limit": 1000,
    "training.batch_size": 32,
    "rounds.count": 30,
    "evaluation.every": 3,
}
SMOKE: Settings = {
    **COMMON,
    "model.name": "mlp",
    "model.hidden": [32],
    "data.name": "digits",
    "data.limit": 400,
    "labels.noise": "spectrum",
    "training.batch_size": 16,
    "training.learning_rate": 0.01,
    "rounds.count": 6,
    "simulation.workers": 1,
}
SETUPS: Mapping[Scale, Settings] = {"smoke": SMOKE, "small": SMALL, "paper": PAPER}

CLASS_SIZES: Mapping[Scale, int] = {"smoke": 40, "small": 100}
"""Training samples of a label, on average, at the scales whose data is limited."""

STANDS_FOR: Mapping[Scale, str] = {"smoke": "digits", "small": "MNIST, small"}
"""What stands for the paper's data."""

TAKES: Mapping[Scale, str] = {
    "smoke": "about a second a run",
    "small": "some ten seconds a run on two cores, and minutes to draw the noise of a seed",
    "paper": "as published; for a GPU, an hour a run and more, and hours to draw the noise",
}

NOTES = (
    "a supplement is of so many percent of a label's samples in all training data, for each label"
    " that a device lacks, whatever C is",
    "the other samples of a mix are of any device (labels.others = global), because with C = 1 a"
    " device has samples of one label only; with 'own others' they are the mixing device's, so"
    " that such a mix is of one label",
    "the scale of the noise on mixes is lost: 16/255 here",
    "at smoke, natural noise is of the spectrum generator, which is faster",
)
GRID = (
    "the published accuracies are multiples of 1/1580 with few exceptions, so about 1580 samples"
    " or fewer were tested: differences below 3 points mean nothing"
)
