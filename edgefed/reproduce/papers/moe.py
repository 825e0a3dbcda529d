"""Federated mixture of experts: Table 1 and Figures 3, 4, 11 and 13.

Reisser, Louizos, Gavves, Welling: Federated Mixture of Experts, arXiv 2107.06724. The curves of the
figures are not known as numbers, only what the text says of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from edgefed.reproduce.papers.moe_parts import (
    BIASED,
    CIFAR10,
    CIFAR100,
    DOUBLE,
    FEDAVG,
    FEMNIST,
    FOUR,
    FOUR_BIASED,
    FOURFOLD,
    LOCAL_GLOBAL,
    MOE,
    NOTES,
    SEEDS,
    SETUPS,
    SOURCE,
    STANDS_FOR,
    TAKES,
    TEN,
    TWO,
    collecting,
    experts,
    with_table_rates,
)
from edgefed.reproduce.table import (
    SCALES,
    Column,
    Published,
    Row,
    Scale,
    Scaled,
    Score,
    Settings,
    Table,
    above,
)

OWN = Score("device_accuracy")
NOTHING: Mapping[str, Settings] = {}
ABSENT = {"CIFAR-100, FEMNIST": "nothing small enough stands for them"}

# -- Table 1 --------------------------------------------------------------------------------------

ACCURACIES: Mapping[str, tuple[float, float, float]] = {
    FEDAVG.label: (69.36, 49.58, 85.73),
    BIASED.label: (83.9, 56.14, 85.82),
    LOCAL_GLOBAL.label: (83.16, 41.09, 86.75),
    TWO.label: (72.25, 48.29, 84.02),
    FOUR.label: (79.88, 48.55, 86.11),
    TEN.label: (80.0, 52.59, 87.21),
}
DATA = ("CIFAR-10", "CIFAR-100", "FEMNIST")

FIRST_BLOCK = ["conv1.*", "norm1.*", "stage1block1.*"]
"""What is personal of a ResNet-20 that is split after its first block."""

LONGER: Mapping[str, Settings] = {
    FEDAVG.label: {"rounds.count": 30_000},
    LOCAL_GLOBAL.label: {"personal.preset": "none", "personal.weights": FIRST_BLOCK},
    TWO.label: {"rounds.count": 30_000},
    FOUR.label: {"rounds.count": 24_000},
}
"""What some rows have of their own for CIFAR-100."""

SHARED_GATES: Mapping[str, Settings] = {
    row.label: {"algorithm.gates": "averaged"} for row in (TWO, FOUR, TEN)
}
"""The paper averages the gates for FEMNIST, against overfitting."""


def _table1() -> Table:
    rows = (FEDAVG, BIASED, LOCAL_GLOBAL, TWO, FOUR, TEN)
    paper = (
        Column("CIFAR-10", "CIFAR-10", CIFAR10, score=OWN),
        Column("CIFAR-100", "CIFAR-100", CIFAR100, {}, LONGER, score=replace(OWN, last=10)),
        Column("FEMNIST", "FEMNIST", FEMNIST, {}, SHARED_GATES, score=replace(OWN, last=40)),
    )
    return Table(
        name="moe-table1",
        title="accuracy on devices' own samples: FedAvg, personal weights, experts",
        paper=MOE,
        rows=rows,
        scales={
            "smoke": Scaled(_own_columns("smoke", rows), SEEDS, TAKES["smoke"], ABSENT),
            "small": Scaled(_own_columns("small", rows), SEEDS, TAKES["small"], ABSENT),
            "paper": Scaled(
                paper, SEEDS, f"{TAKES['paper']}; CIFAR-100's 30,000 rounds take days", exact=True
            ),
        },
        known="all accuracies of the paper's Table 1",
        published=tuple(
            Published(row, column, value, SOURCE)
            for row, values in ACCURACIES.items()
            for column, value in zip(DATA, values, strict=True)
        ),
        claims=(
            above(BIASED.label, FEDAVG.label),
            above(LOCAL_GLOBAL.label, FEDAVG.label),
            *(above(row.label, FEDAVG.label) for row in (TWO, FOUR, TEN)),
            above(FOUR.label, TWO.label),
            above(TEN.label, FOUR.label),
            above(BIASED.label, TEN.label, "CIFAR-10"),
        ),
        notes=(
            *NOTES,
            "FedMoE is what the paper calls FedMix",
            "Liang et al. keep the input layer on the devices, and of the ResNet-20 all up to its"
            " first block",
            "for CIFAR-100 each row has the rounds that the paper reports for it",
        ),
    )


# -- Figure 4: as many bytes ----------------------------------------------------------------------

WIDER: Mapping[Scale, Mapping[str, Settings]] = {
    "smoke": {DOUBLE.label: {"model.hidden": [64]}, FOURFOLD.label: {"model.hidden": [128]}},
    "small": {DOUBLE.label: {"model.hidden": [128]}, FOURFOLD.label: {"model.hidden": [256]}},
    "paper": {
        DOUBLE.label: {"model.channels": [61, 122]},
        FOURFOLD.label: {"model.channels": [113, 226]},
    },
}
"""Models with twice and four times the parameters; the paper's are LeNet-5(61) and (113)."""


