"""How skewed a fleet is: by label, by features, by quantity and by speed.

The label skew of a device is the total variation distance between its label frequencies p and
those of the fleet, q:

    TV(p, q) = ½ Σ_c |p_c - q_c|        0: as the fleet; near 1: nothing in common

A few samples differ from q by chance. Frequencies of n random samples are expected at about

    TV_n = ½ Σ_c √(2 q_c (1 - q_c) / (π n))

so the fleet's skew is the mean over devices of max(0, (TV - TV_n) / (1 - TV_n)).

The feature skew is the strength s of the transform ``offset`` (``data/transforms/features``) that
spreads the devices' means as far: with m_dc and σ_dc the mean and standard deviation of channel c
on device d, and σ_c that of all devices' inputs,

    s² = mean over c of var_d(m_dc) / σ_c²        σ_c² = mean_d(σ_dc² + (m_dc - mean_d m_dc)²)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgefed.advise.profile import Profile
from edgefed.terminal.units import counted

NEARLY_NONE, MILD, STRONG = 0.1, 0.3, 0.6
"""Label skews from which on it is called mild, strong and extreme."""

MUCH = 3.0
"""Ratio of the 90th to the 10th percentile from which on devices are called uneven."""


@dataclass(frozen=True)
class Skew:
    """The skew of a fleet.

    Attributes:
        label: from 0 to 1; None where no device shares its labels.
        unknown: devices that do not.
        features: spread of the devices' inputs, in standard deviations; None where fewer than two
            devices share means of channels.
        quantity: ratio of the 90th to the 10th percentile of samples.
        speed: the same of seconds per sample; None where they are unknown.
    """

    label: float | None
    unknown: int
    features: float | None
    quantity: float
    speed: float | None

    @property
    def label_word(self) -> str:
        """The label skew in a word."""
        return "unknown" if self.label is None else _word(self.label)

    def lines(self) -> list[tuple[str, str]]:
        """Return the skew as rows of a name and a sentence."""
        rows = []
        if self.label is None:
            rows.append(("label skew", "unknown: no device shares its labels"))
        else:
            unknown = counted(self.unknown, "device")
            missing = f"; unknown of {unknown}" if self.unknown else ""
            rows.append(("label skew", f"{self.label_word} ({self.label:.2f} of 1){missing}"))
        if self.features is None:
            rows.append(("feature skew", "unknown: no two devices share means of channels"))
        else:
            spread = f"inputs differ by {self.features:.2f} standard deviations"
            rows.append(("feature skew", f"{_word(self.features)} ({spread})"))
        rows.append(("quantity skew", _ratio_text(self.quantity, "samples")))
        if self.speed is None:
            rows.append(("speed skew", "unknown: no run has measured the devices"))
        else:
            rows.append(("speed skew", _ratio_text(self.speed, "seconds a sample")))
        return rows


def _word(skew: float) -> str:
    names = ((NEARLY_NONE, "none"), (MILD, "mild"), (STRONG, "strong"), (math.inf, "extreme"))
    return next(name for most, name in names if skew < most)


def _ratio_text(ratio: float, unit: str) -> str:
    word = "uneven" if ratio >= MUCH else "even"
    return f"{word} (90th percentile of {unit} is {ratio:.1f} times the 10th)"


def skew_of(profile: Profile) -> Skew:
    """Return the skew of a fleet."""
    known = profile.with_labels
    speeds = [d.seconds_per_sample for d in profile.devices if d.seconds_per_sample is not None]
    return Skew(
        label=_label_skew([device.labels for device in known]) if known else None,
        unknown=len(profile.devices) - len(known),
        features=feature_skew(profile),
        quantity=_spread([device.samples for device in profile.devices]),
        speed=_spread(speeds) if speeds else None,
    )


def feature_skew(profile: Profile) -> float | None:
    """Return how far the means of the devices' channels are spread, in standard deviations.

    It is None where fewer than two devices share means of as many channels as the first one.
    """
    shared = [device.channels for device in profile.devices if device.channels]
    alike = [channels for channels in shared if len(channels) == len(shared[0])]
    if len(alike) < 2:
        return None
    means, deviations = np.moveaxis(np.array(alike, np.float64), -1, 0)
    between = means.var(axis=0)
    whole = (deviations**2).mean(axis=0) + between
    return float(np.sqrt(np.mean(between / np.maximum(whole, 1e-12))))


def _label_skew(histograms: Sequence[Sequence[int]]) -> float:
    counts = np.array(histograms, np.float64)
    sizes = counts.sum(axis=1)
    pooled = counts.sum(axis=0) / sizes.sum()
    distances = 0.5 * np.abs(counts / sizes[:, None] - pooled).sum(axis=1)
    chance = 0.5 * np.sqrt(2 * pooled * (1 - pooled) / (math.pi * sizes[:, None])).sum(axis=1)
    return float(np.mean(np.clip((distances - chance) / np.maximum(1 - chance, 1e-9), 0, 1)))


def _spread(values: Sequence[float]) -> float:
    low, high = np.percentile(np.array(values, np.float64), [10, 90])
    return float(high / low)
