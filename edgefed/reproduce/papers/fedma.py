"""FedMA: its table of final accuracies, Shakespeare, and the number of local epochs.

Wang, Yurochkin, Sun, Papailiopoulos, Khazaeni: Federated Learning with Matched Averaging, ICLR
2020. The curves of the figures are lost; the table sums two of them up.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgefed.reproduce.papers.fedma_parts import (
    AT_ONCE,
    CARRIED,
    ENSEMBLE,
    ESTIMATED,
    FEDAVG,
    FEDMA,
    FEDMA_ROW,
    FEDPROX,
    IMAGE_LABELS,
    IMAGE_TARGETS,
    IMAGES,
    IMAGES_OWN,
    LSTM_LABELS,
    LSTM_TARGETS,
    LSTMS,
    MEMORY,
    NOTE,
    PASSES,
    POOLED,
    ROWS_NOTES,
    SEEDS,
    TEXT_ROWS,
    WORK,
    column,
    own_settings,
    texts_own,
)
from edgefed.reproduce.table import (
    SCALES,
    Claim,
    Column,
    Published,
    Scale,
    Scaled,
    Settings,
    Table,
    Term,
    above,
    along,
)

ROWS = (FEDAVG, FEDPROX, ENSEMBLE, FEDMA_ROW, ESTIMATED, AT_ONCE, POOLED)
TAKES: Mapping[Scale, str] = {
    "smoke": "about a second a run",
    "small": "some ten seconds to a few minutes a run on two cores",
    "paper": "for a GPU, an hour a run and more",
}
LOST = "the number of rounds is lost: 50 and 33 for FedAvg and FedProx, 10 and 11 for FedMA here"

# -- the table of final accuracies ----------------------------------------------------------------

EPOCHS: Mapping[str, Settings] = {
    FEDAVG.label: {"training.epochs": 2},
    FEDPROX.label: {"training.epochs": 5},
    FEDMA_ROW.label: {"training.epochs": 5},
    ESTIMATED.label: {"training.epochs": 5},
}
"""On Shakespeare each was best at another number of local epochs."""


def _table1() -> Table:
    return Table(
        name="fedma-table1",
        title="test accuracy with unequal labels: 16 devices on CIFAR-10, 66 roles of Shakespeare",
        paper=FEDMA,
        rows=ROWS,
        scales={scale: Scaled(_both(scale), SEEDS, TAKES[scale]) for scale in SCALES},
        known="final accuracies; the rounds after which are lost",
        published=(
            Published(FEDAVG.label, "CIFAR-10", 86.29, NOTE),
            Published(FEDPROX.label, "CIFAR-10", 85.32, NOTE),
            Published(ENSEMBLE.label, "CIFAR-10", 75.29, MEMORY),
            Published(FEDMA_ROW.label, "CIFAR-10", 87.53, NOTE),
            Published(FEDAVG.label, "Shakespeare", 46.63, NOTE),
            Published(FEDPROX.label, "Shakespeare", 45.83, NOTE),
            Published(ENSEMBLE.label, "Shakespeare", 46.06, MEMORY),
            Published(FEDMA_ROW.label, "Shakespeare", 49.07, NOTE),
        ),
        claims=(
            above(FEDMA_ROW.label, FEDAVG.label),
            above(FEDAVG.label, FEDPROX.label),
            above(FEDAVG.label, ENSEMBLE.label, "CIFAR-10"),
            above(FEDMA_ROW.label, ENSEMBLE.label),
            above(FEDMA_ROW.label, AT_ONCE.label),
        ),
        notes=(
            f"{LOST}, so no difference is told",
            "the growth of the global model, 1.11 and 1.06 times the parameters, is remembered"
            " only; an ensemble has 16 and 66 times as many",
            "local epochs on CIFAR-10: 20 here; FedMA was best at 150, which fedma-epochs varies",
            WORK,
            CARRIED,
            *ROWS_NOTES,
        ),
    )


def _both(scale: Scale) -> tuple[Column, ...]:
    passes = PASSES if scale == "paper" else {}
    images = IMAGE_LABELS[scale], "CIFAR-10", IMAGES[scale]
    texts = LSTM_LABELS[scale], "Shakespeare", LSTMS[scale]
    return (
        column(*images, ROWS, IMAGES_OWN[scale], passes, target=IMAGE_TARGETS[scale]),
        column(*texts, ROWS, texts_own(scale, 5), EPOCHS, target=LSTM_TARGETS[scale]),
    )


# -- Shakespeare ----------------------------------------------------------------------------------

TEXT_EPOCHS: Mapping[Scale, tuple[int, ...]] = {
    "smoke": (2, 5),
    "small": (2, 5),
    "paper": (2, 5, 10),
}


def _of(epochs: int) -> str:
    return f"E = {epochs}"


def _shakespeare() -> Table:
    best = (Term(1, FEDMA_ROW.label, _of(5)), Term(-1, FEDAVG.label, _of(2)))
    return Table(
        name="fedma-shakespeare",
        title="LSTM on 66 roles of Shakespeare: accuracy by local epochs, rounds and bytes",
        paper=FEDMA,
        rows=TEXT_ROWS,
        scales={
            scale: Scaled(
                tuple(_texts(scale, epochs) for epochs in TEXT_EPOCHS[scale]),
                SEEDS,
                TAKES[scale],
                {} if scale == "paper" else {_of(10): "it takes too long"},
            )
            for scale in SCALES
        },
        known="the best of each row; the curves are lost",
        published=(
            Published(FEDAVG.label, _of(2), 46.63, NOTE),
            Published(FEDPROX.label, _of(5), 45.83, NOTE),
            Published(FEDMA_ROW.label, _of(5), 49.07, NOTE),
        ),
        claims=(
            above(FEDMA_ROW.label, FEDAVG.label),
            Claim(f"{FEDMA_ROW.label} at E = 5 > {FEDAVG.label} at E = 2", best),
            above(FEDMA_ROW.label, FEDPROX.label, _of(5)),
            above(FEDMA_ROW.label, AT_ONCE.label),
        ),
        notes=(
            LOST,
            "that FedMA was best at E = 5 is remembered only; which E were tried is lost",
            "ensemble, pooled training and matched at once do not depend on E",
            CARRIED,
            *ROWS_NOTES,
        ),
    )


def _texts(scale: Scale, epochs: int) -> Column:
    label = f"{LSTM_LABELS[scale]}, {_of(epochs)}"
    own = texts_own(scale, epochs)
    varies = {"training.epochs": epochs}
    setup, target = LSTMS[scale], LSTM_TARGETS[scale]
    return column(label, _of(epochs), setup, TEXT_ROWS, own, varies=varies, target=target)


# -- local epochs ---------------------------------------------------------------------------------

EPOCH_ROWS = (FEDAVG, FEDPROX, FEDMA_ROW, ESTIMATED)
LOCAL_EPOCHS: Mapping[Scale, Mapping[int, int]] = {
    "smoke": {2: 20, 15: 150},
    "small": {1: 10, 2: 20, 5: 50, 15: 150},
    "paper": {each: each for each in (10, 20, 50, 70, 100, 150)},
}
"""Local epochs, and those of the paper that they stand for."""

EPOCH_ROUNDS: Mapping[Scale, int] = {"smoke": 3, "small": 6, "paper": 10}


def _epochs() -> Table:
    return Table(
        name="fedma-epochs",
        title="number of local epochs, CIFAR-10 and VGG-9",
        paper=FEDMA,
        rows=EPOCH_ROWS,
        scales={
            scale: Scaled(
                tuple(_local(scale, *pair) for pair in LOCAL_EPOCHS[scale].items()),
                SEEDS,
                takes,
                {
                    _of(each): "fewer columns are enough"
                    for each in LOCAL_EPOCHS["paper"]
                    if each not in LOCAL_EPOCHS[scale].values()
                },
            )
            for scale, takes in {**TAKES, "paper": "for a GPU, up to a day a run"}.items()
        },
        known="what the text says of the curves: more local epochs help FedMA and harm FedAvg",
        claims=(
            along(FEDMA_ROW.label, _of(150), _of(20)),
            along(FEDAVG.label, _of(20), _of(150)),
            above(FEDMA_ROW.label, FEDAVG.label, _of(150)),
        ),
        notes=(
            "which numbers of epochs were tried is remembered only; the rounds are our reading:"
            " 10 for all rows",
            WORK,
            *ROWS_NOTES[:1],
        ),
    )


def _local(scale: Scale, epochs: int, of: int) -> Column:
    label = f"{IMAGE_LABELS[scale]}, {_of(epochs)}"
    own = own_settings(1, epochs, alone=1, pooled=1)
    setup = {**IMAGES[scale], "rounds.count": EPOCH_ROUNDS[scale]}
    varies, target = {"training.epochs": epochs}, IMAGE_TARGETS[scale]
    return column(label, _of(of), setup, EPOCH_ROWS, own, varies=varies, target=target)


TABLES = (_table1(), _shakespeare(), _epochs())
