"""Ditto: every device also trains a model of its own, which stays near the global one.

Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through Personalization,
ICML 2021, arXiv 2012.04221, algorithm 1. In a round, from the global weights w and the own model v
of device k, which begins at its first w:

    w_k = argmin L_k(u) from u = w                          sent, and averaged as FedAvg does
    v <- argmin L_k(v) + λ/2 ||v - w||² from v              kept on the device

Devices test their own models. The own model is trained whether or not the answer is merged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from edgefed.algorithms.averaging.fedavg import AveragingSettings, FedAvg, trained
from edgefed.algorithms.averaging.training import objective_of
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import AlgorithmSettings
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceTest,
    DeviceView,
    EvalJob,
    Result,
    Work,
    WorkSequence,
)
from edgefed.config.recipes.recipe import EvaluationPlace
from edgefed.learn.base.types import Job, Trained
from edgefed.learn.objectives.proximal import Proximal, centred
from edgefed.seeds import derive

OWN = "own"
"""The group of a device's private state that holds v."""

KNOWN, NEW = "known", "new"
"""Modes of a test: of a device that has trained in this run, and of one that has not."""


class DittoSettings(AveragingSettings):
    """FedAvg's settings, and those of the own models."""

    own_pull: Annotated[float, Field(ge=0, le=100)] = 0.1
    """λ: how strongly the own model is pulled towards the global one; 0 is training alone. The
    paper tunes it over 0.05, 0.1 and 0.2, and up to 2."""

    own_epochs: Annotated[int, Field(ge=0, le=1000)] = 0
    """Epochs of the own model in a round; 0 for those of ``training.epochs``."""


class Ditto(FedAvg):
    """Averaging, with a model of its own on each device."""

    name = "ditto"
    summary = "FedAvg, and on each device a model of its own near the global one"
    paper = "Li et al., ICML 2021, arXiv 2012.04221"
    averages_updates = True
    takes_user_loss = True
    keeps_lost_work = True
    evaluation_place: EvaluationPlace = "devices"
    evaluation_modes = (KNOWN, NEW)
    Settings: ClassVar[type[AlgorithmSettings]] = DittoSettings
    settings: DittoSettings

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Train the global model, then the own one."""
        job = super().prepare(task, device)
        assert isinstance(job, Job)
        schedule = job.schedule
        if self.settings.own_epochs:
            schedule = replace(schedule, epochs=self.settings.own_epochs, max_steps=0)
        own = replace(
            job,
            weights=device.private.get(OWN) or job.weights,
            objective=Proximal(objective_of(self.training), self.settings.own_pull, True),
            schedule=schedule,
            seed=derive(task.seed, OWN),
            extra={**job.extra, **centred(trained(job.weights))},
        )
        return WorkSequence((job, own))

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Send the update of the global model, and keep the own one."""
        assert isinstance(result, tuple)
        shared, own = result
        assert isinstance(own, Trained)
        return replace(super().answer(task, device, shared), private={OWN: own.weights})

    def eval_job(self, task: DeviceTask, device: DeviceView) -> DeviceTest:
        """Test the own model, or the global one on a device that has none."""
        own = None if task.params.get("mode") == NEW else device.private.get(OWN)
        weights = own or task.groups["weights"]
        return EvalJob(weights, device.test, self.training.loss, KNOWN if own else NEW)
