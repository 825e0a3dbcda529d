"""The parts of a snapshot about the last evaluation: counts by label, and accuracy by device."""

from __future__ import annotations

from typing import Literal

from edgefed.events.base.view import View

TestPlace = Literal["coordinator", "devices"]
"""Whose held-out samples are tested."""


class ConfusionView(View):
    """The counts of the last evaluation, by true and predicted label.

    Attributes:
        place: whose held-out samples were tested.
        round: the round that was evaluated.
        devices: how many devices' counts are summed; 0 for the coordinator's test.
        tested: how many devices tested; more than ``devices`` where some do not share their labels.
        counts: rows as in ``Confusion``: samples of a true label by predicted label, or three rows
            of sums for many classes.
    """

    place: TestPlace
    round: int = 0
    devices: int = 0
    tested: int = 0
    counts: tuple[tuple[int, ...], ...] = ()


class DeviceTestView(View):
    """The last test that a device made of the model on its own held-out samples.

    Attributes:
        round: the round that was evaluated.
        accuracy: share of the samples that are predicted right.
    """

    device: str
    round: int
    accuracy: float
