"""GlobalMix: mixup with raw samples of other devices, possible only in a simulation.

It is the upper bound of Yoon, Shin, Hwang, Yang: FedMix, ICLR 2021, section 4. For each sample a
raw sample x_j of another device is drawn, and a device minimises

    ℓ(f((1 - λ) x + λ x_j), (1 - λ) y + λ y_j)        λ ~ Beta(α, α) for each step, or fixed

Raw samples are averaged data with M = 1; ``mean_exchange`` exchanges them.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from edgefed.algorithms.averaged_data.mean_exchange import MeanExchange
from edgefed.algorithms.averaged_data.mean_settings import MeanSettings
from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.averaging.training import loss_of
from edgefed.algorithms.interface.base import AlgorithmSettings
from edgefed.algorithms.interface.exchange_part import ExchangePart
from edgefed.learn.base.types import Objective
from edgefed.learn.objectives.global_mix import GlobalMixObjective


class GlobalMixSettings(MeanSettings):
    """Settings of ``globalmix``."""

    mixup_alpha: Annotated[float, Field(gt=0, le=100)] = 1.0
    """α of the Beta distribution that λ is drawn from."""

    mixup_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """A fixed λ, the weight of the other's sample; 0 to draw it."""

    group_size: Literal[1] = 1
    """Raw samples."""

    merge_entries: Literal[1] = 1
    """None are averaged."""

    exclude_own: bool = True
    """A device mixes with the samples of others only."""


class GlobalMix(FedAvg):
    """Mixup with others' raw samples."""

    settings: GlobalMixSettings

    name = "globalmix"
    summary = "Mixup with raw samples of other devices; simulations only"
    paper = "Yoon et al., ICLR 2021, arXiv 2107.00233"
    takes_user_loss = False
    simulation_only: ClassVar[bool] = True
    Settings: ClassVar[type[AlgorithmSettings]] = GlobalMixSettings

    def parts(self) -> tuple[ExchangePart, ...]:
        """Exchange averages before training."""
        return (MeanExchange(self.name, self.settings, self.training, self.mixing(), raw=True),)

    def mixing(self) -> Objective:
        """Return mixup over devices."""
        alpha, ratio = self.settings.mixup_alpha, self.settings.mixup_ratio or None
        return GlobalMixObjective(alpha, ratio, loss_of(self.training))
