"""NaiveMix: mixup of the device's samples with unmodified averaged data of all devices.

Yoon, Shin, Hwang, Yang: FedMix: Approximation of Mixup under Mean Augmented Federated Learning,
ICLR 2021, equation 1. With u = (1 - λ) x + λ x_g, a device minimises

    (1 - λ) ℓ(f(u), y) + λ ℓ(f(u), y_g)

``mean_exchange`` exchanges the averages; ``edgefed.learn.objectives`` has the loss.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from edgefed.algorithms.averaged_data.mean_exchange import MeanExchange
from edgefed.algorithms.averaged_data.mean_settings import MeanSettings
from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.averaging.training import loss_of
from edgefed.algorithms.interface.base import AlgorithmSettings
from edgefed.algorithms.interface.exchange_part import ExchangePart
from edgefed.learn.base.types import Objective
from edgefed.learn.objectives.naive_mix import NaiveMixObjective


class NaiveMixSettings(MeanSettings):
    """Settings of ``naivemix``."""

    mixup_ratio: Annotated[float, Field(ge=0, le=1)] = 0.1
    """λ: the weight of the averaged data."""


class NaiveMix(FedAvg):
    """Mixup with averaged data as if they were samples."""

    settings: NaiveMixSettings

    name = "naivemix"
    summary = "Mixup with averaged data of all devices, taken as samples"
    paper = "Yoon et al., ICLR 2021, arXiv 2107.00233"
    takes_user_loss = False
    Settings: ClassVar[type[AlgorithmSettings]] = NaiveMixSettings

    def parts(self) -> tuple[ExchangePart, ...]:
        """Exchange averages before training."""
        return (MeanExchange(self.name, self.settings, self.training, self.mixing()),)

    def mixing(self) -> Objective:
        """Return equation 1, which is the loss itself for λ = 0."""
        loss = loss_of(self.training)
        if self.settings.mixup_ratio == 0:
            return loss  # by its own name, as its shortcuts round otherwise
        return NaiveMixObjective(self.settings.mixup_ratio, loss)
