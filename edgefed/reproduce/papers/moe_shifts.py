"""Federated mixture of experts: rotated MNIST, permuted labels, and a new shard.

Reisser, Louizos, Gavves, Welling: Federated Mixture of Experts, arXiv 2107.06724: sections 4.2 and
4.3, Appendices B and F.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgefed.reproduce.papers.moe import KNOWN, NEW, OWN, shards
from edgefed.reproduce.papers.moe_parts import (
    BIASED,
    FEDAVG,
    FEDPER,
    FOUR,
    FOUR_BIASED,
    FOUR_PRUNED,
    IFCA,
    LOCAL_GLOBAL,
    MNIST,
    MOE,
    NOTES,
    SEEDS,
    SETUPS,
    SOURCE,
    TAKES,
    TEN,
    TEN_PRUNED,
    experts,
)
from edgefed.reproduce.table import (
    SCALES,
    Column,
    Published,
    Scale,
    Scaled,
    Score,
    Settings,
    Table,
    above,
    alike,
    along,
)

# -- rotated MNIST --------------------------------------------------------------------------------

BY_LABEL = experts("FedMoE q(z|y)", 4)
BY_ROTATION = experts("FedMoE q(z|r)", 4, condition="rotation", condition_values=8)
ROTATED, BOTH = "rotation", "rotation and labels"

TURNED: Mapping[str, Settings] = {
    ROTATED: {"data.partition": "iid"},
    BOTH: {"data.partition": "dirichlet-equal", "data.alpha": 1.0},
}
ROTATIONS: Settings = {
    "data.transform": "rotation",
    "data.angles": 8,
    "data.rotation_alpha": 1.0,
}
TURNED_SETUPS: Mapping[Scale, Settings] = {**SETUPS, "paper": MNIST}
TURNED_NAMES: Mapping[Scale, str] = {"smoke": "digits", "small": "MNIST, small", "paper": "MNIST"}


def _rotation() -> Table:
    scales = {
        scale: Scaled(
            tuple(
                Column(
                    f"{TURNED_NAMES[scale]}, {of}",
                    of,
                    {**TURNED_SETUPS[scale], **ROTATIONS},
                    varies,
                    score=OWN,
                )
                for of, varies in TURNED.items()
            ),
            SEEDS,
            TAKES[scale],
        )
        for scale in SCALES
    }
    return Table(
        name="moe-rotation",
        title="rotated MNIST, with and without label skew: experts by label and by rotation",
        paper=MOE,
        rows=(FEDAVG, BIASED, BY_LABEL, BY_ROTATION),
        scales=scales,
        known="what the text says of Figures 5 and 6",
        claims=(
            alike(BIASED.label, FEDAVG.label, ROTATED),
            above(BIASED.label, FEDAVG.label, BOTH),
            above(BY_LABEL.label, FEDAVG.label),
            above(BY_ROTATION.label, FEDAVG.label),
            above(BY_ROTATION.label, BY_LABEL.label, ROTATED),
            above(BY_LABEL.label, BIASED.label, BOTH),
        ),
        notes=(
            *NOTES,
            "K, the model and the rounds are not stated: 4, and what CIFAR-10 has",
            "a device's held-out samples are rotated by its own distribution, as its others",
        ),
    )


# -- permuted labels ------------------------------------------------------------------------------

INDEPENDENT = experts("independent experts", 4, condition="device")
FROM_UPDATES = experts("experts from updates", 4, condition="device", start="updates")

PERMUTED: Settings = {
    "data.partition": "iid",
    "data.transform": "permutation",
    "data.permutations": 4,
    "training.epochs": 3,
    "rounds.count": 10,
    "rounds.cohort": 0,
    "evaluation.every": 1,
    "simulation.devices": 20,
}
SHORTER: Mapping[Scale, Settings] = {
    "smoke": {"training.learning_rate": 0.1, "training.batch_size": 10, "rounds.count": 4},
    "small": {"training.learning_rate": 0.1, "data.limit": 5000},
    "paper": {},
}
"""What the smaller scales have of their own."""

CLUSTERS: Mapping[int, Score] = {
    3: Score("cluster_accuracy"),
    4: Score("cluster_accuracy"),
    5: Score("cluster_purity"),
}


def _permutation() -> Table:
    return Table(
        name="moe-permutation",
        title="devices clustered by their label permutation: share with the right expert",
        paper=MOE,
        rows=(INDEPENDENT, FROM_UPDATES),
        scales={scale: Scaled(_permuted(scale), (1, 2, 3, 4, 5), TAKES[scale]) for scale in SCALES},
        known="that K=4 recovers the clusters within 10 rounds, K=5 splits one, K=3 joins two",
        claims=(above(FROM_UPDATES.label, INDEPENDENT.label),),
        notes=(
            "ACCURACY is the share of devices whose expert is matched with their permutation,"
            " experts and permutations matched one to one as well as possible; for K=5, with each"
            " expert's most frequent permutation (purity)",
            "K=3 cannot match all of four permutations: one of them is always wrong",
            "the paper's experts begin independently; experts from the most different updates of"
            " a first round are ours, and this first round is not one of the ten",
            "at smoke four rounds, not ten",
        ),
    )


def _permuted(scale: Scale) -> tuple[Column, ...]:
    name = {**TURNED_NAMES, "paper": "CIFAR-10"}[scale]
    setup = {**SETUPS[scale], **PERMUTED, **SHORTER[scale]}
    return tuple(
        Column(
            f"{name}, K={count}",
            f"K={count}",
            setup,
            {},
            {row.label: {"algorithm.experts": count} for row in (INDEPENDENT, FROM_UPDATES)},
            score=score,
        )
        for count, score in CLUSTERS.items()
    )


# -- a new shard ----------------------------------------------------------------------------------


def _new_shard() -> Table:
    return Table(
        name="moe-newshard",
        title="devices that train, and devices that never train (a new shard)",
        paper=MOE,
        rows=(
            *(FEDAVG, BIASED, LOCAL_GLOBAL, FEDPER, IFCA),
            *(FOUR, FOUR_PRUNED, TEN, TEN_PRUNED, FOUR_BIASED),
        ),
        scales={scale: Scaled(shards(scale), SEEDS, TAKES[scale]) for scale in SCALES},
        known="what the text says of Figure 12",
        claims=(
            above(FOUR.label, BIASED.label, NEW),
            above(FOUR.label, LOCAL_GLOBAL.label, NEW),
            above(TEN.label, BIASED.label, NEW),
            above(FEDAVG.label, BIASED.label, NEW),
            above(FEDAVG.label, LOCAL_GLOBAL.label, NEW),
            along(LOCAL_GLOBAL.label, KNOWN, NEW),
            above(FOUR.label, FEDAVG.label, KNOWN),
            above(FOUR_BIASED.label, FOUR.label, KNOWN),
        ),
        notes=(
            *NOTES,
            "a new shard is here devices of the same kind that never train; the paper takes the"
            " union of all validation samples for it",
            "a new device fits a gate, and a bias of its own, to its training samples, with experts"
            " and table as they are; the paper marginalises the gates of the other devices, which"
            " here stay on them",
            "personal weights of a new device are the initial ones; the paper averages those of the"
            " other devices, which here stay on them",
            "FedPer, IFCA and which rows are pruned on CIFAR-10 are ours",
        ),
    )


# -- MNIST, two shards a device -------------------------------------------------------------------

TWO_SHARDS: Settings = {
    **MNIST,
    "model.name": "mlp",
    "model.hidden": [200, 200],
    "data.partition": "shards",
    "data.shards_per_device": 2,
    "rounds.count": 600,
}
SMALLER: Mapping[Scale, Settings] = {
    scale: {**SETUPS[scale], "data.partition": "shards", "data.shards_per_device": 2}
    for scale in SCALES
    if scale != "paper"
}
MARGINAL = {
    "FedMoE on a new client by p(s) and by p(s|x)": "the gates and autoencoders of all devices are"
    " collected by edgefed run evaluate only, where their owners allow it"
}


def _two_shards() -> Table:
    return Table(
        name="moe-vae",
        title="MNIST, two shards a device: the known clients of the experiment with autoencoders",
        paper=MOE,
        rows=(FEDAVG, FOUR),
        scales={
            scale: Scaled(
                (
                    Column(
                        TURNED_NAMES[scale],
                        "known clients",
                        SMALLER.get(scale, TWO_SHARDS),
                        score=OWN,
                    ),
                ),
                SEEDS,
                TAKES[scale],
                MARGINAL,
                exact=scale == "paper",
            )
            for scale in SCALES
        },
        known="the accuracies on known clients; 95.9 by p(s|x), 96.63 by p(s) and 96.9 of FedAvg on"
        " a new one are not compared",
        published=(
            Published(FEDAVG.label, "known clients", 97.0, SOURCE),
            Published(FOUR.label, "known clients", 97.7, SOURCE),
        ),
        claims=(above(FOUR.label, FEDAVG.label),),
        notes=(*NOTES, "the local settings are not stated: those of CIFAR-10"),
    )


TABLES = (_rotation(), _permutation(), _new_shard(), _two_shards())
