"""MOON: features stay near those of the global model, and move away from those of the last one.

Li, He, Song: Model-Contrastive Federated Learning, CVPR 2021, arXiv 2103.16257, algorithm 1.
Device k minimises, from the round's weights w,

    L_k(v) + μ l_con(v; w, v_k)        v_k: its model after its last training

with the contrastive loss of equation 3 (``learn/objectives/model_contrastive``). In its first round
v_k is w, where the contrastive loss has no gradient. The coordinator averages as FedAvg does. The
last model is kept whether or not the answer is merged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from edgefed.algorithms.averaging.fedavg import AveragingSettings, FedAvg
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import AlgorithmSettings
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result, Work
from edgefed.learn.base.types import Job, Trained
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.model_contrastive import ModelContrastive, compared_with

LAST = "last"
"""The group of a device's private state that holds v_k."""


class MoonSettings(AveragingSettings):
    """FedAvg's settings, and those of the contrastive loss."""

    contrast: Annotated[float, Field(ge=0, le=100)] = 1.0
    """μ: weight of the contrastive loss; 0 is FedAvg. The paper tunes it over 0.1, 1, 5 and 10."""

    temperature: Annotated[float, Field(ge=0.01, le=100)] = 0.5
    """τ: the smaller it is, the more small differences of features count."""


class Moon(FedAvg):
    """Averaging with a contrastive loss of models."""

    name = "moon"
    summary = "FedAvg whose features are held near those of the global model"
    paper = "Li et al., CVPR 2021, arXiv 2103.16257"
    averages_updates = True
    takes_user_loss = True
    keeps_lost_work = True
    Settings: ClassVar[type[AlgorithmSettings]] = MoonSettings
    settings: MoonSettings

    def can_carry_state(self) -> bool:
        """Return False: a step calls the model three times."""
        return False

    def check_model(self, model: Model) -> None:
        """Check that the model has features.

        Raises:
            DataError: ``model.features``: it has none.
        """
        if self.settings.contrast > 0:
            _ = model.output_layer

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train with the contrastive loss."""
        job = super().prepare(task, device)
        assert isinstance(job, Job)
        mu = self.settings.contrast
        if mu == 0:
            return job
        weights = {name: job.weights[name] for name in device.model.names}
        extra = compared_with(weights, device.private.get(LAST) or weights)
        objective = ModelContrastive(job.objective, device.model, mu, self.settings.temperature)
        return replace(job, objective=objective, extra={**job.extra, **extra})

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the update, and keep the model for the next round."""
        assert isinstance(result, Trained)
        answer = super().answer(task, device, result)
        if self.settings.contrast == 0:
            return answer
        return replace(answer, private={LAST: result.weights})
