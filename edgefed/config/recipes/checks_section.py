"""The recipe's ``[checks]`` table: comparisons of replies before a merge."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from edgefed.config.recipes.sections import Section

Factor = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class ChecksSection(Section):
    """Checks of a reply beside those of its roles, shapes and values, which always apply.

    A reply that fails is refused with the reason and lowers the device's trust score. The score
    begins at 1 and stays within 0 and 1. It is kept across runs, except by simulations.
    """

    norm_factor: Factor = 0.0
    """An update is refused if its norm is more than this many times the median norm of the
    cohort's updates; running statistics have a norm of their own. 0: not checked."""

    samples_factor: Factor = 0.0
    """A trained update is refused if it counts more than this many times the median number of
    samples of the cohort's. 0: not checked."""

    announced_factor: Factor = 0.0
    """A reply is refused if it counts more than this many times the samples that its device
    announced. 0: not checked; a merge never weighs more samples than announced."""

    announced_median_factor: Factor = 10.0
    """A device that announces more than this many times the median of the fleet's devices, of
    samples to train on or held out, is not asked until ``edgefed device release``. Used from three
    devices on, and not in simulations. 0: not checked."""

    trust_loss: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Reduction of the device's trust score by a refused reply. There is none if at least half of
    the replies to the same question were refused."""

    trust_gain: Annotated[float, Field(ge=0, le=1)] = 0.02
    """Increase of the score by an accepted reply."""

    quarantine_below: Annotated[float, Field(ge=0, le=1)] = 0.4
    """A device with a lower score is quarantined: it is not asked until an operator releases it. 0:
    no device is quarantined by its score."""

    trusted_from: Annotated[float, Field(ge=0, le=1, validate_default=True)] = 0.8
    """A refused reply makes a device suspect, which dashboards show, until its score has reached
    this value again."""

    @field_validator("trusted_from")
    @classmethod
    def _above_quarantine(cls, trusted_from: float, info: ValidationInfo) -> float:
        """Check that a score cannot be both trusted and too low."""
        low = info.data.get("quarantine_below", 0.0)
        if trusted_from < low:
            raise ValueError(f"must be at least quarantine_below, which is {low}")
        return trusted_from

    @property
    def compares(self) -> bool:
        """Whether replies are compared with each other, so that all must be there."""
        return self.norm_factor > 0 or self.samples_factor > 0
