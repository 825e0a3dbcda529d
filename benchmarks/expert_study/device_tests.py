"""Test a run's state on the devices that trained it, and on new ones.

A new device has no personal part. It begins with the run's initial values (``start``) or with the
average over the known devices (``average``), as the paper of the mixture of experts does: for
biased FedAvg and FedPer the average of the personal weights; for LG-FedAvg that of what all
devices' first layers make of a sample. With experts it fits a gate by its labels (``fitted``), or
takes the mean of all known devices' gates (``marginal``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.studies.runs import Private
from edgefed.algorithms.composed.registry import AnyAlgorithm, make
from edgefed.algorithms.experts.expert_records import mixtures_of, role
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceView,
    PredictorEvalJob,
    TrainedEvalJob,
)
from edgefed.algorithms.interface.member import Member
from edgefed.algorithms.private.personal_models import PERSONAL, START
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.models.run_model import load_dataset, make_model
from edgefed.data.base.types import Shard
from edgefed.data.devices.partition import deal
from edgefed.learn.base.types import Samples, Score, Tensors
from edgefed.learn.samples.jobs import load
from edgefed.learn.training.mixture_prediction import Gate, marginal_predictor, prior_shares
from edgefed.learn.training.trainer import Trainer
from edgefed.seeds import derive
from edgefed.sharing.policy import ANYTHING
from edgefed.worker.run_work import run_work

FITTING = 12
"""Epochs in which a new device fits its gate in the mode ``fitted long``: about as many as a known
device's gate has had."""


@dataclass(frozen=True)
class DeviceTests:
    """Tests of one run's states.

    Attributes:
        algorithm: of the run, with a cohort of all devices.
        trainer: has the run's model.
        known, new: shards of devices that train, by device, and of those that never do.
        personal: the preset of personal weights.
        seed: of fitting.
    """

    algorithm: AnyAlgorithm
    trainer: Trainer
    known: Mapping[str, Shard]
    new: Mapping[str, Shard]
    personal: str
    seed: int

    @classmethod
    def of(cls, recipe: Recipe, known: Mapping[str, Shard], file: Path | None) -> DeviceTests:
        """Return the tests of a run on the devices that train, and on those of another file."""
        everyone = recipe.rounds.model_copy(update={"cohort": 0})
        algorithm = make(recipe.model_copy(update={"rounds": everyone}))
        dataset = load_dataset(recipe, None)
        model = make_model(recipe, dataset.shape, dataset.classes, 0)
        algorithm.check_model(model)
        new = {}
        if file is not None:
            section = recipe.data.model_copy(update={"path": str(file.absolute())})
            other = load_dataset(recipe.model_copy(update={"data": section}), None)
            count = len(set(other.groups.tolist())) if other.groups is not None else 0
            shards = deal(other, section, count, recipe.simulation.holdout or 0.0, recipe.seed)
            new = {f"new-{number:02d}": shard for number, shard in enumerate(shards)}
        seed = derive(recipe.seed, "device tests")
        return cls(algorithm, Trainer(model), known, new, recipe.personal.preset, seed)

    def scores(
        self, state: State, private: Mapping[str, Private], *, last: bool = True
    ) -> dict[str, float]:
        """Return the mean accuracy over devices by mode, ``known`` among them.

        Args:
            state: what is tested.
            private: of the known devices that have trained.
            last: whether what takes long is tested too.
        """
        trained = {each: shard for each, shard in self.known.items() if each in private}
        known = [private[each] for each in trained]
        found = {"known": self._mean(state, trained, private)}
        if not self.new:
            return found
        found["start"] = self._mean(state, self.new, {})
        if state.groups.get(START):
            found["average"] = self._average(state, known)
        if self.algorithm.name == "fedmoe":
            found["fitted"] = found.pop("start")
            if last:
                found["fitted long"] = self._mean(state, self.new, {}, FITTING)
            found["marginal"] = self._marginal(state, known)
        return found

    # -- with what devices know themselves ------------------------------------------------------

    def _mean(
        self,
        state: State,
        shards: Mapping[str, Shard],
        private: Mapping[str, Private],
        fitting: int = 0,
    ) -> float:
        """Return the mean accuracy of devices with their own private state."""
        model = self.trainer.model
        roster = tuple(
            Member(device, len(shard.train), model.shape, model.classes)
            for device, shard in shards.items()
        )
        exchange = self.algorithm.evaluation(state, roster, self.seed)
        scores = []
        for question in exchange.questions:
            task = DeviceTask(
                question="evaluate",
                round=exchange.round,
                device=question.device,
                seed=derive(self.seed, "evaluate", question.device),
                groups={k: exchange.payloads[name].arrays for k, name in question.blobs.items()},
                params=question.params,
            )
            shard = shards[question.device]
            own = private.get(task.device, {})
            view = DeviceView(shard.train, shard.test, own, ANYTHING, model)
            test = self.algorithm.eval_job(task, view)
            if fitting and isinstance(test, TrainedEvalJob):
                schedule = replace(test.job.schedule, epochs=fitting)
                test = replace(test, job=replace(test.job, schedule=schedule))
            result = run_work(self.trainer, test, shard.train)
            assert isinstance(result, Score)
            scores.append(result.accuracy or 0.0)
        return math.fsum(scores) / len(scores)

    # -- with what known devices would have to tell ---------------------------------------------

    def _average(self, state: State, known: Sequence[Private]) -> float:
        """Return the accuracy on new devices with the average of personal parts."""
        parts = [each[PERSONAL] for each in known]
        if self.personal == "lg":
            shared = self.algorithm.weights(state)
            return _over(self.new, lambda test: self._encoded(shared, parts, test))
        mean = {name: np.mean([part[name] for part in parts], axis=0) for name in parts[0]}
        private = {PERSONAL: {name: each.astype(np.float32) for name, each in mean.items()}}
        return self._mean(state, self.new, dict.fromkeys(self.new, private))

    def _encoded(self, shared: Tensors, parts: Sequence[Tensors], test: Samples) -> float:
        """Return the accuracy with the mean of the representations of all first layers."""
        hidden = sum(
            self.trainer.encode({**shared, **part}, test.inputs, 1) / len(parts) for part in parts
        )
        model = self.trainer.model
        with torch.no_grad():
            given = torch.from_numpy(np.asarray(hidden, np.float32))
            logits = model.decode(load(model, shared, self.trainer.device), given, 1)
        return float((logits.argmax(dim=1).numpy() == test.targets).mean())

    def _marginal(self, state: State, known: Sequence[Private]) -> float:
        """Return the accuracy on new devices by the mean of all known devices' gates."""
        mixtures = mixtures_of(state)
        experts = {
            k: state.groups[role(k)] for k in range(len(next(iter(mixtures.values())).shares))
        }
        gates = [_gate(each["gate"]) for each in known]
        prior = prior_shares([1] * len(gates))  # all devices have the same number of samples
        predictor = marginal_predictor(experts, gates, prior)

        def accuracy(test: Samples) -> float:
            result = run_work(self.trainer, PredictorEvalJob(predictor, test), test)
            assert isinstance(result, Score)
            return result.accuracy or 0.0

        return _over(self.new, accuracy)


def _gate(kept: Tensors) -> Gate:
    numbers = tuple(int(each) for each in kept["kept"])
    return Gate(kept["weight"], kept["bias"], kept["shares"], numbers)


def _over(shards: Mapping[str, Shard], accuracy: Callable[[Samples], float]) -> float:
    return math.fsum(accuracy(shard.test) for shard in shards.values()) / len(shards)
