"""PFNM on MNIST: once and with rounds, and the grid of its prior's parameters.

Yurochkin, Agarwal, Ghosh, Greenewald, Hoang, Khazaeni: Bayesian Nonparametric Federated Learning of
Neural Networks, ICML 2019. Its numbers are lost; set-ups are from its published code.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from edgefed.reproduce.papers.fedma_parts import ALONE, ONCE
from edgefed.reproduce.table import (
    SCALES,
    Column,
    Paper,
    Row,
    Scale,
    Scaled,
    Settings,
    Table,
    above,
    no_worse,
)

PAPER = Paper(
    "pfnm",
    "Yurochkin, Agarwal, Ghosh, Greenewald, Hoang, Khazaeni",
    "Bayesian Nonparametric Federated Learning of Neural Networks",
    "ICML 2019",
)
SEEDS = (1, 2, 3)
TAKES: Mapping[Scale, str] = {
    "smoke": "less than a second a run",
    "small": "some seconds a run on two cores",
    "paper": "about a minute a run on two cores",
}

# -- set-ups --------------------------------------------------------------------------------------

MNIST: Settings = {
    "model.name": "mlp",
    "model.hidden": [100],
    "data.name": "mnist",
    "training.optimizer": "adam",
    "training.learning_rate": 0.01,
    "training.weight_decay": 1e-6,
    "training.batch_size": 32,
    "training.epochs": 10,
    "rounds.count": 10,
    "wire.downlink": "fp32",
    "wire.uplink": "fp32",
    "simulation.devices": 10,
}
DIGITS: Settings = {
    **MNIST,
    "model.hidden": [24],
    "data.name": "digits",
    "data.min_samples": 5,
    "training.batch_size": 16,
    "training.epochs": 4,
    "rounds.count": 2,
    "simulation.devices": 5,
    "simulation.workers": 1,
}
SETUPS: Mapping[Scale, Settings] = {
    "smoke": DIGITS,
    "small": {**MNIST, "data.limit": 6000, "rounds.count": 5},
    "paper": MNIST,
}
LABELS: Mapping[Scale, str] = {"smoke": "digits", "small": "MNIST, small", "paper": "MNIST"}
EQUAL, SKEWED = "equal", "Dirichlet 0.5"
PARTITIONS: Mapping[str, Settings] = {
    EQUAL: {"data.partition": "iid"},
    SKEWED: {"data.partition": "dirichlet", "data.alpha": 0.5},
}
NOTES = (
    "10 devices and 10 rounds are our reading; the published code has 10 local epochs, batches of"
    " 32, Adam with a step of 0.01 and 100 hidden units",
    "Adam is here without its AMSGrad variant",
)

# -- once and with rounds -------------------------------------------------------------------------

APART: Settings = {"algorithm.initial": "independent"}
PFNM = Row("PFNM", {"algorithm.name": "pfnm", **APART})
PFNM_ONCE = Row("PFNM, one round", {**PFNM.settings, **ONCE})
FEDAVG = Row("FedAvg", {"algorithm.name": "fedavg"})
FEDAVG_ONCE = Row("FedAvg, one round", {**FEDAVG.settings, **ONCE})
ENSEMBLE = Row("Ensemble", {"algorithm.name": "ensemble", **APART, **ONCE})
POOLED = Row("pooled training", ALONE)


def _mnist() -> Table:
    return Table(
        name="pfnm-mnist",
        title="MLP on MNIST, equal and unequal labels: one round and several",
        paper=PAPER,
        rows=(PFNM_ONCE, FEDAVG_ONCE, ENSEMBLE, PFNM, FEDAVG, POOLED),
        scales={
            scale: Scaled(tuple(_column(scale, of) for of in PARTITIONS), SEEDS, TAKES[scale])
            for scale in SCALES
        },
        known="which experiments there are",
        claims=(
            above(PFNM_ONCE.label, FEDAVG_ONCE.label, SKEWED),
            above(PFNM.label, PFNM_ONCE.label),
            no_worse(PFNM.label, FEDAVG.label),
            above(POOLED.label, PFNM.label),
        ),
        notes=(
            *NOTES,
            "PFNM estimates its variances here; pfnm-grid has the published values",
            "devices of FedAvg begin with the same weights, those of PFNM and of the ensemble each"
            " with weights of their own",
            "pooled training: one device with the samples of all",
        ),
    )


def _column(scale: Scale, of: str) -> Column:
    setup = SETUPS[scale]
    pooled = {POOLED.label: {"data.parts_per_device": setup["simulation.devices"]}}
    return Column(f"{LABELS[scale]}, {of}", of, setup, PARTITIONS[of], pooled)


# -- the grid -------------------------------------------------------------------------------------

GAMMAS, SIGMAS, SIGMAS0 = (1.0, 1e-3, 50.0), (1.0, 0.1, 0.5), (1.0, 10.0)
ESTIMATED = Row("estimated variances", PFNM_ONCE.settings)
BY_GAMMA = tuple(
    Row(
        f"gamma = {gamma:g}",
        {
            **PFNM_ONCE.settings,
            "algorithm.reference": True,
            "algorithm.most_growth": 10.0,
            "algorithm.gamma": gamma,
        },
    )
    for gamma in GAMMAS
)


def _grid() -> Table:
    return Table(
        name="pfnm-grid",
        title="PFNM in one round: gamma, sigma and sigma0",
        paper=PAPER,
        rows=(ESTIMATED, *BY_GAMMA),
        scales={
            scale: Scaled(
                tuple(_variances(scale, *pair) for pair in product(SIGMAS, SIGMAS0)),
                SEEDS,
                TAKES[scale],
            )
            for scale in SCALES
        },
        known="the values that the published code tries",
        notes=(
            *NOTES,
            "unequal labels, Dirichlet 0.5; sigma and sigma0 are variances",
            "the published code takes the point with the best accuracy; what it does not tell is"
            " that the model grows: growth is bounded by the number of devices here",
            "estimated variances, our default, are the same in all columns",
        ),
    )


def _variances(scale: Scale, sigma: float, sigma0: float) -> Column:
    of = f"sigma = {sigma:g}, sigma0 = {sigma0:g}"
    own: Settings = {"algorithm.sigma": sigma, "algorithm.sigma0": sigma0}
    rows = {row.label: own for row in BY_GAMMA}
    return Column(f"{LABELS[scale]}, {of}", of, SETUPS[scale], PARTITIONS[SKEWED], rows)


TABLES = (_mnist(), _grid())