def _figure4() -> Table:
    rows = (FEDAVG, DOUBLE, FOURFOLD, TWO, FOUR, FOUR_BIASED)
    scales = {
        scale: Scaled(_own_columns(scale, rows, WIDER[scale]), SEEDS, TAKES[scale])
        for scale in SCALES
    }
    return Table(
        name="moe-figure4",
        title="experts against one larger model that takes as many bytes",
        paper=MOE,
        rows=rows,
        scales=scales,
        known="what the text says of the curves",
        claims=(
            above(TWO.label, DOUBLE.label),
            above(FOUR.label, FOURFOLD.label),
            above(FOUR_BIASED.label, FOUR.label),
        ),
        notes=(*NOTES, "the curves of CIFAR-10; the ResNet-20 of CIFAR-100 has one width only"),
    )


# -- Figure 3: the entropy ------------------------------------------------------------------------

SPECIALISED = experts("without entropy", 4)
ALIKE = experts("with entropy", 4, entropy="local")
COLLAPSING = experts("mixture of experts as it was", 4, entropy="direct")


def _figure3() -> Table:
    rows = (FEDAVG, SPECIALISED, ALIKE, COLLAPSING)
    return Table(
        name="moe-figure3",
        title="specialised experts against experts with the entropy term, K=4",
        paper=MOE,
        rows=rows,
        scales=_plain(rows),
        known="what the text says of the curves, and of Figure 14b",
        claims=(
            above(SPECIALISED.label, ALIKE.label),
            above(SPECIALISED.label, FEDAVG.label),
            above(SPECIALISED.label, COLLAPSING.label),
        ),
        notes=(
            *NOTES,
            "the last row is the original objective (equation 3), which collapses to one expert;"
            " edgefed expert show tells the load of the experts of a run",
        ),
    )


# -- Figure 11: how many experts, and how much is pruned ------------------------------------------

COUNTS = tuple(
    collecting(experts(f"FedMoE K={count}", count)) for count in (2, 4, 6, 8, 10, 12, 14)
)
LEVELS = tuple(
    collecting(experts(f"FedMoE K=4, eta={eta}", 4, prune=eta))
    for eta in (0.25, 0.5, 0.75, 0.9, 0.99)
)
KNOWN, NEW, UNION = "known devices", "new shard", "new shard, no labels"

NEWCOMERS: Mapping[Scale, Settings] = {
    "smoke": {"simulation.devices": 14, "simulation.newcomers": 4},
    "small": {"simulation.devices": 50, "simulation.newcomers": 10},
    "paper": {"simulation.devices": 110, "simulation.newcomers": 10},
}
"""Devices that never train, beside as many others as without them."""


