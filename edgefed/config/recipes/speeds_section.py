"""The recipe's ``[speeds]`` table: how long virtual devices take, in virtual time."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from edgefed.config.recipes.sections import Section

Rate = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class SpeedsSection(Section):
    """How long virtual devices take. The clock of a simulation then shows virtual seconds.

    All draws derive from the run's seed. Without ``seconds_per_sample`` and ``file``, a simulation
    has no virtual time.
    """

    seconds_per_sample: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 0.0
    """Median of the seconds in which a device trains on one sample once."""

    spread: Annotated[float, Field(ge=0, le=3, allow_inf_nan=False)] = 0.0
    """Standard deviation of the logarithm of a device's speed: 0 for equal devices; with 1, one in
    twenty is more than five times slower than the median."""

    uplink: Rate = 0.0
    """Bytes per second from a device, with the same spread; 0 for no limit."""

    downlink: Rate = 0.0
    """Bytes per second to a device, with the same spread; 0 for no limit."""

    absent: Annotated[float, Field(ge=0, le=0.9, allow_inf_nan=False)] = 0.0
    """Share of the time in which a device is away: it is not asked, and its work stands still."""

    absence: Annotated[float, Field(gt=0, le=30 * 86400, allow_inf_nan=False)] = 600.0
    """Mean length of an absence, in seconds."""

    file: Annotated[str, Field(max_length=4096, validate_default=True)] = ""
    """A CSV file of measured devices, such as ``edgefed run speeds`` prints, with the columns
    ``device`` and ``seconds_per_sample``, and ``uplink`` and ``downlink`` if wanted. Devices that
    are not in it, and empty cells, take the values above."""

    @property
    def wanted(self) -> bool:
        """Whether there is virtual time."""
        return self.seconds_per_sample > 0 or bool(self.file)

    @field_validator("file")
    @classmethod
    def _has_an_effect(cls, file: str, info: ValidationInfo) -> str:
        """Check that other keys do not wait for virtual time in vain."""
        others = ("spread", "uplink", "downlink", "absent")
        if not file and not info.data.get("seconds_per_sample", 1.0):
            for key in others:
                if info.data.get(key):
                    raise ValueError(f"is needed with {key}, unless seconds_per_sample is set")
        return file
