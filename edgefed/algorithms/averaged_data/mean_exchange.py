"""The exchange of averaged data: devices share means once, and all devices train with them.

Yoon, Shin, Hwang, Yang: FedMix: Approximation of Mixup under Mean Augmented Federated Learning,
ICLR 2021, section 3.2 (algorithm 1), appendices H to J.

    mean   every device that shares sends (x̄, ȳ) of groups of M samples, once, and again after its
           data changed; the coordinator stacks, shuffles and optionally averages m entries again
    fit    is the algorithm's, with the stack (X_g, Y_g) beside the weights; the method's mixing
           objective (NaiveMix, FedMix) uses the stack

With a split (appendix E) the averages are of hidden states, and ``mean`` precedes every ``fit``. A
device that does not share still trains. If no device shares, training is FedAvg, which a remark
reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from edgefed.algorithms.averaged_data.mean_records import (
    ASKED,
    HIDDEN,
    OWN,
    SEED,
    SHARED,
    due,
    joined,
    remark,
    remembered,
    shares_of,
)
from edgefed.algorithms.averaged_data.mean_settings import MeanSettings
from edgefed.algorithms.averaged_data.mix_layer import (
    averages_hidden,
    behind,
    check_split,
    entry_shape,
)
from edgefed.algorithms.averaging.training import loss_of
from edgefed.algorithms.interface.answer import Answer, Group, Remark
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Encoding, Result, Work
from edgefed.algorithms.interface.exchange import Exchange, Payload, Question, ReplyRole
from edgefed.algorithms.interface.exchange_part import ExchangePart
from edgefed.algorithms.interface.member import Member, Roster
from edgefed.config.recipes.recipe import ModelSection
from edgefed.config.recipes.sections import CodecName
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.errors import DataError, RecipeError
from edgefed.learn.base.types import Array, Job, Objective, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.added_term import with_loss
from edgefed.learn.objectives.averaged_entries import KEPT
from edgefed.sharing.means import Averaging, average, check_hidden
from edgefed.sharing.packing import check_fits, check_shares, pack
from edgefed.sharing.policy import ANYTHING, Policy
from edgefed.sharing.pooled_means import as_noise, kept_of, runs_of, stack
from edgefed.sharing.releases import means_release
from edgefed.sharing.types import Entries

MEAN = "mean"
"""The question that asks for averaged data."""

MEANS = "means"
"""The role of a device's averages in its answer."""

MAX_MEAN = 1e6
"""Largest magnitude of an averaged value, which is in the data's own units."""

AVERAGED = "averaged"
"""The stack, as a group of the state, as a payload and as a role of a ``fit`` task."""


