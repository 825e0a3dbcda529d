"""LocalMix: mixup within each device, without any exchange of data.

Zhang, Cissé, Dauphin, Lopez-Paz: mixup: Beyond Empirical Risk Minimization, ICLR 2018. It is a
baseline of Yoon et al.: FedMix, ICLR 2021, section 4. With π a permutation of the batch, a device
minimises

    ℓ(f(λ x + (1 - λ) x_π), λ y + (1 - λ) y_π)        λ ~ Beta(α, α) for each step
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from edgefed.algorithms.averaged_data.mean_settings import SplitSettings
from edgefed.algorithms.averaged_data.mix_layer import behind, check_split
from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.averaging.training import loss_of
from edgefed.algorithms.interface.base import AlgorithmSettings
from edgefed.learn.base.types import Objective
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.local_mix import LocalMixObjective


class LocalMixSettings(SplitSettings):
    """Settings of ``localmix``."""

    mixup_alpha: Annotated[float, Field(gt=0, le=100)] = 1.0
    """α of the Beta distribution that λ is drawn from."""


class LocalMix(FedAvg):
    """FedAvg whose devices mix their own samples."""

    settings: LocalMixSettings

    name = "localmix"
    summary = "FedAvg with mixup inside each device"
    paper = "Zhang et al., ICLR 2018, arXiv 1710.09412"
    takes_user_loss = False
    Settings: ClassVar[type[AlgorithmSettings]] = LocalMixSettings

    def check_model(self, model: Model) -> None:
        """Check that the model can be mixed at the recipe's layer."""
        check_split(self.name, model, self.settings.split)

    def objective(self) -> Objective:
        """Return mixup of each batch with itself."""
        settings, loss = self.settings, loss_of(self.training)
        mixing = LocalMixObjective(settings.mixup_alpha, loss)
        return self.proximal(behind(mixing, settings.split, settings.embedding_grad, loss))
