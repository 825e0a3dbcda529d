"""A device whose memory does not suffice for all experts uses those that matter most to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgefed.algorithms.experts.expert_records import MIXTURE, PHI, TABLE, role
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Job, Trained
from edgefed.learn.modeling.model_memory import COPIES
from tests.algorithms.play import Players, algorithm
from tests.run_fixture import CLASSES, samples


def of_label(label: int) -> Samples:
    own = samples(6, 3)
    return Samples(own.inputs, np.full(6, label, np.int64))


def used(room: float, table: dict[int, float] | None = None, device: int = 0) -> set[str]:
    """Return the roles of experts in the answer of a device with room for so many experts."""
    half, players = algorithm("fedmoe", experts=4), Players([of_label(1) for _ in range(4)])
    exchange = players.planned(half, players.start(half))
    task = players.task(exchange, exchange.questions[device])
    logits = np.zeros((CLASSES, 4), np.float32)
    for expert, logit in (table or {}).items():
        logits[1, expert] = logit
    task = replace(task, groups={**task.groups, TABLE: {PHI: logits}})
    memory = int(room * COPIES * players.trainer.model.weight_bytes)
    view = replace(players.view(task.device), memory=memory)
    job = half.prepare(task, view)
    assert isinstance(job, Job)
    result = players.do(job, view)
    assert isinstance(result, Trained)
    answer = half.answer(task, view, result)
    kept = {role(k) for k in np.flatnonzero(answer.groups[MIXTURE].arrays["kept"])}
    assert kept == {name for name in answer.groups if name.startswith("expert-")}
    return kept


def test_with_room_for_all_it_uses_all() -> None:
    assert used(4) == {role(k) for k in range(4)}


def test_with_less_room_it_uses_those_with_the_largest_shares() -> None:
    assert used(2.5, {3: 2.0, 1: 1.0}) == {role(1), role(3)}
    assert used(0.1, {2: 1.0}) == {role(2)}


def test_devices_with_equal_shares_leave_out_different_ones() -> None:
    assert len({tuple(sorted(used(1, device=device))) for device in range(4)}) > 1
