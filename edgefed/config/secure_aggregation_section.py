"""The recipe's ``[secure_aggregation]`` table: sums that hide what each device adds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from edgefed.config.sections import Section


class SecureAggregationSection(Section):
    """Whether devices mask their updates, so that the coordinator sees only the sum of a round.

    Bonawitz et al., CCS 2017; see docs/secure-aggregation.md.
    """

    enabled: bool = False
    """Whether updates are masked. The result has the same bits as without, if ``wire.uplink`` is
    ``fp32``."""

    threshold: Annotated[float, Field(gt=0.5, le=1_000_000)] = 2 / 3
    """Devices that have to be there until the end of a round: a fraction of those asked, above 0.5
    and up to 1, or a whole number from 2. It is more than half of those asked. So many devices,
    and no fewer, can uncover what a device added."""

    grid_bits: Annotated[int, Field(ge=0, le=40)] = 0
    """Updates are rounded to multiples of 2^-``grid_bits`` before they are masked; fewer bits make
    smaller replies. 0: the grid of the plain merge, 40 bits up to 65,535 samples."""

    wait: Annotated[float, Field(gt=0, le=7 * 86400)] = 60.0
    """Seconds that each exchange of keys and shares may take."""

    @field_validator("threshold")
    @classmethod
    def _fraction_or_count(cls, threshold: float) -> float:
        """Check that a number above 1 counts devices."""
        if threshold > 1 and threshold != int(threshold):
            raise ValueError("must be a fraction above 0.5 and up to 1, or a whole number from 2")
        return threshold

    @property
    def wanted(self) -> bool:
        """Whether updates are masked."""
        return self.enabled
