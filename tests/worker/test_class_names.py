"""A worker numbers its labels after the run's list of classes."""

from __future__ import annotations

import numpy as np

from edgefed.data.base.class_names import renumbered
from edgefed.worker.prepared_tasks import Prepared
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker
from tests.run_fixture import samples
from tests.worker.tasks import read, task, work

ABC = ("a", "b", "c")


def worker(own: tuple[str, ...], numbering: tuple[str, ...] = ABC) -> Worker:
    """Return a worker with the usual samples, numbered after a list of its own."""
    train, test = (renumbered(each, ABC, numbering) for each in (samples(9, 1), samples(5, 2)))
    return Worker(TrainerCache("cpu"), train, test, class_names=own)


def test_own_numbers_do_not_matter() -> None:
    other = ("c", "a", "b")
    for question in ("fit", "evaluate"):
        given = task(class_names=ABC, question=question)
        wanted = work(task(question=question), worker(()))
        assert wanted.status == "ok"
        for own in (worker(ABC), worker(other, other), worker(())):
            outcome = work(given, own)
            assert (outcome.status, outcome.metrics) == ("ok", wanted.metrics)
            assert outcome.blobs == wanted.blobs


def test_equal_lists_leave_the_very_samples() -> None:
    given = samples(9, 1)
    own = Worker(TrainerCache("cpu"), given, samples(5, 2), class_names=tuple("abc"))
    begun = own.begin(task(class_names=ABC), read, {})
    assert isinstance(begun, Prepared)
    assert begun.view.train is given


def test_mapped_samples_are_kept_until_the_list_changes() -> None:
    own = worker(("c", "a", "b"), ("c", "a", "b"))
    first, again = (own.begin(task(class_names=ABC), read, {}) for _ in range(2))
    other = own.begin(task(class_names=("b", "c", "a")), read, {})
    assert isinstance(first, Prepared)
    assert isinstance(again, Prepared)
    assert isinstance(other, Prepared)
    assert first.view.train is again.view.train
    assert np.array_equal((first.view.train.targets - 1) % 3, other.view.train.targets)


def test_a_class_that_is_not_listed_is_refused() -> None:
    told = work(task(class_names=("a", "b", "d")), worker(ABC))
    assert (told.status, told.reason) == (
        "refused",
        "it has classes that the run does not list: 'c'",
    )
    told = work(task(), worker(ABC))
    assert (told.status, told.reason) == (
        "refused",
        "it names its classes, and the run has plain numbers",
    )
    assert work(task(), worker(("0", "", "2"))).status == "ok"
