"""Settings of the algorithms that match units before they average them: PFNM and FedMA."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from edgefed.algorithms.interface.base import AlgorithmSettings
from edgefed.learn.matching.settings import MatchSettings

Variance = Annotated[float, Field(gt=0, le=1e12)] | Literal["auto"]


class MatchingSettings(AlgorithmSettings):
    """Settings shared by these algorithms; ``edgefed.learn.matching`` defines the terms."""

    sigma: Variance = "auto"
    """Variance of a device's unit around the atom it is matched with; ``auto`` estimates it from
    the weights of each layer."""

    sigma0: Variance = "auto"
    """Variance of atoms around their prior mean; ``auto`` derives it from the weights and
    ``sigma``."""

    gamma: Annotated[float, Field(gt=0, le=1e12)] = 1.0
    """Mass of the Beta process: the larger it is, the more units stay unmatched. Up to 1 the prior
    alone adds no atom; the reference implementation of FedMA has 7."""

    sweeps: Annotated[int, Field(ge=0, le=1000)] = 5
    """How often at most all devices are matched again, given the others; matching stops after a
    sweep that changes nothing."""

    new_penalty: Literal["none", "poisson"] = "poisson"
    """``poisson``: a device's k-th new atom costs 2 log k, as in the paper; ``none``: all new atoms
    cost the same, and the objective never decreases."""

    prior_factor: Annotated[float, Field(gt=0, le=1000)] = 2.0
    """Factor of the logarithm of an atom's popularity in the reward; the reference implementation
    has 1."""

    count_cap: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Popularity counts at most this many devices; 0 for all. The reference has 10."""

    growth_cap: Annotated[int, Field(ge=0, le=2**31)] = 0
    """A device adds atoms up to this number and one beyond it; 0 for no limit. The reference has
    700."""

    most_growth: Annotated[float, Field(ge=1, le=1024)] = 2.0
    """Largest width of a global layer, as a multiple of a device's; 1 keeps all widths."""

    average: Literal["map", "matched", "all"] = "matched"
    """The weights of an atom: the maximum a posteriori, which shrinks them towards the prior mean;
    the mean over the devices that hold it; or their sum divided by the number of devices."""

    reference: bool = False
    """Whether units are matched as the published implementation does: ``prior_factor`` 1,
    ``count_cap`` 10, ``growth_cap`` 700, ``new_penalty`` ``poisson``, ``average`` ``map``, and
    variances of 1 where they are ``auto``, whatever the recipe says of the first five; ``gamma``
    and ``sweeps`` stay as they are."""

    def match_settings(self, local: int) -> MatchSettings:
        """Return the settings of a layer's matching.

        Args:
            local: the layer's units on a device.
        """
        settings = MatchSettings(
            sigma=self.sigma,
            sigma0=self.sigma0,
            gamma=self.gamma,
            sweeps=self.sweeps,
            new_penalty=self.new_penalty,
            prior_factor=self.prior_factor,
            count_cap=self.count_cap or None,
            growth_cap=self.growth_cap or None,
            most_atoms=self.most_atoms(local),
            average=self.average,
        )
        return _as_published(settings) if self.reference else settings

    def most_atoms(self, local: int) -> int:
        """Return the bound on the units of a global layer that has ``local`` units on a device."""
        # Rounded first: 1.15 * 100 is 114.99999999999999
        return max(local, int(round(self.most_growth * local, 6)))


def _as_published(settings: MatchSettings) -> MatchSettings:
    """Return the settings with the published implementation's fixed values."""
    published = MatchSettings.reference()
    return replace(
        settings,
        sigma=published.sigma if settings.sigma == "auto" else settings.sigma,
        sigma0=published.sigma0 if settings.sigma0 == "auto" else settings.sigma0,
        new_penalty=published.new_penalty,
        prior_factor=published.prior_factor,
        count_cap=published.count_cap,
        growth_cap=published.growth_cap,
        average=published.average,
    )
