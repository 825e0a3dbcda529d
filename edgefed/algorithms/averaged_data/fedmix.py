"""FedMix: mixup with averaged data of all devices, by a Taylor expansion around own samples.

Yoon, Shin, Hwang, Yang: FedMix: Approximation of Mixup under Mean Augmented Federated Learning,
ICLR 2021, equation 5 and algorithm 2. With u = (1 - λ) x and (x_g, y_g) drawn from the stack for
each batch, a device minimises

    (1 - λ) ℓ(f(u), y) + λ ℓ(f(u), y_g) + λ ⟨∂ℓ(f(u), y)/∂u, x_g⟩

``mean_exchange`` exchanges the averages; ``edgefed.learn.objectives`` has the loss.
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
from edgefed.learn.objectives.fed_mix import FedMixObjective


class FedMixSettings(MeanSettings):
    """Settings of ``fedmix``."""

    mixup_ratio: Annotated[float, Field(ge=0, le=1)] = 0.05
    """λ: the weight of the averaged data; large values are unstable."""

    taylor: Literal["lam", "lam(1-lam)"] = "lam"
    """Coefficient of the derivative: λ as in equation 5, or λ(1 - λ) as algorithm 2 prints it."""

    taylor_labels: Literal["own", "mixed"] = "own"
    """Labels in the derivative: the device's own as in the paper, or ``mixed`` with the average's,
    which is steadier for larger λ."""


class FedMix(FedAvg):
    """Mixup with averaged data, to first order."""

    settings: FedMixSettings

    name = "fedmix"
    summary = "Mixup with averaged data of all devices, by a Taylor expansion"
    paper = "Yoon et al., ICLR 2021, arXiv 2107.00233"
    takes_user_loss = False
    Settings: ClassVar[type[AlgorithmSettings]] = FedMixSettings

    def parts(self) -> tuple[ExchangePart, ...]:
        """Exchange averages before training."""
        return (MeanExchange(self.name, self.settings, self.training, self.mixing()),)

    def mixing(self) -> Objective:
        """Return equation 5, which is the loss itself for λ = 0."""
        loss = loss_of(self.training)
        if self.settings.mixup_ratio == 0:
            return loss  # by its own name, as its shortcuts round otherwise
        return FedMixObjective(
            self.settings.mixup_ratio, self.settings.taylor, loss, self.settings.taylor_labels
        )
