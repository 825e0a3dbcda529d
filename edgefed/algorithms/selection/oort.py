"""Oort: devices whose samples teach much and that answer fast, with room for unknown ones.

Lai, Zhu, Madhyastha, Chowdhury: Oort: Efficient Federated Learning via Guided Participant
Selection, OSDI 2021 (arXiv 2010.06081), algorithm 1. For a device with n samples, the mean loss F
of its last training, the round L in which it was last asked, and t seconds for its answer, in round
R with the preferred duration T:

    U = min(n F, the device at the 95th percentile of all n F), divided by the largest of them
    utility = (U + sqrt(0.1 log R / L)) (T / t)^alpha       the last factor only where t > T

A share epsilon of the cohort is drawn from devices that were never asked. The others are drawn by
their utility from those that have at least 0.95 of the utility of the last one that has a place.

It differs from the paper in two ways. A device reports the mean loss of its training and not the
root of the mean square over its samples, and T is a percentile of the measured seconds instead of
one that a pacer moves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from edgefed.algorithms.selection.base import (
    Candidate,
    Selector,
    SelectorSettings,
    draw_by_weight,
)

CLIP = 95
"""Percentile of n F to which larger ones are cut, so that no device leads by its loss alone."""

CUT_OFF = 0.95
"""Share of the utility of the last device with a place that suffices to be drawn."""


class OortSettings(SelectorSettings):
    """Settings of Oort."""

    alpha: Annotated[float, Field(ge=0, le=10)] = 2.0
    """How strongly devices are avoided that take longer than the preferred duration; 0: not."""

    percentile: Annotated[float, Field(gt=0, le=100)] = 50.0
    """The preferred duration, as a percentile of the seconds of all measured devices."""

    exploration: Annotated[float, Field(ge=0, le=1)] = 0.9
    """Share of devices in the first round's cohort that were never asked."""

    exploration_decay: Annotated[float, Field(gt=0, le=1)] = 0.98
    """Factor by which that share shrinks in every round."""

    least_exploration: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Share below which it does not shrink."""


class Oort(Selector[OortSettings]):
    """Devices with a high loss and short answers."""

    name = "oort"
    summary = "devices with many samples, a high loss and short answers, and some unknown ones"
    paper = "Lai et al., OSDI 2021, arXiv 2010.06081"
    needs_loss = True
    Settings: ClassVar[type[SelectorSettings]] = OortSettings

    def order(
        self, candidates: Sequence[Candidate], count: int, number: int, rng: np.random.Generator
    ) -> Sequence[str]:
        """Return the drawn devices, and then the others by their utility."""
        utility = self.utilities(candidates, number)
        unmeasured = [entry for entry in candidates if entry.device not in utility]
        mixed = [unmeasured[index] for index in rng.permutation(len(unmeasured))]
        unknown = [entry.device for entry in sorted(mixed, key=lambda entry: entry.asked > 0)]
        explored = min(len(unknown), round(self.exploration(number) * count))
        explored = max(explored, count - len(utility))
        ranked = sorted(utility, key=lambda device: (-utility[device], device))
        drawn = _drawn(ranked, utility, count - explored, rng)
        rest = [device for device in ranked if device not in set(drawn)]
        return [*drawn, *unknown[:explored], *rest, *unknown[explored:]]

    def exploration(self, number: int) -> float:
        """Return epsilon of a round: the share of devices that were never asked."""
        settings = self.settings
        share = settings.exploration * settings.exploration_decay ** (number - 1)
        return max(settings.least_exploration, share)

    def utilities(self, candidates: Sequence[Candidate], number: int) -> dict[str, float]:
        """Return the utility of each device that has answered, by id."""
        known = {entry.device: entry for entry in candidates if entry.loss is not None}
        if not known:
            return {}
        taught = {
            name: entry.samples * max(0.0, entry.loss or 0.0) for name, entry in known.items()
        }
        clip = np.percentile(list(taught.values()), CLIP, method="lower")
        most = max(float(clip), np.finfo(float).tiny)
        seconds = [entry.seconds for entry in known.values() if entry.seconds]
        preferred = float(np.percentile(seconds, self.settings.percentile)) if seconds else 0.0
        return {
            name: (min(taught[name], most) / most + _uncertainty(entry.last, number))
            * self._speed(entry.seconds, preferred)
            for name, entry in known.items()
        }

    def _speed(self, seconds: float | None, preferred: float) -> float:
        if not seconds or seconds <= preferred:
            return 1.0
        return float((preferred / seconds) ** self.settings.alpha)


def _uncertainty(last: int, number: int) -> float:
    """Return the bonus of a device whose measurement is old; it grows with the rounds."""
    return math.sqrt(0.1 * math.log(number) / max(1, last))


def _drawn(
    ranked: Sequence[str], utility: Mapping[str, float], count: int, rng: np.random.Generator
) -> list[str]:
    """Draw devices by their utility from those near the best."""
    if count < 1:
        return []
    least = CUT_OFF * utility[ranked[count - 1]]
    able = [device for device in ranked if utility[device] >= least]
    weights = [max(utility[device], np.finfo(float).tiny) for device in able]
    return [able[index] for index in draw_by_weight(weights, rng)[:count]]
