"""Settings of matched averaging: variances, mass, penalty and bounds of a layer's matching."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from edgefed.errors import UsageError

Average = Literal["map", "matched", "all"]
Variance = float | Literal["auto"]


@dataclass(frozen=True)
class MatchSettings:
    """How units are matched and averaged.

    Attributes:
        sigma: variance of a device's unit around its atom; ``auto`` estimates it from the weights.
        sigma0: variance of atoms around their mean; ``auto`` derives it from the weights and
            ``sigma``.
        gamma: mass of the Beta process: the larger, the more atoms. Up to 1 the prior alone never
            prefers a new atom to one that a device holds.
        sweeps: how often at most all devices are matched again; matching stops after a sweep that
            changes nothing.
        new_penalty: ``poisson`` takes ``2 log k`` from the reward of a device's k-th new atom, as
            in the paper; ``none`` maximises the exact objective, which then never decreases, but
            with a gamma above 1 lets weights that hardly correspond become atoms each.
        prior_factor: of the logarithm of an atom's popularity; the reference implementation has 1.
        count_cap: popularity counts at most this many devices; the reference has 10.
        growth_cap: a device adds atoms up to this number, and one atom beyond it; the reference
            has 700.
        most_atoms: no matching has more atoms than this.
        average: an atom is the maximum a posteriori (``map``), the mean of its units
            (``matched``), or their sum divided by the number of devices (``all``).
    """

    sigma: Variance = "auto"
    sigma0: Variance = "auto"
    gamma: float = 1.0
    sweeps: int = 5
    new_penalty: Literal["none", "poisson"] = "poisson"
    prior_factor: float = 2.0
    count_cap: int | None = None
    growth_cap: int | None = None
    most_atoms: int | None = None
    average: Average = "matched"

    def __post_init__(self) -> None:
        """Refuse settings that no matching can use."""
        for name in ("sigma", "sigma0", "gamma", "prior_factor"):
            value = getattr(self, name)
            if value == "auto" and name in ("sigma", "sigma0"):
                continue
            if isinstance(value, str) or not (math.isfinite(value) and value > 0):
                raise _invalid(name, value, "a number above 0")
        for name in ("count_cap", "growth_cap", "most_atoms"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise _invalid(name, value, "at least 1")
        if self.sweeps < 0:
            raise _invalid("sweeps", self.sweeps, "at least 0")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise _invalid(name, getattr(self, name), f"one of {', '.join(choices)}")

    @classmethod
    def reference(cls, **changes: Any) -> MatchSettings:
        """Return the settings of the published implementation of FedMA, with ``changes``."""
        return replace(_REFERENCE, **changes)


_CHOICES = {"new_penalty": ("none", "poisson"), "average": ("map", "matched", "all")}

_REFERENCE = MatchSettings(
    sigma=1.0,
    sigma0=1.0,
    gamma=7.0,
    new_penalty="poisson",
    prior_factor=1.0,
    count_cap=10,
    growth_cap=700,
    average="map",
)


def _invalid(name: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"{name} is {value!r}, not {wanted}.", code="matching.settings")
