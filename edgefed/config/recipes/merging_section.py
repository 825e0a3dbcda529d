"""The recipe's ``[merging]`` table: how the devices' updates become one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgefed.config.recipes.sections import Section

MergingRule = Literal[
    "mean",
    "median",
    "trimmed_mean",
    "krum",
    "multi_krum",
    "geometric_median",
    "norm_clipping",
]


class MergingSection(Section):
    """The merge of updates; every rule but ``mean`` bounds the influence of a few devices.

    ``median``, ``trimmed_mean``, ``krum``, ``multi_krum`` and ``geometric_median`` count every
    device once, regardless of the number of samples that it reports.
    """

    rule: MergingRule = "mean"
    """``mean``: the algorithm's own weighted mean. ``median``: of each weight. ``trimmed_mean``:
    of each weight, without the largest and smallest values. ``krum``: the one update that is
    nearest to its neighbours. ``multi_krum``: the mean of several such. ``geometric_median``: the
    point with the least sum of distances. ``norm_clipping``: the algorithm's mean of updates that
    are scaled down to a largest norm."""

    trimmed: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    """With ``trimmed_mean``: share of the values that is left out at each end."""

    malicious: Annotated[int, Field(ge=0, le=100_000)] = 1
    """With ``krum`` and ``multi_krum``: number f of malicious devices that are assumed in a cohort,
    which must give at least 2f + 3 answers."""

    selected: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """With ``multi_krum``: number of updates that are averaged; 0 for all but ``malicious``."""

    iterations: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """With ``geometric_median``: most steps of Weiszfeld's algorithm."""

    tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-9
    """With ``geometric_median``: the steps end when the sum of distances changes by less than this
    share of it."""

    smoothing: Annotated[float, Field(gt=0, le=1)] = 1e-6
    """With ``geometric_median``: least distance that a step divides by."""

    clip_norm: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    """With ``norm_clipping``: the largest norm; 0 for one relative to the cohort."""

    clip_factor: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    """With ``norm_clipping`` and no ``clip_norm``: the largest norm, as a multiple of the median
    norm of the cohort's updates."""

    @property
    def replaces(self) -> bool:
        """Whether one common update takes the place of every device's."""
        return self.rule not in ("mean", "norm_clipping")

    @property
    def needs_all(self) -> bool:
        """Whether all replies must be there before the first is merged."""
        return self.replaces or (self.rule == "norm_clipping" and self.clip_norm == 0)

    @property
    def least_answers(self) -> int:
        """Fewest answers to which the rule's guarantee applies."""
        return 2 * self.malicious + 3 if self.rule in ("krum", "multi_krum") else 1
