"""The result of an evaluation: scores by name, and the confusion matrices of the same test."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.device_side import MODE
from edgefed.evaluation.classification import averages
from edgefed.evaluation.confusion import Confusion
from edgefed.events.base.evaluation_views import ConfusionView, TestPlace
from edgefed.events.history.early_stopping import DeviceTests


@dataclass(frozen=True)
class Scores:
    """The result of an evaluation.

    Attributes:
        values: scores by name.
        confusions: counts of the coordinator's test, of the devices' tests, or of both.
        device_tests: each device's own scores, with its number of samples as ``samples``.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    confusions: tuple[ConfusionView, ...] = ()
    device_tests: DeviceTests = field(default_factory=dict)

    def __or__(self, other: Scores) -> Scores:
        """Return both, the coordinator's counts first; of scores of one name the other's."""
        # Sorted by place, so that the coordinator's counts come first
        views = sorted((*self.confusions, *other.confusions), key=lambda confusion: confusion.place)
        tests = {**self.device_tests, **other.device_tests}
        return Scores({**self.values, **other.values}, tuple(views), tests)

    @property
    def labels(self) -> tuple[int, int]:
        """The labels with tested samples, and all labels; 0 where some tests do not tell theirs.

        They are of the test that gives the accuracy: the coordinator's, if there is one.
        """
        for view in self.confusions:
            # Only where every device that tested sent counts do they tell all labels
            if view.devices == view.tested:
                total = Confusion.from_rows(view.counts)
                return int((total.samples > 0).sum()), total.classes
        return 0, 0

    def __bool__(self) -> bool:
        """Whether anybody tested."""
        return bool(self.values)

    @property
    def finite(self) -> bool:
        """Whether all scores are numbers."""
        return all(map(math.isfinite, self.values.values()))


NO_SCORES = Scores()
"""Of a model that nobody tested."""


def counted(
    place: TestPlace, number: int, parts: Sequence[Confusion], tested: int = 0
) -> tuple[dict[str, float], tuple[ConfusionView, ...]]:
    """Return the scores that follow from counts, and the reported sum; nothing without counts.

    Args:
        place: owner of the tested samples.
        number: the round.
        parts: the counts of each test.
        tested: number of devices that tested, with or without sending counts; 0 on the coordinator.
    """
    total = Confusion.total(parts)
    if total is None:
        return {}, ()
    # The coordinator's matrix is of no device
    devices = len(parts) if place == "devices" else 0
    counts = tuple(tuple(row) for row in total.rows())
    view = ConfusionView(place=place, round=number, devices=devices, tested=tested, counts=counts)
    return averages(total), (view,)


NEWCOMER, PARTICIPANT = "newcomer", "participant"
"""Modes of tests; see ``EvalJob.mode``."""


def with_part(answer: Answer, newcomers: Collection[str]) -> Answer:
    """Return a test with the part that its device has in the run as a further mode."""
    part = NEWCOMER if answer.device in newcomers else PARTICIPANT
    return replace(answer, metrics={**answer.metrics, f"{MODE}{part}": 1.0})
