"""FedMA: biased data of two devices, more and more devices, and LeNet matched once.

Wang, Yurochkin, Sun, Papailiopoulos, Khazaeni: Federated Learning with Matched Averaging, ICLR
2020, figures 4 and 6, of which only what the text says is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgefed.reproduce.papers.fedma_parts import (
    ALONE,
    AT_ONCE,
    COMMON,
    DIGITS,
    ENSEMBLE,
    ESTIMATED,
    FEDAVG,
    FEDMA,
    FEDMA_ROW,
    FEDPROX,
    IMAGE_LABELS,
    IMAGE_TARGETS,
    IMAGES,
    ONCE,
    PASSES,
    POOLED,
    ROWS_NOTES,
    SEEDS,
    SMALL,
    VGG,
    column,
    own_settings,
)
from edgefed.reproduce.table import (
    SCALES,
    Column,
    Row,
    Scale,
    Scaled,
    Settings,
    Table,
    above,
    along,
)

TAKES: Mapping[Scale, str] = {
    "smoke": "about a second a run",
    "small": "some ten seconds to a few minutes a run on two cores",
    "paper": "for a GPU, an hour a run and more",
}

# -- biased data: figure 4 ------------------------------------------------------------------------

BIASED: Settings = {
    "data.partition": "classes",
    "data.classes_per_device": 5,
    "data.transform": "greyscale",
    "simulation.devices": 2,
}
BALANCED = Row("pooled, balanced", {**ALONE, "data.grey_shares": [0.5, 0.5]})
OVERSAMPLED = Row("pooled, oversampled", {**ALONE, "data.grey_oversample": True})
NO_BIAS = Row("pooled, no bias", {**ALONE, "data.transform": "none"})
POOLS = (POOLED, BALANCED, OVERSAMPLED, NO_BIAS)

BIAS_SETUPS: Mapping[Scale, Settings] = {
    "smoke": {
        **DIGITS,
        **BIASED,
        "model.name": "cnn",
        "model.width": 8,
        "model.hidden": 32,
        "data.name": "made-colours",
        "training.learning_rate": 0.02,
    },
    "small": {**SMALL, **BIASED, "rounds.count": 10},
    "paper": {**VGG, **BIASED, "training.epochs": 10, "rounds.count": 10},
}
BIAS_LABELS: Mapping[Scale, str] = {**IMAGE_LABELS, "smoke": "coloured digits"}
BIAS_OWN: Mapping[Scale, Mapping[str, Settings]] = {
    "smoke": own_settings(2, 2, alone=1, pooled=8),
    "small": own_settings(2, 3, alone=1, pooled=30),
    "paper": own_settings(2, 20, alone=1, pooled=100),
}
RETRAINED: Mapping[str, Settings] = {
    row.label: {"algorithm.retrain_epochs": 20} for row in (FEDMA_ROW, ESTIMATED)
}


def _bias() -> Table:
    rows = (FEDMA_ROW, ESTIMATED, FEDAVG, FEDPROX, *POOLS)
    return Table(
        name="fedma-bias",
        title="biased data: five labels 95 % grey on one device, five labels 5 % on another",
        paper=FEDMA,
        rows=rows,
        scales={scale: Scaled((_biased(scale, rows),), SEEDS, TAKES[scale]) for scale in SCALES},
        known="what the text says of Figure 4",
        claims=(
            above(FEDMA_ROW.label, POOLED.label),
            above(FEDMA_ROW.label, FEDAVG.label),
            above(FEDMA_ROW.label, OVERSAMPLED.label),
            above(NO_BIAS.label, POOLED.label),
            above(BALANCED.label, POOLED.label),
        ),
        notes=(
            "half of the coordinator's test images of each label are grey; pooled without bias is"
            " trained and tested on colour images only",
            "pooled and balanced: half of each label's images are grey; oversampled: the rarer kind"
            " is repeated until both are equally many",
            "the epochs of pooled training are our reading: 100, one a round",
            *ROWS_NOTES,
        ),
    )


def _biased(scale: Scale, rows: tuple[Row, ...]) -> Column:
    own = BIAS_OWN[scale]
    pools = {row.label: own[POOLED.label] for row in POOLS}
    retrained = RETRAINED if scale == "paper" else {}
    return column(BIAS_LABELS[scale], "CIFAR-10", BIAS_SETUPS[scale], rows, own, pools, retrained)


# -- more and more devices: figure 6 --------------------------------------------------------------

PIECES = 5
DEVICES: Mapping[Scale, tuple[int, ...]] = {
    "smoke": (2, 6, 10),
    "small": (2, 6, 10),
    "paper": (2, 4, 6, 8, 10),
}
GROWING_ROWS = (FEDAVG, FEDPROX, FEDMA_ROW, ESTIMATED, POOLED)
GROWING_EPOCHS: Mapping[Scale, tuple[int, int]] = {
    "smoke": (2, 8),
    "small": (3, 30),
    "paper": (20, 200),
}
"""Local epochs, and those of pooled training."""


def _number(devices: int) -> str:
    return f"J = {devices}"


def _growing() -> Table:
    first, last = _number(2), _number(10)
    return Table(
        name="fedma-growing",
        title="more and more devices of about the same size, CIFAR-10",
        paper=FEDMA,
        rows=GROWING_ROWS,
        scales={
            scale: Scaled(
                tuple(_with_devices(scale, devices) for devices in DEVICES[scale]),
                SEEDS,
                TAKES[scale],
                {
                    _number(each): "fewer columns are enough"
                    for each in DEVICES["paper"]
                    if each not in DEVICES[scale]
                },
            )
            for scale in SCALES
        },
        known="what the text says of Figure 6: FedMA gains from new devices, FedAvg loses",
        claims=(
            along(FEDMA_ROW.label, last, first),
            along(FEDAVG.label, first, last),
            above(FEDMA_ROW.label, FEDAVG.label, last),
        ),
        notes=(
            "the training samples are cut into 5 pieces, and 1 to 5 of them shared out over two"
            " devices a piece, about 5,000 samples a device at paper; the numbers are our reading",
            *ROWS_NOTES,
        ),
    )


def _with_devices(scale: Scale, devices: int) -> Column:
    epochs, pooled = GROWING_EPOCHS[scale]
    varies: Settings = {
        "simulation.devices": devices,
        "data.partition": "growing",
        "data.pieces": PIECES,
        "data.pieces_used": devices // 2,
    }
    return column(
        f"{IMAGE_LABELS[scale]}, {_number(devices)}",
        _number(devices),
        IMAGES[scale],
        GROWING_ROWS,
        own_settings(devices, epochs, alone=1, pooled=pooled),
        PASSES if scale == "paper" else {},
        varies=varies,
        target=IMAGE_TARGETS[scale],
    )


# -- LeNet on MNIST, matched once -----------------------------------------------------------------

EQUAL, SKEWED = "equal", "Dirichlet 0.5"
PARTITIONS: Mapping[str, Settings] = {
    EQUAL: {"data.partition": "iid"},
    SKEWED: {"data.partition": "dirichlet", "data.alpha": 0.5},
}
AVERAGED = Row("averaged once", {"algorithm.name": "fedavg", **ONCE})
MATCHED_ESTIMATED = Row(
    "matched at once, estimated variances",
    {
        "algorithm.name": "fedma",
        "algorithm.layer_codec": "fp32",
        "algorithm.initial": "independent",
        "algorithm.retrain_epochs": 0,
        **ONCE,
    },
)
RETRAINED_ONCE = Row("FedMA, one round", {**FEDMA_ROW.settings, **ONCE})
LENET_ROWS = (AVERAGED, ENSEMBLE, AT_ONCE, MATCHED_ESTIMATED, RETRAINED_ONCE, POOLED)
LENET: Settings = {
    **COMMON,
    "model.name": "lenet5-wide",
    "model.channels": [20, 50],
    "model.hidden": 500,
    "data.name": "mnist",
    "training.batch_size": 32,
    "training.learning_rate": 0.01,
    "training.epochs": 10,
    "rounds.count": 1,
    "simulation.devices": 5,
}
SMALL_LENET: Settings = {
    **LENET,
    "model.channels": [6, 16],
    "model.hidden": 84,
    "data.limit": 6000,
}
DIGITS_LENET: Settings = {
    **DIGITS,
    "model.name": "cnn",
    "model.width": 8,
    "model.hidden": 32,
    "training.learning_rate": 0.02,
    "training.epochs": 8,
    "rounds.count": 1,
    "simulation.devices": 4,
}
LENETS: Mapping[Scale, tuple[str, Settings]] = {
    "smoke": ("digits", DIGITS_LENET),
    "small": ("MNIST, small", SMALL_LENET),
    "paper": ("MNIST", LENET),
}


def _lenet() -> Table:
    return Table(
        name="fedma-lenet",
        title="LeNet on MNIST: matched once, against averaged once",
        paper=FEDMA,
        rows=LENET_ROWS,
        scales={
            scale: Scaled(
                tuple(_once(scale, of) for of in PARTITIONS),
                SEEDS,
                {**TAKES, "small": "about a minute a run on two cores"}[scale],
            )
            for scale in SCALES
        },
        known="that there were such runs; their numbers are lost",
        claims=(
            above(AT_ONCE.label, AVERAGED.label),
            above(RETRAINED_ONCE.label, AT_ONCE.label),
            above(POOLED.label, RETRAINED_ONCE.label),
        ),
        notes=(
            "5 devices and 10 local epochs are our reading",
            "averaged once: devices begin with the same weights, as in FedAvg; in the matched rows"
            " each has weights of its own",
            *ROWS_NOTES[:1],
        ),
    )


def _once(scale: Scale, of: str) -> Column:
    label, setup = LENETS[scale]
    devices, epochs = int(setup["simulation.devices"]), int(setup["training.epochs"])
    own = own_settings(devices, epochs, alone=epochs, pooled=epochs)
    own[RETRAINED_ONCE.label] = own[FEDMA_ROW.label]
    return column(f"{label}, {of}", of, setup, LENET_ROWS, own, varies=PARTITIONS[of])


TABLES = (_bias(), _growing(), _lenet())
