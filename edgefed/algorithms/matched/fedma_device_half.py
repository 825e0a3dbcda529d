"""The device's half of FedMA: gather, train, scatter, freeze, and train again.

In the first step of a round a device gathers its own network from the global model and trains it.
In each further step it receives the last merged layer and its assignment of that layer's units. It
scatters the entries of its other layers for these units, freezes the merged layers, and trains the
others. Between the steps it keeps its network as private state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgefed.algorithms.averaging.class_shares import label_counts_of
from edgefed.algorithms.averaging.training import augment_of, objective_of, schedule_of
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Work
from edgefed.algorithms.matched.fedma_records import ATOMS, LAYER, part
from edgefed.algorithms.matched.fedma_settings import FedMaSettings
from edgefed.config.recipes.images_section import ImagesSection
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.errors import DataError
from edgefed.learn.base.permutation_groups import PermutationGroups
from edgefed.learn.base.types import Array, Job, Schedule, Tensors, Trained
from edgefed.learn.base.unit_moves import gather, scatter
from edgefed.learn.modeling.initial_weights import redrawn
from edgefed.learn.modeling.network_groups import permutation_groups
from edgefed.seeds import derive

LOCAL = "local"
"""Private state: the device's network, of whatever is not frozen."""

DONE = "done"
"""Private state: ``place`` (round, step) of the last answer, and its ``figures`` (samples, steps,
loss)."""


@dataclass(frozen=True)
class MatchingDeviceHalf:
    """One step on one device."""

    settings: FedMaSettings
    training: TrainingSection
    images: ImagesSection
    task: DeviceTask
    device: DeviceView

    @property
    def step(self) -> int:
        """The number of the step, from 0."""
        return int(self.task.params["step"])

    @property
    def wanted(self) -> tuple[str, ...]:
        """Names of the weights to send."""
        return tuple(self.task.params["wanted"])

    def prepare(self) -> Work | Answer:
        """Return the training of this step, or its answer, if it was given before."""
        place = self._place()
        if place == (self.task.round, self.step) and self.step > 0:
            return self._answer(self.device.private[LOCAL], self._figures())
        if self.step == 0:
            frozen: Tensors = {}
            weights = self._gathered(self._global())
        else:
            self._check_place(place)
            frozen = self._global()
            weights = {**self._scattered(frozen), **frozen}
        return Job(
            weights=part(weights, self.device.model.names),
            objective=objective_of(self.training),
            schedule=self._schedule(),
            seed=derive(self.task.seed, "step", self.step),
            frozen=frozenset(frozen),
            augment=augment_of(self.training, self.images),
        )

    def answer(self, trained: Trained) -> Answer:
        """Send this step's layers, and keep the network."""
        frozen = self._global() if self.step else {}
        kept = {name: array for name, array in trained.weights.items() if name not in frozen}
        figures = np.array([trained.samples, trained.steps, trained.loss])
        return self._answer(kept, figures)

    def _answer(self, local: Tensors, figures: Array) -> Answer:
        samples, steps, loss = figures
        place = np.array([self.task.round, self.step])
        answer = Answer(
            self.task.device,
            int(samples),
            {LAYER: Group(part(local, self.wanted), self.settings.layer_codec)},
            {"loss": float(loss), "steps": float(steps)},
            {LOCAL: local, DONE: {"place": place, "figures": figures}},
        )
        if not self.task.params.get("labels"):
            return answer
        labels, ledger = label_counts_of(self.task, self.device)
        return replace(answer, groups={**answer.groups, **labels}, ledger=ledger)

    # -- the device's progress ---------------------------------------------------------------------

    def _place(self) -> tuple[int, int]:
        known = self.device.private.get(DONE)
        return (int(known["place"][0]), int(known["place"][1])) if known else (0, -1)

    def _figures(self) -> Array:
        return self.device.private[DONE]["figures"]

    def _check_place(self, place: tuple[int, int]) -> None:
        if place != (self.task.round, self.step - 1):
            raise DataError(
                f"This device has not done step {self.step} of round {self.task.round}, so it"
                " cannot go on.",
                code="algorithm.private_state",
                hint="it takes part again from the next round",
            )

    # -- the network ------------------------------------------------------------------------------

    def _groups(self) -> PermutationGroups:
        """Return the groups of the task's network."""
        model = self.device.model
        assert model.section is not None
        return permutation_groups(model.section, model.shape, model.classes)

    def _global(self) -> Tensors:
        """Return the weights of the global model that the task brings."""
        return global_weights(self.task.groups)

    def _atoms(self) -> Mapping[str, Array]:
        return self.task.groups.get(ATOMS, {})

    def _gathered(self, weights: Tensors) -> Tensors:
        """Return the device's own part of the global model."""
        local = self._groups()
        matched = local.resized(self.task.params["widths"])
        own = gather(weights, local, matched, self._atoms())
        if self.settings.initial == "independent" and self.task.round == 1:
            return redrawn(own, self.task.params["seed"], "device", self.task.device)
        return own

    def _scattered(self, frozen: Tensors) -> Tensors:
        """Return the device's other layers, with the inputs that the last merged layer has."""
        matched, atoms = self._groups(), self._atoms()
        local = matched.resized({group: len(indices) for group, indices in atoms.items()})
        kept = self.device.private[LOCAL]
        own = {name: array for name, array in kept.items() if name not in frozen}
        return scatter(own, local, matched, atoms)

    def _schedule(self) -> Schedule:
        """Return how long and how fast this step trains."""
        schedule, settings = (
            schedule_of(self.training, self.task.round, self.task.rounds),
            self.settings,
        )
        if self.step == 0:
            return schedule
        epochs = self.training.epochs
        if settings.retrain_epochs is not None:
            epochs = settings.retrain_epochs
        factor = settings.retrain_learning_rate
        if self.task.params["last"]:
            epochs, factor = settings.last_epochs or epochs, settings.last_learning_rate
        return replace(schedule, epochs=epochs, learning_rate=factor * schedule.learning_rate)


def global_weights(groups: Mapping[str, Tensors]) -> Tensors:
    """Return the weights of the global model among a task's arrays."""
    return {
        name: array
        for role, arrays in groups.items()
        if role != ATOMS
        for name, array in arrays.items()
    }


def complete_weights(task: DeviceTask, device: DeviceView) -> Tensors:
    """Return the complete global model of a task; missing arrays are as in a new model.

    Batch normalisation's statistics are missing before they are measured.
    """
    known = global_weights(task.groups)
    lacking = set(device.model.names) - known.keys()
    new = device.model.weights() if lacking else {}
    return part({**new, **known}, device.model.names)
