"""State that a device keeps only if its answer was accepted, for algorithms that require this.

An answer that came too late is in no merge, so what the device derived from it must not stay: the
control variates of SCAFFOLD and FedDyn would differ from the coordinator's sum of them. A device
keeps such groups (``Answer.if_accepted``) beside its state until its next task, which says whether
the answer was merged.

plan     numbers the exchanges, and tells each device the number of its last answer that was merged
merge    notes that number for every answer that it takes
prepare  lets the algorithm see the pending groups as private state if their answer was merged
answer   keeps the groups of the new answer pending
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import (
    DeviceTask,
    DeviceTest,
    DeviceView,
    Result,
    Work,
)
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.wrapped_algorithm import WrappedAlgorithm
from edgefed.learn.base.types import Tensors

EXCHANGES = "merged_exchanges"
"""In the state's params: how many exchanges were merged."""

MERGED = "merged_answers"
"""In the state's params: the number of the last exchange in which a device's answer was merged."""

NUMBER, LAST_MERGED = "exchange_number", "last_merged"
"""In a task's params: the number of its exchange, and of the last one with a merged answer."""

PENDING = "if_accepted."
"""Before the name of a pending group in a device's private state."""

OF_EXCHANGE = "if_accepted_of"
"""The group of that state with the number of the exchange of the pending groups."""


class AcceptedState(WrappedAlgorithm):
    """An algorithm whose devices keep some state only if their answers were merged."""

    # -- the coordinator ------------------------------------------------------------------------

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Return the algorithm's first state; no answer is merged yet."""
        state = self.inner.start(weights, roster, seed)
        return replace(state, params={**state.params, EXCHANGES: 0, MERGED: {}})

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Plan the algorithm's exchange, with its number and each device's verdict."""
        planned = self.inner.plan(state, roster, seed)
        return planned if isinstance(planned, Finished) else _with_verdicts(planned, state)

    def evaluation(self, state: State, roster: Roster, seed: int) -> Exchange:
        """Plan the test of the model, with each device's verdict."""
        return _with_verdicts(self.inner.evaluation(state, roster, seed), state)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Merge the answers, and note their devices."""
        taken: list[str] = []

        def noted() -> Iterator[Answer]:
            for answer in answers:
                taken.append(answer.device)
                yield answer

        merged = self.inner.merge(state, exchange, noted())
        number = state.params[EXCHANGES] + 1
        last = {**state.params[MERGED], **dict.fromkeys(taken, number)}
        own = {EXCHANGES: number, MERGED: dict(sorted(last.items()))}
        return replace(merged, params={**merged.params, **own})

    # -- the device -----------------------------------------------------------------------------

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Prepare with the state that the verdict leaves."""
        work = self.inner.prepare(task, _after_verdict(task, device))
        return _pending(work, task, device) if isinstance(work, Answer) else work

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Answer from the state that the verdict leaves; keep new groups until the next one."""
        own = _after_verdict(task, device)
        return _pending(self.inner.answer(task, own, result), task, device)

    def eval_job(self, task: DeviceTask, device: DeviceView) -> DeviceTest:
        """Test with the state that the verdict leaves."""
        return self.inner.eval_job(task, _after_verdict(task, device))


def _with_verdicts(exchange: Exchange, state: State) -> Exchange:
    number, merged = state.params[EXCHANGES] + 1, state.params[MERGED]
    questions = (
        replace(
            question,
            params={**question.params, NUMBER: number, LAST_MERGED: merged.get(question.device, 0)},
        )
        for question in exchange.questions
    )
    return replace(exchange, questions=tuple(questions))


def _after_verdict(task: DeviceTask, device: DeviceView) -> DeviceView:
    """Return a device whose private state has the pending groups if their answer was merged."""
    return replace(device, private=_settled(task, device.private))


def _settled(task: DeviceTask, private: Mapping[str, Tensors]) -> dict[str, Tensors]:
    kept = {
        name: group
        for name, group in private.items()
        if name != OF_EXCHANGE and not name.startswith(PENDING)
    }
    of = private.get(OF_EXCHANGE)
    if of is None or int(of["number"]) != task.params[LAST_MERGED]:
        return kept
    pending = {
        name.removeprefix(PENDING): group
        for name, group in private.items()
        if name.startswith(PENDING) and group
    }
    return {**kept, **pending}


def _pending(answer: Answer, task: DeviceTask, device: DeviceView) -> Answer:
    """Return an answer that keeps its groups pending, and no earlier ones."""
    stale: dict[str, Tensors] = {n: {} for n in device.private if n.startswith(PENDING)}
    pending = {f"{PENDING}{name}": group for name, group in answer.if_accepted.items()}
    of: dict[str, Tensors] = {OF_EXCHANGE: {"number": np.array(task.params[NUMBER], np.int64)}}
    settled = _settled(task, device.private)
    private = {**settled, **answer.private, **stale, **pending, **of}
    return replace(answer, private=private, if_accepted={})
