"""The recipe's ``[privacy]`` table: differential privacy of the devices' updates."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgefed.config.recipes.sections import Section

Mechanism = Literal["none", "central", "local"]

NoiseMultiplier = Annotated[float, Field(ge=0.01, le=1000)]


class PrivacySection(Section):
    """Clipping of updates, noise on them, and a bound on the model's disclosure about a device.

    Two fleets are neighbours if they differ in all data of one device (replace-one).
    """

    mechanism: Mechanism = "none"
    """The party that adds noise: the coordinator to the sum of the updates (``central``), or each
    device to its own update (``local``); ``none`` for no noise and no clipping."""

    clip: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Largest L2 norm of an update, over all its arrays together; a longer one is scaled down."""

    adaptive: bool = False
    """With ``central``: whether ``clip`` is only the first round's norm, which then follows a
    quantile of the norms (Andrew et al. 2021)."""

    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """With ``adaptive``: fraction of the updates that are not scaled down."""

    clip_rate: Annotated[float, Field(gt=0, le=5)] = 0.2
    """With ``adaptive``: how fast the norm changes, as the factor's exponent."""

    count_noise: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """With ``adaptive``: standard deviation of the noise on the number of updates that are not
    scaled down. Unset: a twentieth of ``rounds.cohort``, and at least the noise multiplier."""

    noise_multiplier: NoiseMultiplier | None = None
    """Standard deviation of the Gaussian noise, as a multiple of ``clip``. Unset: the smallest that
    keeps the run within ``epsilon``."""

    epsilon: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """The most epsilon that the whole run may cost. Unset: no limit."""

    delta: Annotated[float, Field(gt=0, lt=0.5)] = 1e-5
    """The probability with which epsilon may not hold; choose less than 1 / number of devices."""

    population: Annotated[int, Field(ge=0, le=2**24)] = 0
    """With ``central``: devices that a cohort is at least drawn from, for privacy amplification by
    sampling. Cohorts are then drawn secretly, not from the run's seed. 0: nothing is counted on
    that."""

    @model_validator(mode="after")
    def _complete(self) -> PrivacySection:
        """Check that the settings that the mechanism needs are there."""
        if self.mechanism != "none" and self.noise_multiplier is None and self.epsilon is None:
            raise ValueError("noise_multiplier or epsilon is needed")
        if self.mechanism != "central" and (self.adaptive or self.population):
            raise ValueError('adaptive and population need mechanism = "central"')
        return self

    @property
    def wanted(self) -> bool:
        """Whether updates are clipped and noised."""
        return self.mechanism != "none"


NO_PRIVACY = PrivacySection()
"""Updates are neither clipped nor noised."""