class MeanExchange(ExchangePart):
    """Averages of the devices' samples, shared before training and mixed in while training.

    Args:
        method: name of the algorithm that it is a part of, for messages.
        settings: the algorithm's.
        training: the recipe's ``[training]`` table.
        mixing: the local objective where there are averaged data.
        raw: whether entries are raw samples.
    """

    exchanges: ClassVar[frozenset[str]] = frozenset({MEAN})
    merges_late = True

    def __init__(
        self,
        method: str,
        settings: MeanSettings,
        training: TrainingSection,
        mixing: Objective,
        *,
        raw: bool = False,
    ) -> None:
        self.method = method
        self.settings = settings
        self.training = training
        self.mixing = mixing
        self.raw = raw

    @property
    def _averaging(self) -> Averaging:
        settings = self.settings
        return Averaging(settings.group_size, settings.noise, settings.same_class, self.raw)

    # -- the coordinator ------------------------------------------------------------------------

    def needs_simulation(self) -> str:
        """Return the requirement of a simulation: raw samples, or averages of one label."""
        if self.settings.group_size == 1 and self.settings.entries != "own":
            return "raw data of all devices (group_size = 1)"
        if self.settings.same_class:
            return "averages of single labels (same_class)"
        return ""

    def check_recipe(self, section: ModelSection | None) -> None:
        """Check that there are labels where samples are grouped by them.

        Raises:
            RecipeError: ``algorithm.same_class``.
        """
        if self.settings.same_class and self.training.loss == "squared_error":
            raise RecipeError(
                "With squared error there are no labels by which to group samples.",
                code="algorithm.same_class",
                hint="set same_class = false",
            )

    def check_model(self, model: Model) -> None:
        """Check that the model can be mixed at the recipe's layer.

        Raises:
            RecipeError: it cannot.
        """
        check_split(self.method, model, self.settings.split)
        if self._raw_tokens(model) and (self.settings.noise or self.settings.entries == "random"):
            raise RecipeError(
                f"{self.method} mixes raw tokens, to which noise cannot be added.",
                code="algorithm.tokens",
                hint='set noise = 0 and entries = "exchanged", or choose fedmix',
            )
        self.check_recipe(model.section)
        if self.settings.entries == "own" and averages_hidden(model, self.settings.split):
            raise RecipeError(
                "A device cannot mix with its own averages of hidden states.",
                code="algorithm.split",
                hint='set split = 0, or entries = "exchanged"',
            )

    def start(self, state: State, seed: int) -> State:
        """Start with records in which no device has shared."""
        params = {**state.params, SEED: seed, ASKED: {}}
        return replace(state, groups={**state.groups, SHARED: {}}, params=params)

    def plan(self, state: State, roster: Roster, training: Exchange) -> Exchange | None:
        """Ask the devices for averages that are missing."""
        if self.settings.entries == "own":
            return None
        asked = due(state, roster, self.settings.threshold)
        if not asked:
            return None
        payloads = {"weights": training.payloads["weights"]} if self.settings.split else {}
        return Exchange(
            name=MEAN,
            round=training.round,
            questions=tuple(_mean_question(member, payloads) for member in asked),
            payloads=payloads,
            wanted=len(asked),
            quorum=0,
            deadline=training.deadline,
            preparatory=True,
            reply_roles={MEANS: ReplyRole(None, MAX_MEAN)},
            model=training.model,
        )

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Store the arrived averages and stack all of them again."""
        shared, answered, hidden = joined(state, answers)
        known = {**state.params[ASKED], **remembered(exchange, answered)}
        params = {**state.params, ASKED: known}
        params[HIDDEN] = exchange.round if hidden else 0
        groups: dict[str, Tensors] = {**state.groups, SHARED: shared}
        if not shared:
            groups.pop(AVERAGED, None)
            return replace(state, groups=groups, params=params)
        entries, owners = stack(
            shares_of(shared),
            state.params[SEED],
            merge_entries=self.settings.merge_entries,
            shuffle=self.settings.group_size != 1,
        )
        if self.settings.entries == "random":
            entries = as_noise(entries, state.params[SEED])
        groups[AVERAGED] = self._packed(entries)
        if self.settings.exclude_own:
            params[OWN] = {device: runs_of(rows) for device, rows in owners.items()}
        return replace(state, groups=groups, params=params)

    def max_reply_bytes(self, exchange: Exchange, model: Model) -> int:
        """Return the most bytes of one device's averages, given its announced samples."""
        most = max(
            (self._most(question.samples, model) for question in exchange.questions), default=0
        )
        width = 8 if self._raw_tokens(model) else 4
        # A byte a number needs eight bytes an entry for its scale and offset.
        entry = width * int(np.prod(self._entry_shape(model))) + 4 * model.classes + 8
        return entry * most + 2**16

    def reject_reason(self, exchange: Exchange, answer: Answer, model: Model) -> str:
        """Return why averages cannot be stacked with the others."""
        means = answer.groups[MEANS].arrays
        try:
            self._check(means, model)
            if self.training.loss == "cross_entropy":
                check_shares(means)
        except DataError as error:
            return error.message
        hidden = float(averages_hidden(model, self.settings.split))
        if answer.metrics.get("hidden", 0.0) != hidden:
            return f"its averages are {'' if not hidden else 'not '}said to be of hidden states"
        (samples,) = (q.samples for q in exchange.questions if q.device == answer.device)
        entries = len(means["targets"])
        return _untrue(answer, entries) or self._too_many(answer, entries, samples, model)

    def _too_many(self, answer: Answer, entries: int, samples: int, model: Model) -> str:
        """Return why a device that announced ``samples`` has not so many entries, or nothing."""
        most, group = self._most(samples, model), int(answer.metrics["group"])
        if entries > most:
            return f"it holds {entries} entries, and its {samples} samples make at most {most}"
        if entries * group > answer.samples:
            return f"{group} samples cannot stand behind each of {entries} entries"
        size = self.settings.group_size
        least = min(size or answer.samples, answer.samples)
        if group < least and not self.settings.same_class:
            return (
                f"it says that {group} of {answer.samples} samples stand behind an entry, "
                f"fewer than {least}"
            )
        return ""

    def _most(self, samples: int, model: Model) -> int:
        """Return the most entries that so many samples make."""
        size = self.settings.group_size
        groups = max(1, samples // size) if size else 1
        # Labels apart, every label may have a group of its own.
        return groups + model.classes if self.settings.same_class else groups

    def remarks(self, before: State, exchange: Exchange, after: State) -> tuple[Remark, ...]:
        """Report the sharing devices after their exchange; after round 1, a lack of any."""
        if exchange.name == MEAN:
            return (remark(exchange, after),)
        nobody = before.round == 0 < after.round and not before.params[ASKED]
        if not nobody or self.settings.entries == "own":
            return ()
        few = f"no device has the {self.settings.threshold} samples that threshold asks for"
        return (Remark(f"{few}: this is FedAvg", warning=True),)

    def add_to_training(self, training: Exchange, state: State) -> Exchange:
        """Return the exchange with the stack beside the weights."""
        averaged = state.groups.get(AVERAGED)
        if not averaged:
            return training
        return replace(
            training,
            payloads={**training.payloads, AVERAGED: Payload(averaged, self._codec)},
            questions=tuple(
                replace(
                    question,
                    blobs={**question.blobs, AVERAGED: AVERAGED},
                    params={**question.params, **_own_rows(state, question.device)},
                )
                for question in training.questions
            ),
        )

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Average the device's samples, or run them through the layers in front of the split."""
        if not averages_hidden(device.model, self.settings.split):
            return self._share(task, device)
        check_hidden(device.policy)
        return Encoding(task.groups["weights"], device.train, self.settings.split)

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Answer with averages of the hidden states under the round's weights."""
        assert isinstance(result, np.ndarray)
        return self._share(task, device, result)

    def change_job(self, job: Job, task: DeviceTask, device: DeviceView) -> Job:
        """Mix averaged data in, where there are any."""
        extra = self._extra(task, device)
        if extra is None:
            return job
        settings = self.settings
        loss = loss_of(self.training)
        mixing = behind(self.mixing, settings.split, settings.embedding_grad, loss)
        return replace(job, objective=with_loss(job.objective, mixing), extra=extra)

    def _share(self, task: DeviceTask, device: DeviceView, hidden: Array | None = None) -> Answer:
        """Return the device's averages, of its inputs or of the ``hidden`` states."""
        entries, sizes = self._own(device, device.policy, hidden)
        release = means_release(
            round=task.round,
            records=sum(sizes),
            entries=len(entries),
            group=min(sizes),
            noise_scale=self.settings.noise,
            hidden=hidden is not None,
        )
        return Answer(
            device=task.device,
            samples=len(device.train),
            groups={MEANS: Group(self._packed(entries), self._codec)},
            metrics={
                "entries": float(len(entries)),
                "group": float(min(sizes)),
                "hidden": float(hidden is not None),
            },
            ledger=(release,),
        )

    def _own(
        self, device: DeviceView, policy: Policy, hidden: Array | None = None
    ) -> tuple[Entries, list[int]]:
        model = device.model
        return average(
            device.train,
            model.classes,
            model.vocabulary,
            self._averaging,
            policy,
            hidden=hidden,
        )

    def _extra(self, task: DeviceTask, device: DeviceView) -> Mapping[str, Array] | None:
        """Return the averaged data to train with; None where there are none.

        Raises:
            DataError: they are not of this device's kind of data.
        """
        if self.settings.entries == "own":
            # They stay on the device, so there is nothing that its owner could keep back.
            return pack(self._own(device, ANYTHING)[0], as_bytes=False)
        averaged = task.groups.get(AVERAGED)
        if averaged is None:
            return None
        self._check(averaged, device.model)
        runs = task.params.get(OWN)
        if runs is None:
            return averaged
        kept = kept_of(runs, len(averaged["targets"]))
        return {**averaged, KEPT: kept} if kept.any() else None

    # -- both -----------------------------------------------------------------------------------

    def _entry_shape(self, model: Model) -> tuple[int, ...]:
        return entry_shape(model, self.settings.split, raw=self.raw)

    def _check(self, arrays: Tensors, model: Model) -> None:
        """Check averaged data against this run's model and settings."""
        shape, tokens = self._entry_shape(model), self._raw_tokens(model)
        check_fits(arrays, shape, model.classes, tokens=tokens)

    def _raw_tokens(self, model: Model) -> bool:
        return self.raw and model.vocabulary is not None

    @property
    def _codec(self) -> CodecName:
        return "bf16" if self.settings.packing == "bf16" else "fp32"

    def _packed(self, entries: Entries) -> Tensors:
        return pack(entries, as_bytes=self.settings.packing == "uint8")


def _mean_question(member: Member, payloads: Mapping[str, Payload]) -> Question:
    blobs = {name: name for name in payloads}
    return Question(member.device, member.samples, blobs, {"data": member.data})


def _own_rows(state: State, device: str) -> dict[str, Any]:
    """Return the parameter of a device's task with its own rows, if it is to leave them out."""
    return {OWN: state.params[OWN].get(device, [])} if OWN in state.params else {}


def _untrue(answer: Answer, entries: int) -> str:
    """Return the false statement of an answer with so many entries, or nothing."""
    stated, group = (answer.metrics.get(name, 0.0) for name in ("entries", "group"))
    if stated != entries:
        return f"it holds {entries} entries, and says {stated:g}"
    if not (1 <= group <= answer.samples and group == int(group)):
        return f"it says that {group:g} of {answer.samples} samples stand behind an entry"
    return ""
