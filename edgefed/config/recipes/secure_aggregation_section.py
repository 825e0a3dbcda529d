"""The recipe's ``[secure_aggregation]`` table: sums that hide each device's contribution."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from edgefed.config.recipes.sections import Section


class SecureAggregationSection(Section):
    """Whether devices mask their updates, so that the coordinator sees only the sum of a round.

    Bonawitz et al., CCS 2017; see docs/secure-aggregation.md.
    """

    enabled: bool = False
    """Whether updates are masked. The result has the same bits as without, if ``wire.uplink`` is
    ``fp32``."""

    colluders: Annotated[float, Field(ge=0, le=255)] = 0.25
    """Devices that may collude with a coordinator that lies, without uncovering the update of
    another one: a fraction of those asked, below 1 and rounded down, or a whole number. It
    determines the least threshold."""

    threshold: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    """Devices that have to be there until the end of a round: a fraction of those asked, above 0.5
    and up to 1, or a whole number from 2. 0: the least that ``colluders`` allows, 7 of 10; a
    fraction below that is raised to it."""

    grid_bits: Annotated[int, Field(ge=0, le=40)] = 0
    """Updates are rounded to multiples of 2^-``grid_bits`` before they are masked; fewer bits make
    smaller replies. 0: the grid of the plain merge, 40 bits up to 65,535 samples."""

    wait: Annotated[float, Field(gt=0, le=7 * 86400)] = 60.0
    """Seconds that each exchange of keys and shares may take."""

    @field_validator("threshold")
    @classmethod
    def _fraction_or_count(cls, threshold: float) -> float:
        """Check that a number above 1 counts devices."""
        if 0 < threshold <= 0.5 or (threshold > 1 and threshold != int(threshold)):
            raise ValueError("must be 0, a fraction above 0.5 up to 1, or a whole number from 2")
        return threshold

    @field_validator("colluders")
    @classmethod
    def _fraction_or_number(cls, colluders: float) -> float:
        """Check that a number from 1 counts devices."""
        if colluders >= 1 and colluders != int(colluders):
            raise ValueError("must be a fraction below 1, or a whole number")
        return colluders

    @property
    def wanted(self) -> bool:
        """Whether updates are masked."""
        return self.enabled
