"""A bound on a release's disclosure about one record: pure differential privacy of mixes.

Neighbouring data sets differ in one record, replaced by another of the same label. A mechanism is
ε-differentially private if no outcome is more than e^ε times as probable for one as for the other.
A mix adds Laplace noise of scale σ to a weighted mean of k records. A record that takes part moves
the mean by at most w Δ in the 1-norm, with w its weight and Δ the diameter of the domain, so an
outcome's density changes by e^c at most, c = w Δ / σ. It takes part with probability q only, and

    ε = log(1 - q + q e^c)

if its part can be exchanged for another record's without changing the rest of the draw. See Borgnia
et al.: DP-InstaHide, arXiv 2103.02079, for equal weights and q = k / n.

For a mix of label y by DP-LabelHide, with n_y records of the label and n_o others:

    role                 q                      c
    first, of label y    1 / n_y                high Δ / σ
    another              (k - 1) / n_o          (1 - low) Δ / σ

This is for others of other labels. If they are any records of the n, a record of label y may have
either role, q = 1/n_y + (1 - 1/n_y) (k - 1) / (n - 1), and its part as the first can be exchanged
only for records that are not among the others already. These are weighted more than evenly, by at
most r = (n_y - 1) / (n_y - k) · (n - k) / (n - 1), and q is replaced by q r / (1 - q + q r).

A release is charged with its largest ε over the roles, to every record; several add up. The label
itself and the existence of a record with it are disclosed. All this holds only if the draws are
secret.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from edgefed.sharing.label_mixes import MixSettings

VACUOUS = 10.0
"""From this ε on, an attacker may tell two candidate records apart in 99.995 % of cases."""


@dataclass(frozen=True)
class Role:
    """How a record may take part in a mix.

    Attributes:
        probability: q, that it does, corrected by r.
        change: c, by which it then changes the logarithm of an outcome's density.
    """

    probability: float
    change: float

    @property
    def epsilon(self) -> float:
        """log(1 - q + q e^c), for any c."""
        return amplified(self.probability, self.change)


def amplified(probability: float, change: float) -> float:
    """Return log(1 - q + q e^c) without overflow and without loss for small c."""
    if probability <= 0 or change <= 0:
        return 0.0
    if probability >= 1:
        return change
    if change < 1:
        return math.log1p(probability * math.expm1(change))
    outside, inside = math.log1p(-probability), math.log(probability) + change
    high, low = max(outside, inside), min(outside, inside)
    return high + math.log1p(math.exp(low - high))


def mix_roles(
    settings: MixSettings, diameter: float, of_label: int, other: int
) -> tuple[Role, ...] | None:
    """Return the roles of a record in one mix; None where nothing bounds them.

    Args:
        settings: of the mixes.
        diameter: Δ, the largest distance of two inputs in the 1-norm; the number of pixels for
            pixels from 0 to 1. It must not depend on the data.
        of_label: n_y, at least 1.
        other: n_o, records of other labels.
    """
    if settings.noise_scale <= 0 or settings.others == "global" or of_label < 1:
        return None
    unit = diameter / settings.noise_scale
    if settings.width == 1:
        return (Role(1 / of_label, unit),)
    first, rest = settings.high * unit, (1 - settings.low) * unit
    partners = settings.width - 1
    if settings.others == "other_classes":
        if other < partners:
            return None
        return (Role(1 / of_label, first), Role(partners / other, rest))
    total = of_label + other
    if total - 1 < partners:
        return None
    part = partners / (total - 1)
    either = _either_role(settings.width, of_label, total, part)
    roles = (Role(either, max(first, rest)), Role(part, rest))
    return roles if other else roles[:1]


def mix_epsilon(
    settings: MixSettings, diameter: float, of_label: int, other: int, count: int = 1
) -> float | None:
    """Return the ε of ``count`` mixes of a label; None where it is not finite.

    Args:
        settings: of the mixes.
        diameter: Δ, as for ``mix_roles``.
        of_label: n_y.
        other: n_o.
        count: number of mixes released, to any receivers.
    """
    roles = mix_roles(settings, diameter, of_label, other)
    return None if roles is None else count * max(role.epsilon for role in roles)


def uniform_mix_epsilon(
    width: int, records: int, diameter: float, noise_scale: float, count: int = 1
) -> float | None:
    """Return the ε of mixes of ``width`` of all records with equal weights (DP-InstaHide)."""
    if noise_scale <= 0 or not 1 <= width <= records:
        return None
    return count * amplified(width / records, diameter / (width * noise_scale))


def composed(epsilons: Iterable[float | None]) -> float | None:
    """Return the ε of several releases, their sum; None if one of them has none.

    Exact and Gaussian means, and label counts, have no finite pure ε: theirs is None.
    """
    values = list(epsilons)
    known = [epsilon for epsilon in values if epsilon is not None]
    return math.fsum(known) if len(known) == len(values) else None


def is_vacuous(epsilon: float | None) -> bool:
    """Return whether an ε excludes practically nothing."""
    return epsilon is None or epsilon >= VACUOUS


def in_words(epsilon: float | None) -> str:
    """Return the meaning of an ε for the owner of a record, in a sentence."""
    if epsilon is None:
        return "no formal guarantee: no finite epsilon bounds what the releases tell"
    if is_vacuous(epsilon):
        return (
            f"epsilon {epsilon:.4g} is vacuous: it formally permits that a record is recognised;"
            " attacks on such mixes succeed"
        )
    right = 1 / (1 + math.exp(-epsilon))
    return (
        f"epsilon {epsilon:.4g}: of two equally likely records, nobody tells the true one in more"
        f" than {right:.1%} of cases"
    )


def _either_role(width: int, of_label: int, total: int, part: float) -> float:
    """Return the corrected q of a record of the label that is mixed, where others are any."""
    if of_label <= width:
        return 1.0
    either = 1 / of_label + (1 - 1 / of_label) * part
    weight = (of_label - 1) / (of_label - width) * (total - width) / (total - 1)
    return either * weight / (1 - either + either * weight) if weight > 1 else either
