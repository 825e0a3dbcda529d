"""Encoding errors count once their answer is merged; in buffered rounds the next task says so."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.learn.base.types import Tensors
from edgefed.wire.messages import Task
from edgefed.worker.outcomes import FEEDBACK, PENDING, errors_after, errors_before
from tests.algorithms.play import bits
from tests.wire.test_task_digest import TASK
from tests.worker import tasks
from tests.worker.tasks import read, worker

DELTA = f"{FEEDBACK}delta"


def error(value: float) -> dict[str, Tensors]:
    return {DELTA: {"w": np.array([value], np.float32)}}


def task(number: int = -1, merged: int = -1) -> Task:
    return TASK.model_copy(update={"number": number, "merged_number": merged})


def test_in_synchronous_rounds_the_error_of_an_answer_replaces_the_one_before() -> None:
    assert errors_after(task(), error(1.0), error(2.0)) == error(2.0)
    assert errors_before(task(), error(2.0)) == error(2.0)
    assert errors_before(task(), {**error(2.0), "own": {}}) == error(2.0)


@pytest.mark.parametrize(("merged", "value"), [(3, 2.0), (2, 1.0), (-1, 1.0)])
def test_in_buffered_rounds_it_does_so_only_if_the_answer_was_merged(
    merged: int, value: float
) -> None:
    kept = errors_after(task(3), error(1.0), error(2.0))
    assert errors_before(task(4, merged), kept) == error(value)


def test_pending_errors_leave_those_of_merged_answers_as_they_are() -> None:
    device = worker()
    coded = tasks.task(codec="int8", error_feedback=True, number=0, merged_number=-1)
    first = device.work(coded, read, {}).private
    later = coded.model_copy(update={"number": 1, "merged_number": 0, "seed": 6})
    second = device.work(later, read, first).private
    assert bits(second[DELTA]) == bits(first[f"{PENDING}delta"])
    assert bits(second[f"{PENDING}delta"]) != bits(second[DELTA])


def test_an_answer_without_errors_keeps_those_before() -> None:
    kept = errors_after(task(3), error(1.0), {})
    assert errors_before(task(4, 3), kept) == error(1.0)
