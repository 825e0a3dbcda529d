"""FedAvg with a local loss that depends on a device's numbers of samples of each label."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.averaging.training import refuse_label_settings
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Work
from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import RecipeError
from edgefed.learn.base.types import Job, Objective
from edgefed.learn.objectives.label_counts import COUNTS, label_counts


class LabelWeighting(FedAvg):
    """The common part of such algorithms; counts of own samples never leave the device."""

    takes_user_loss = False

    @abstractmethod
    def label_loss(self) -> Objective | None:
        """Return the loss, or None where the settings make it plain cross-entropy."""

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check that there are labels, and that nothing else weighs them.

        Raises:
            RecipeError: ``algorithm.labels``.
        """
        if self.training.loss == "squared_error":
            raise RecipeError(
                f"{self.name} weighs labels, and squared error has none.",
                code="algorithm.labels",
                hint='set training.loss = "cross_entropy", or choose fedavg',
            )
        if self.label_loss() is not None:
            refuse_label_settings(self.training, f"{self.name} changes the softmax by label")

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train as FedAvg does, with the device's numbers of labels among the job's extras."""
        job = super().prepare(task, device)
        assert isinstance(job, Job)
        counts = label_counts(device.train, device.model.classes)
        return replace(job, extra={**job.extra, COUNTS: counts})

    def objective(self) -> Objective:
        """Return the loss, with the proximal term where ``mu`` > 0."""
        loss = self.label_loss()
        # Shortcuts know FedAvg's own objective by its name.
        return super().objective() if loss is None else self.proximal(loss)
