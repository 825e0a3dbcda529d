"""The device's half of the federated mixture of experts: its job, its answer, and its test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from edgefed.algorithms.averaging.fedavg import difference
from edgefed.algorithms.averaging.training import augment_of, loss_of, schedule_of
from edgefed.algorithms.experts.expert_records import COLLECT, GATE, MIXTURE, PHI, TABLE, role
from edgefed.algorithms.experts.expert_settings import ExpertSettings
from edgefed.algorithms.experts.marginal_gates import marginal
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceTest,
    DeviceView,
    EvalJob,
    PredictorEvalJob,
    TrainedEvalJob,
)
from edgefed.config.recipes.images_section import ImagesSection
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.errors import DataError
from edgefed.learn.base.mixture_table import device_shares, kept_experts, pruned
from edgefed.learn.base.types import Array, Job, Samples, Tensors, Trained
from edgefed.learn.modeling.model_memory import COPIES
from edgefed.learn.objectives import expert_mixture as names
from edgefed.learn.objectives.expert_mixture import ExpertMixture, check_conditions, expert_name
from edgefed.learn.training.mixture_prediction import Gate, device_predictor
from edgefed.seeds import generator

OWN, BIAS = "gate", "bias"
"""Groups of a device's private state: its gate with its shares, and its output bias."""

EXPERTS = "experts"
"""The parameter of a task that names the experts it comes with."""

KNOWN, FITTED, MARGINAL = "known", "fitted", "marginal"
"""Modes of a test: by the gate that training left, by one that is fitted to the device's labels for
the test, and by other devices' gates, which needs no labels."""


