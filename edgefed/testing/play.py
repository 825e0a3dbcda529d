"""Play whole runs of an algorithm without a coordinator: its two halves and a trainer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import numpy as np

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import Algorithm, State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result, Work
from edgefed.algorithms.interface.exchange import Exchange, Finished, Question, Relay
from edgefed.algorithms.interface.member import Member, Roster
from edgefed.config.recipes.recipe import ModelSection
from edgefed.data.base.types import no_samples
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.seeds import derive
from edgefed.sharing.policy import ANYTHING, Policy
from edgefed.worker.outcomes import PersistentState, checked_changes
from edgefed.worker.run_work import run_work

MOST_EXCHANGES = 100


@dataclass
class Players:
    """Devices with data and private state, and a trainer that they share.

    Exchanges whose model is another one have trainers of their own.

    Attributes:
        parts: the training samples of each device.
        trainer: of the recipe's model.
        order: puts an exchange's answers into the order in which they arrive.
        private: each device's state from answer to answer.
        kept: each device's state across runs.
        relayed: the blobs that devices sent to each other.
        policy: every device's.
        test: every device's test samples.
    """

    parts: Sequence[Samples]
    trainer: Trainer
    order: Callable[[list[Answer]], list[Answer]] = lambda answers: answers
    private: dict[str, Mapping[str, Tensors]] = field(default_factory=dict)
    kept: dict[str, PersistentState] = field(default_factory=dict)
    relayed: dict[Relay, bytes] = field(default_factory=dict)
    policy: Policy = ANYTHING
    test: Samples = field(default_factory=no_samples)

    @property
    def roster(self) -> Roster:
        """The devices."""
        shape, classes = self.trainer.model.shape, self.trainer.model.classes
        return tuple(
            Member(f"device-{number:02d}", len(part), shape, classes)
            for number, part in enumerate(self.parts)
        )

    def part(self, device: str) -> Samples:
        """Return a device's training samples."""
        return self.parts[int(device.removeprefix("device-"))]

    def trainer_for(self, section: ModelSection | None) -> Trainer:
        """Return the trainer of an exchange's or a state's model."""
        if section is None:
            return self.trainer
        own = self.trainer.model
        return Trainer(build(section, own.shape, own.classes, 1), "cpu")

    def task(self, exchange: Exchange, question: Question) -> DeviceTask:
        """Return a device's task of an exchange."""
        relays = defaultdict[str, tuple[bytes, ...]](tuple)
        for relay in question.relays:
            relays[relay.sender] += (self.relayed[relay],)
        return DeviceTask(
            question=exchange.name,
            round=exchange.round,
            device=question.device,
            seed=derive(3, exchange.round, exchange.name, question.device),
            groups={role: exchange.payloads[name].arrays for role, name in question.blobs.items()},
            params=question.params,
            receivers=question.receivers,
            max_relay_bytes=exchange.max_relay_bytes,
            relays=relays,
            task_digest=_digest(exchange),
        )

    def view(self, device: str, model: ModelSection | None = None) -> DeviceView:
        """Return the view of a device's half."""
        return DeviceView(
            self.part(device),
            self.test,
            self.private.get(device, {}),
            self.policy,
            self.trainer_for(model).model,
            device_state=self._kept(device).read_only(),
            ledger=self._kept(device).ledger,
            private_generator=np.random.default_rng(derive(4, device)),
            private_bytes=np.random.default_rng(derive(4, device, "bytes")).bytes,
        )

    def _kept(self, device: str) -> PersistentState:
        return self.kept.get(device, PersistentState())

    def do(self, work: Work, view: DeviceView, model: ModelSection | None = None) -> Result:
        """Return the result of a task's work."""
        return run_work(self.trainer_for(model), work, view.train)

    def answer(self, half: Algorithm[Any], exchange: Exchange, question: Question) -> Answer:
        """Return a device's answer, keep its state, and take its blobs for other devices."""
        task, view = self.task(exchange, question), self.view(question.device, exchange.model)
        work = half.prepare(task, view)
        if isinstance(work, Answer):
            made = work
        else:
            made = half.answer(task, view, self.do(work, view, exchange.model))
        if made.if_accepted:
            raise ValueError("if_accepted: the algorithm does not declare keeps_if_accepted")
        device, kept = question.device, self._kept(question.device)
        self.private[device] = {**view.private, **made.private}
        self.kept[device] = kept.after(made.device_state, checked_changes(kept, made))
        sent = {
            Relay(exchange.name, device, receiver, sha256(blob).hexdigest(), len(blob)): blob
            for receiver, blob in sorted(made.relays.items())
        }
        self.relayed |= sent
        return replace(made, device=device, private={}, relays={}, relayed=tuple(sent))

    def answers(self, half: Algorithm[Any], exchange: Exchange) -> list[Answer]:
        """Return the answers to an exchange, in the order in which they arrive."""
        return self.order(
            [self.answer(half, exchange, question) for question in exchange.questions]
        )

    def start(self, half: Algorithm[Any]) -> State:
        """Return the state before the first round."""
        half.check_model(self.trainer.model)
        return half.start(self.trainer.model.weights(), self.roster, 11)

    def play(self, half: Algorithm[Any]) -> list[tuple[State, Exchange]]:
        """Return each exchange of a run with the state after it."""
        state, history = self.start(half), list[tuple[State, Exchange]]()
        for number in range(MOST_EXCHANGES):
            planned = half.plan(state, self.roster, derive(5, number))
            if isinstance(planned, Finished):
                return history
            state = half.merge(state, asked(planned), self.answers(half, planned))
            history.append((state, planned))
        raise AssertionError(f"{half.name} never finishes")


def asked(exchange: Exchange) -> Exchange:
    """Return an exchange as the engine hands it to ``merge``: without its payloads."""
    questions = tuple(replace(question, blobs={}) for question in exchange.questions)
    return replace(exchange, questions=questions, payloads={}, task_digest=_digest(exchange))


def _digest(exchange: Exchange) -> bytes:
    """Return what stands for the digest of an exchange's tasks, which are not made here."""
    return sha256(f"{exchange.name} {exchange.round} {exchange.attempt}".encode()).digest()


def bits(value: Any) -> Any:
    """Return a value in which arrays are their bytes, so that it can be compared to the bit."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return [(key, bits(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [bits(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: bits(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
