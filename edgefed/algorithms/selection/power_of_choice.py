"""Power of choice: of d devices drawn by their samples, those with the highest loss are asked.

Cho, Wang, Joshi: Towards Understanding Biased Client Selection in Federated Learning, AISTATS 2022
(arXiv 2010.01243), variant rpow-d of section 5: the loss of a device is that of its last local
training, so that no further exchange is needed, and infinite before its first.

    A = d devices, drawn without replacement with probabilities p_k = n_k / sum_j n_j
    S = the m devices of A with the highest F_k
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from edgefed.algorithms.selection.base import (
    Candidate,
    Selector,
    SelectorSettings,
    draw_by_weight,
)


class PowerOfChoiceSettings(SelectorSettings):
    """Settings of power of choice."""

    candidates: Annotated[float, Field(ge=1, le=1000)] = 2.0
    """d / m: devices drawn by their samples for each device that is asked. 1 is ``samples``; larger
    values prefer devices with a high loss more."""


class PowerOfChoice(Selector[PowerOfChoiceSettings]):
    """Devices whose last training had a high loss."""

    name = "power-of-choice"
    summary = "of some devices drawn by their samples, those with the highest loss"
    paper = "Cho et al., AISTATS 2022, arXiv 2010.01243"
    needs_loss = True
    Settings: ClassVar[type[SelectorSettings]] = PowerOfChoiceSettings

    def order(
        self, candidates: Sequence[Candidate], count: int, number: int, rng: np.random.Generator
    ) -> Sequence[str]:
        """Return the drawn devices by their loss, and then the others."""
        drawn = draw_by_weight([candidate.samples for candidate in candidates], rng)
        first = max(count, math.ceil(round(self.settings.candidates * count, 6)))
        ranked = sorted(drawn[:first], key=lambda index: -_loss(candidates[index]))
        return [candidates[index].device for index in [*ranked, *drawn[first:]]]


def _loss(candidate: Candidate) -> float:
    return math.inf if candidate.loss is None else candidate.loss
