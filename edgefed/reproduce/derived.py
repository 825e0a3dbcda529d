"""Settings of rows that follow from the set-up; the papers' files name these functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgefed.reproduce.paper_file import Amounts, Derived
from edgefed.reproduce.table import Settings


def output_epochs(setup: Settings, amounts: Amounts) -> Settings:
    """Return how long the output layer of a matched model is trained."""
    epochs = setup.get("training.epochs", amounts.epochs)
    return {"algorithm.last_epochs": amounts.output * epochs}


def trained_once(_setup: Settings, amounts: Amounts) -> Settings:
    """Return how long devices train that train once."""
    return {"training.epochs": amounts.alone}


def pooled(setup: Settings, amounts: Amounts) -> Settings:
    """Return the settings with the samples of all devices on one."""
    parts = {"data.parts_per_device": setup["simulation.devices"]}
    one_a_round = {"training.epochs": 1, "rounds.count": amounts.pooled}
    return {**parts, **(one_a_round if amounts.pooled else {})}


DERIVED: Mapping[Derived, Callable[[Settings, Amounts], Settings]] = {
    "output_epochs": output_epochs,
    "trained_once": trained_once,
    "pooled": pooled,
}
