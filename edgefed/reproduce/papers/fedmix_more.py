"""FedMix, the further tables: 3 to 7, 10 to 16 and 18, known only from the paper's text.

Yoon, Shin, Hwang, Yang: FedMix: Approximation of Mixup under Mean Augmented Federated Learning,
ICLR 2021, Section 4 and Appendices F to J. The values that the authors tried are mostly unknown;
those here are ours, around the set-up of Table 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgefed.reproduce.papers.fedmix_parts import (
    ALONE,
    FEDMIX_ROW,
    Columns,
    row,
    table,
    varied,
)
from edgefed.reproduce.papers.fedmix_setups import Setup
from edgefed.reproduce.table import Claim, Scale, Score, above, alike, along, level, steadier

LOST = "which values the paper tried is lost; these are ours"
BEST = tuple(above("FedMix", label) for label in ("FedAvg", "FedProx", "LocalMix", "NaiveMix"))
RATIOS = (0.05, 0.1, 0.2, 0.5)
LAMBDA = "algorithm.mixup_ratio"


def _writers(setup: Setup, scale: Scale) -> Setup:
    """Return FEMNIST's set-up with the 300 devices of Appendix H."""
    devices = {"paper": 300, "small": 300, "smoke": 12}[scale]
    return replace(setup, recipe={**setup.recipe, "simulation.devices": devices})


def _local(setup: Setup, scale: Scale) -> Setup:
    """Return the same, tested on what each device holds out."""
    wide = _writers(setup, scale)
    tested = {"evaluation.on": "devices", "evaluation.every": 0, "simulation.holdout": 0.2}
    return replace(wide, recipe={**wide.recipe, **tested}, target=None)