@dataclass(frozen=True)
class ExpertDeviceHalf:
    """The work of a device in one task.

    Args:
        settings: of the algorithm.
        training: the recipe's ``[training]`` table.
        images: its ``[images]`` table.
        task: with the experts, and the table or the averaged gate.
        device: its samples and private state.
    """

    settings: ExpertSettings
    training: TrainingSection
    images: ImagesSection
    task: DeviceTask
    device: DeviceView

    @cached_property
    def sent(self) -> tuple[int, ...]:
        """Numbers of the experts that came with the task.

        Where the device's memory does not suffice for all, those with its largest shares; the
        others count as not sent.
        """
        sent = tuple(self.task.params[EXPERTS])
        one = COPIES * self.device.model.weight_bytes
        room = max(1, self.device.memory // one)
        if len(sent) <= room:
            return sent
        raw = self._raw(self.shared())
        # Among equal shares, devices differ in what they leave out.
        first = int(generator(0, "room", self.task.device).integers(len(raw)))
        order = sorted(sent, key=lambda k: (-raw[k], (k - first) % len(raw)))
        return tuple(sorted(order[:room]))

    def experts(self) -> dict[int, Tensors]:
        """Return the experts' weights by number."""
        return {expert: self.task.groups[role(expert)] for expert in self.sent}

    # -- training -------------------------------------------------------------------------------

    def job(self) -> Job:
        """Return the training of experts, shares and gate; of a lone expert, plain training."""
        plain = Job(
            weights=self.task.groups[role(self.sent[0])],
            objective=loss_of(self.training),
            schedule=schedule_of(self.training, self.task.round, self.task.rounds),
            seed=self.task.seed,
            augment=augment_of(self.training, self.images),
        )
        if self.settings.experts == 1 and not self.settings.personal_bias:
            return plain
        model, experts = self.device.model, self.experts()
        own = {
            expert_name(expert, name): experts[expert][name]
            for expert in self.sent[1:]
            for name in model.parameter_names
        }
        return Job(
            weights=plain.weights,
            objective=self.objective(),
            schedule=plain.schedule,
            seed=plain.seed,
            extra=self.extras(),
            augment=plain.augment,
            variables={**own, **self.shared(), **self.gate(), **self.bias()},
        )

    def objective(self) -> ExpertMixture:
        """Return the local objective."""
        settings = self.settings
        return ExpertMixture(
            self.device.model,
            settings.experts,
            self.sent,
            threshold=settings.prune,
            by_device=settings.condition == "device",
            has_bias=settings.personal_bias,
            entropy=settings.entropy,
            prunes_gate=settings.prune_gate_targets,
            detaches=settings.detach_gate_features,
            damping=settings.damping,
            skip_below=settings.skip_below,
        )

    def extras(self) -> dict[str, Array]:
        """Return the constants of the objective."""
        if self.settings.condition == "device":
            return {}
        constants = {names.FREQUENCIES: self.frequencies().astype(np.float32)}
        if self.settings.has_column:
            constants[names.CONDITIONS] = self.column(self.device.train)
        return constants

    def frequencies(self) -> Array:
        """Return the share of the device's samples of each condition, float64 (conditions,)."""
        samples, classes = self.device.train, self.device.model.classes
        if self.settings.has_column:
            values = self.settings.condition_values
            counts = np.bincount(self.column(samples), minlength=values)
        elif samples.has_labels:
            counts = np.bincount(samples.targets, minlength=classes)
        else:
            counts = samples.targets.sum(axis=0, dtype=np.float64)
        return np.asarray(counts, np.float64) / max(1e-12, float(counts.sum()))

    def column(self, samples: Samples) -> Array:
        """Return the condition of each sample (n,).

        Raises:
            DataError: ``data.column``: the samples lack the column, or it has other values.
        """
        name, values = self.settings.condition, self.settings.condition_values
        column = samples.columns.get(name)
        if column is None:
            there = ", ".join(sorted(samples.columns)) or "none"
            raise DataError(
                f"The samples of this device have no column {name!r}, which the run's experts are"
                f" conditioned on; columns: {there}.",
                code="data.column",
                hint="add the column to the device's data, or choose another condition",
            )
        if not check_conditions(column, values):
            raise DataError(
                f"Column {name!r} of this device has values from {column.min()} to {column.max()},"
                f" but the run has {values} of them, from 0.",
                code="data.column",
                hint="correct algorithm.condition_values, or the device's data",
            )
        return np.asarray(column, np.int64)

    def shared(self) -> Tensors:
        """Return the table; of shares that belong to the device, these."""
        if self.settings.condition != "device":
            return {names.TABLE: self.task.groups[TABLE][PHI]}
        count = self.settings.experts
        equal = np.full(count, 1 / count, np.float32)
        return {names.SHARES: self._own(OWN, "shares", equal)}

    def gate(self) -> Tensors:
        """Return the gate: the device's own, or the fleet's where gates are averaged."""
        width, count = self.device.model.output_layer.width, self.settings.experts
        if self.settings.gates == "averaged":
            given = self.task.groups[GATE]
            return {names.GATE_WEIGHT: given["weight"], names.GATE_BIAS: given["bias"]}
        weight = self._own(OWN, "weight", np.zeros((width, count), np.float32))
        bias = self._own(OWN, "bias", np.zeros(count, np.float32))
        return {names.GATE_WEIGHT: weight, names.GATE_BIAS: bias}

    def bias(self) -> Tensors:
        """Return the device's own output bias, where it has one."""
        if not self.settings.personal_bias:
            return {}
        zeros = np.zeros(self.device.model.classes, np.float32)
        return {names.PERSONAL_BIAS: self._own(BIAS, "bias", zeros)}

    def _own(self, group: str, name: str, start: Array) -> Array:
        """Return a private array, or its start.

        Raises:
            DataError: ``algorithm.private_state``: it is of other experts or another model.
        """
        kept = self.device.private.get(group)
        if kept is None or name not in kept:
            return start
        if kept[name].shape != start.shape:
            raise DataError(
                f"The {group} that this device keeps is of {kept[name].shape}, and the task needs"
                f" {start.shape}: it is of other experts or another model.",
                code="algorithm.private_state",
                hint="start a new run",
            )
        return kept[name]

    # -- the answer -----------------------------------------------------------------------------

    def answer(self, trained: Trained) -> Answer:
        """Return the changes of the experts that the device uses, and its shares; keep the gate."""
        settings, after = self.settings, trained.variables
        raw = self._raw(after)
        # A device that uses none of the experts that it was sent keeps all of these
        kept = tuple(k for k in kept_experts(raw, settings.prune) if k in self.sent) or self.sent
        mixture = {"raw": raw.astype(np.float32), "kept": pruned(raw, kept).astype(np.float32)}
        # Formulas that set shares can take one below what a float32 holds.
        kept = tuple(int(k) for k in np.flatnonzero(mixture["kept"]))
        groups = {MIXTURE: Group(mixture, "fp32")}
        for expert in kept:
            groups[role(expert)] = Group(self._delta(expert, trained))
        if names.TABLE in after:
            change = after[names.TABLE] - self.task.groups[TABLE][PHI]
            groups[TABLE] = Group({PHI: change}, "fp32")
        private: dict[str, Tensors] = {}
        if names.GATE_WEIGHT in after:
            gate = {"weight": after[names.GATE_WEIGHT], "bias": after[names.GATE_BIAS]}
            if settings.gates == "averaged":
                groups[GATE] = Group(difference(gate, self.task.groups[GATE]))
            private[OWN] = {**gate, "shares": mixture["raw"], "kept": np.asarray(kept, np.int64)}
        if names.PERSONAL_BIAS in after:
            private[BIAS] = {"bias": after[names.PERSONAL_BIAS]}
        metrics = {"loss": trained.loss, "steps": float(trained.steps)}
        return Answer(self.task.device, trained.samples, groups, metrics, private)

    def _raw(self, after: Tensors) -> Array:
        """Return q(z|s) after training, float64 (experts,), of sum 1."""
        if names.SHARES in after:
            shares = after[names.SHARES].astype(np.float64)
            return np.asarray(shares / shares.sum())
        if names.TABLE in after:
            return device_shares(after[names.TABLE], self.frequencies())
        return np.ones(1)

    def _delta(self, expert: int, trained: Trained) -> Tensors:
        before = self.task.groups[role(expert)]
        if expert == self.sent[0]:
            return difference(trained.weights, before)
        moved = self.device.model.parameter_names
        own = {name: trained.variables[expert_name(expert, name)] for name in moved}
        return difference({**before, **own}, before)

    # -- the test -------------------------------------------------------------------------------

    def test(self) -> DeviceTest:
        """Return the test in the task's mode; without one, with its own gate if it has one."""
        if self.settings.experts == 1 and not self.settings.personal_bias:
            return EvalJob(self.experts()[0], self.device.test, self.training.loss)
        mode = self.task.params.get("mode") or (KNOWN if OWN in self.device.private else FITTED)
        if mode == MARGINAL:
            predictor = marginal(self.experts(), self.task.groups[COLLECT])
            return PredictorEvalJob(predictor, self.device.test, self.training.loss, MARGINAL)
        if mode == KNOWN:
            return self._known()
        # Without private state, as on a device that is new to the run
        return replace(self, device=replace(self.device, private={}))._fitted()

    def _known(self) -> PredictorEvalJob:
        if OWN not in self.device.private:
            raise DataError(
                "This device has no gate of this run, in which it did not train.",
                code="algorithm.private_state",
                hint="test it with --mode fitted",
            )
        return self._scored({**self.shared(), **self.gate(), **self.bias()}, KNOWN)

    def _fitted(self) -> TrainedEvalJob:
        return TrainedEvalJob(
            self.fitting_job(), lambda trained: self._scored(trained.variables, FITTED), FITTED
        )

    def fitting_job(self) -> Job:
        """Return the training of a gate, and of an output bias, for experts as they are."""
        model, experts = self.device.model, self.experts()
        others = {
            expert_name(expert, name): experts[expert][name]
            for expert in self.sent[1:]
            for name in model.parameter_names
        }
        shared = self.shared()
        # A table is the fleet's and stays; shares of the device are fitted with its gate
        table = {} if names.SHARES in shared else shared
        own = {name: array for name, array in shared.items() if name == names.SHARES}
        return Job(
            weights=experts[self.sent[0]],
            objective=self.objective(),
            schedule=schedule_of(self.training, max(1, self.task.round), self.task.rounds),
            seed=self.task.seed,
            extra={**self.extras(), **others, **table},
            frozen=frozenset(model.parameter_names),
            variables={**own, **self.gate(), **self.bias()},
        )

    def _scored(self, own: Tensors, mode: str) -> PredictorEvalJob:
        """Return the test by a gate, with the shares that the table of the task gives now."""
        raw = self._raw({**self.shared(), **own})
        kept = tuple(k for k in kept_experts(raw, self.settings.prune) if k in self.sent)
        gate = Gate(own[names.GATE_WEIGHT], own[names.GATE_BIAS], raw, kept or self.sent)
        predictor = device_predictor(self.experts(), gate, own.get(names.PERSONAL_BIAS))
        return PredictorEvalJob(predictor, self.device.test, self.training.loss, mode)
