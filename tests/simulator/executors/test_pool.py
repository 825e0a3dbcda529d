"""Worker processes: the same bits as one process, and a dead worker is replaced."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from edgefed.data.base.types import Shard
from edgefed.errors import EdgeFedError
from edgefed.process.clock import SystemClock
from edgefed.simulator.process_pool import ProcessPool
from edgefed.simulator.run import Simulation
from tests.processes import PATIENCE, clean_environment
from tests.programs.forked_programs import ForkedProgram
from tests.simulator.work import LONG, MANY, never, orders, recipe, shards
from tests.transport.listening import wait_until

Workers = Callable[[], list[int]]
"""The processes that a test has started and that still run."""


@pytest.fixture
def workers() -> Workers:
    """Return what finds a test's own processes among those of the test's process."""
    before = _all_children()
    return lambda: sorted(_all_children() - before)


def test_workers_end_in_the_bits_of_one_process(tmp_path: Path) -> None:
    results = []
    for workers in (1, 3):
        simulation = Simulation(recipe(workers), tmp_path / str(workers), SystemClock())
        record = simulation.run().record
        results.append((record.weights_digest, record.accuracy, record.loss, record.bytes_up))
    assert results[0] == results[1]
    assert results[0][0]


def test_a_killed_worker_is_replaced_and_its_order_done_again(workers: Workers) -> None:
    data, (asked, blobs) = shards(6), orders(6)
    pool = ProcessPool(data, 2)
    done: list[int] = []
    try:
        for order, outcome in pool.outcomes(asked, blobs.__getitem__, never):
            if not done:
                os.kill(workers()[0], signal.SIGKILL)
            assert outcome.status == "ok", outcome.reason
            done.append(order.device)
    finally:
        pool.close()
    assert sorted(done) == list(range(6))


def test_workers_that_keep_dying_end_the_run_with_a_clear_error(workers: Workers) -> None:
    class Deadly(Sequence[Shard]):
        """Shards of which one ends whatever process reads it."""

        def __init__(self, real: list[Shard], parent: int) -> None:
            self._real, self._parent = real, parent

        def __len__(self) -> int:
            return len(self._real)

        def __getitem__(self, index: object) -> Shard:  # type: ignore[override]
            if index == 1 and os.getpid() != self._parent:
                os._exit(9)
            return self._real[index]  # type: ignore[call-overload, no-any-return]

    pool = ProcessPool(Deadly(shards(3), os.getpid()), 2)
    asked, blobs = orders(3)
    try:
        with pytest.raises(EdgeFedError, match="died twice on device device-01") as caught:
            list(pool.outcomes(asked, blobs.__getitem__, never))
    finally:
        pool.close()
    assert caught.value.code == "simulation.worker"
    assert not workers()


def test_stopping_does_not_wait_for_an_order_to_be_done(workers: Workers) -> None:
    pool, (asked, blobs) = ProcessPool(shards(2, MANY), 2), orders(2, **LONG)
    answers = [False, False, True]
    assert not list(pool.outcomes(asked, blobs.__getitem__, lambda: answers.pop(0)))
    assert not answers
    assert not workers()


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Two of them work and one is idle."""
    log = tmp_path / "log"
    words = ["tests.simulator.executors.pool_holder"]
    program = ForkedProgram(words, clean_environment(), log)
    wait_until(lambda: log.exists() and "ready\n" in log.read_text(), "the pool")
    workers = psutil.Process(program.pid).children()
    assert len(workers) == 3
    program.kill()
    program.wait()
    _, left = psutil.wait_procs(workers, timeout=PATIENCE)
    assert not left


def test_where_no_process_can_be_started_it_says_so(
    monkeypatch: pytest.MonkeyPatch, workers: Workers
) -> None:
    forks: list[int] = []

    def fork() -> int:
        forks.append(1)
        if len(forks) > 1:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return real()

    real = os.fork
    monkeypatch.setattr(os, "fork", fork)
    pool, (asked, blobs) = ProcessPool(shards(2), 2), orders(2)
    with pytest.raises(EdgeFedError, match="cannot be started: Resource temp") as caught:
        list(pool.outcomes(asked, blobs.__getitem__, never))
    assert caught.value.code == "simulation.worker"
    assert not workers()


def test_pools_leave_no_open_files_behind() -> None:
    before = psutil.Process().num_fds()
    for _ in range(2):
        pool, (asked, blobs) = ProcessPool(shards(2), 2), orders(2)
        for _, outcome in pool.outcomes(asked, blobs.__getitem__, never):
            assert outcome.status == "ok", outcome.reason
        pool.close()
    assert psutil.Process().num_fds() == before


def _all_children() -> set[int]:
    return {child.pid for child in psutil.Process().children() if child.is_running()}