SHARD_NOTES = (
    "all columns are scores of the same runs; a new shard is here devices of the same kind that"
    " never train, and fit a gate to their training samples, with experts and table as they are;"
    " without labels, it is the coordinator's test set, for which the gates of the devices are"
    " averaged by p(s), as the paper does it for the union of all validation samples",
    "personal weights of a new device are the initial ones; the paper averages those of the other"
    " devices, which here stay on them",
    "labels are dealt without replacement, so what many new devices hold, the others lack: at"
    " smoke, with 4 of 14, a new shard is mostly of labels that were hardly trained",
)


def shards(scale: Scale, rows: Iterable[Row]) -> tuple[Column, ...]:
    """Return the columns of known devices and of new shards, which are scores of the same runs."""
    setup = {**SETUPS[scale], **NEWCOMERS[scale], "evaluation.on": "both"}
    scores = (
        (KNOWN, Score("accuracy_participant")),
        (NEW, Score("accuracy_newcomer")),
        (UNION, Score("final_accuracy")),
    )
    own = with_table_rates(scale, rows)
    return tuple(
        Column(f"{_label(scale)}, {of}", of, setup, {}, own, score=score) for of, score in scores
    )


def _figure11() -> Table:
    rows = (FEDAVG, BIASED, *COUNTS, *LEVELS)
    return Table(
        name="moe-figure11",
        title="number of experts, and threshold of pruning, on known devices and on a new shard",
        paper=MOE,
        rows=rows,
        scales={scale: Scaled(shards(scale, rows), SEEDS, TAKES[scale]) for scale in SCALES},
        known="what the text says of the curves",
        claims=(
            above("FedMoE K=10", "FedMoE K=2", KNOWN),
            above("FedMoE K=14", "FedMoE K=10", KNOWN),
            above("FedMoE K=4", "FedMoE K=4, eta=0.99", KNOWN),
        ),
        notes=(
            *NOTES,
            "which thresholds the paper tried is lost: these are ours; what they save is in the"
            " bytes of table.json",
            *SHARD_NOTES,
        ),
    )


# -- Figure 13: fine-tuning -----------------------------------------------------------------------

TUNED = "{}, fine-tuned"
UNTUNED = {"mixtures": "a mixture of experts cannot be fine-tuned before its tests"}


def _tuned(row: Row) -> Row:
    settings = {**row.settings, "personal.fine_tune_epochs": 1}
    return Row(TUNED.format(row.label), settings)


def _figure13() -> Table:
    untuned = (FEDAVG, BIASED, LOCAL_GLOBAL)
    rows = tuple(each for row in untuned for each in (row, _tuned(row)))
    return Table(
        name="moe-figure13",
        title="one epoch of fine-tuning on the device before its test",
        paper=MOE,
        rows=rows,
        scales={
            scale: replace(scaled, left_out={**scaled.left_out, **UNTUNED})
            for scale, scaled in _plain(rows).items()
        },
        known="that fine-tuning can overfit; the curves are lost",
        claims=(
            above(TUNED.format(FEDAVG.label), FEDAVG.label),
            above(BIASED.label, TUNED.format(BIASED.label)),
        ),
        notes=(
            *NOTES,
            "the first claim is ours: one epoch adapts a global model to the device's labels",
        ),
    )


def _plain(rows: Iterable[Row]) -> dict[Scale, Scaled]:
    """Return the set-ups of CIFAR-10 and of what stands for it, scored on known devices."""
    return {scale: Scaled(_own_columns(scale, rows), SEEDS, TAKES[scale]) for scale in SCALES}


def _own_columns(
    scale: Scale, rows: Iterable[Row], more: Mapping[str, Settings] = NOTHING
) -> tuple[Column, ...]:
    """Return the column of CIFAR-10, or of what stands for it, scored on known devices."""
    own = {**with_table_rates(scale, rows), **more}
    return (Column(_label(scale), "CIFAR-10", SETUPS[scale], {}, own, score=OWN),)


def _label(scale: Scale) -> str:
    return STANDS_FOR.get(scale, "CIFAR-10")


TABLES = (_table1(), _figure3(), _figure4(), _figure11(), _figure13())