def _small_groups(setup: Setup, scale: Scale) -> Setup:
    """Return the set-up with means of an eighth of a device's samples, where noise is added."""
    groups = {"algorithm.group_size": max(2, setup.half // 4)}
    del scale
    return replace(setup, means={**setup.means, **groups})


def _half_groups(setup: Setup, scale: Scale) -> Setup:
    """Return the set-up with means of half of a device's samples."""
    del scale
    return replace(setup, means={**setup.means, "algorithm.group_size": setup.half})


def _skewed(alpha: float) -> Mapping[str, Any]:
    return {"data.partition": "dirichlet", "data.alpha": alpha}


def _held(columns: Columns) -> Columns:
    """Return columns that are scored by the devices' own tests."""
    return lambda scale, rows: tuple(
        replace(each, score=Score("device_accuracy")) for each in columns(scale, rows)
    )


def _prefer(row_label: str, better: str, *worse: str) -> tuple[Claim, ...]:
    return tuple(along(row_label, better, each) for each in worse)


TABLES = (
    table(
        3,
        "number of devices, CIFAR-10",
        ALONE,
        varied(
            "N",
            "simulation.devices",
            (20, 40, 60, 100),
            small=(10, 15, 20, 40),
            smoke=(5, 8, 10, 15),
        ),
        BEST,
        notes=(LOST, "devices a round stay the same, and all data is shared out over the devices"),
    ),
    table(
        4,
        "local data, CIFAR-10",
        ALONE,
        varied(
            "samples",
            "data.limit",
            (10_000, 25_000, 50_000),
            small=(1000, 2000, 4000),
            smoke=(150, 250, 400),
        ),
        BEST,
        notes=(LOST,),
    ),
    table(
        5,
        "mixup ratio of FedMix and of Global Mixup at a fixed ratio, CIFAR-10",
        (row("Global Mixup", "globalmix"), FEDMIX_ROW),
        varied("lambda", LAMBDA, RATIOS),
        (
            along("Global Mixup", "lambda = 0.2", "lambda = 0.05"),
            along("Global Mixup", "lambda = 0.2", "lambda = 0.5"),
            *_prefer("FedMix", "lambda = 0.05", "lambda = 0.2", "lambda = 0.5"),
        ),
        notes=(LOST,),
    ),
    table(
        6,
        "labels a device, CIFAR-10",
        ALONE,
        varied("labels", "data.classes_per_device", (2, 3, 5, 10)),
        (
            *(
                above("FedMix", each, "labels = 2")
                for each in ("FedAvg", "FedProx", "LocalMix", "NaiveMix")
            ),
            alike("FedMix", "FedAvg", "labels = 10"),
            *(
                steadier("FedMix", each, "labels = 10", "labels = 2")
                for each in ("FedAvg", "FedProx", "LocalMix")
            ),
        ),
        notes=(LOST,),
    ),
    table(
        7,
        "devices a round, CIFAR-10",
        ALONE,
        varied("K", "rounds.cohort", (5, 10, 15, 30), small=(3, 5, 10, 20), smoke=(2, 3, 4, 8)),
        (
            *BEST,
            *(steadier("FedMix", each, "K = 30", "K = 5") for each in ("FedAvg", "LocalMix")),
            steadier("NaiveMix", "FedAvg", "K = 30", "K = 5"),
        ),
        notes=(LOST,),
    ),
    table(
        10,
        "local epochs, CIFAR-10",
        ALONE,
        varied("E", "training.epochs", (1, 2, 5, 10), small=(1, 2, 3, 5), smoke=(1, 2, 3, 4)),
        (
            *(above("FedMix", "FedAvg", f"E = {each}") for each in (1, 2, 5, 10)),
            *(above("NaiveMix", "FedAvg", f"E = {each}") for each in (1, 2, 5, 10)),
            *(above("FedMix", "NaiveMix", f"E = {each}") for each in (1, 2, 5)),
            above("NaiveMix", "FedMix", "E = 10"),
            along("FedMix", "E = 10", "E = 1"),
        ),
        notes=(LOST,),
    ),
    table(
        11,
        "least samples of a device that shares its mean, FEMNIST with 300 devices",
        (FEDMIX_ROW,),
        varied(
            "threshold",
            "algorithm.threshold",
            (0, 50, 100, 200),
            small=(0, 90, 105, 125),
            smoke=(0, 10, 20, 40),
            kind="femnist",
            change=_writers,
        ),
        _prefer("FedMix", "threshold = 100", "threshold = 0", "threshold = 200"),
        notes=(LOST, "the paper tunes lambda for each threshold; here it is Table 8's"),
    ),
    table(
        12,
        "mixup ratio on FEMNIST with 300 devices",
        (FEDMIX_ROW,),
        varied("lambda", LAMBDA, RATIOS, kind="femnist", change=_writers),
        tuple(level("FedMix", "lambda = 0.2", f"lambda = {each}") for each in (0.05, 0.1)),
        notes=(LOST,),
    ),
    table(
        13,
        "mixup ratio and the accuracy on devices' own test samples, FEMNIST with 300 devices",
        (FEDMIX_ROW,),
        _held(varied("lambda", LAMBDA, RATIOS, kind="femnist", change=_local)),
        tuple(level("FedMix", "lambda = 0.2", f"lambda = {each}") for each in (0.05, 0.1)),
        left_out={"devices apart by their samples": "only the mean over devices is kept"},
        notes=(LOST,),
    ),
    table(
        14,
        "Gaussian noise on means of few samples, CIFAR-10",
        (FEDMIX_ROW,),
        varied("sigma", "algorithm.noise", (0.0, 0.1, 0.2, 0.3), change=_small_groups),
        (
            *_prefer("FedMix", "sigma = 0.0", "sigma = 0.1"),
            *_prefer("FedMix", "sigma = 0.3", "sigma = 0.0"),
        ),
        notes=(LOST, "means are of an eighth of a device's samples"),
    ),
    table(
        15,
        "m means averaged once more, CIFAR-10",
        (FEDMIX_ROW,),
        varied(
            "m",
            "algorithm.merge_entries",
            (1, 2, 5, 15),
            small=(1, 2, 5, 10),
            smoke=(1, 2, 4, 8),
        ),
        (
            *_prefer("FedMix", "m = 2", "m = 1", "m = 15"),
            along("FedMix", "m = 1", "m = 15"),
        ),
        notes=(LOST,),
    ),
    table(
        16,
        "means of one label against means of a random half, CIFAR-10",
        (
            row("random split", "fedmix", same_class=False),
            row("same-class split", "fedmix", same_class=True),
        ),
        varied("labels", "data.classes_per_device", (2,), change=_half_groups),
        (above("random split", "same-class split"),),
    ),
    table(
        18,
        "labels shared out by a Dirichlet distribution, CIFAR-10",
        ALONE,
        varied("alpha", _skewed, (0.2, 0.5)),
        BEST,
    ),
)
