"""A simulation leaves its caller's process as it was, wherever it is called from."""

from __future__ import annotations

import asyncio
import functools
import gc
import multiprocessing
import os
import random
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import edgefed
from edgefed.coordinator.storage.run_store import Store
from tests.api.small import TEST, TRAIN, arrays, recipe
from tests.processes import PATIENCE, clean_environment
from tests.programs.forked_programs import ForkedProgram, ended
from tests.transport.listening import wait_until

DATA: dict[str, Any] = {"data": arrays(TRAIN), "test": arrays(TEST)}
DROPOUT: dict[str, Any] = {"model": {"name": "tests.api.drawing_model:make"}}


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use a folder of the test's own for temporary files, and find it empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    get_temp_dir()  # multiprocessing's own, which stays for all tests of this process
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def small(workers: int = 1, **sections: Any) -> str:
    """Return the digest of a small run."""
    tables = recipe(simulation={"workers": workers}, **sections)
    return edgefed.simulate(tables, **DATA).weights_digest


@functools.cache
def reference() -> str:
    return small()


def test_threads_and_generators_of_the_caller_are_untouched_and_have_no_part() -> None:
    before, digests = torch.get_num_threads(), set()
    torch.set_num_threads(3)
    try:
        for workers in (1, 2):
            torch.manual_seed(workers)
            np.random.seed(workers)
            random.seed(workers)
            states = torch.get_rng_state(), np.random.get_state(), random.getstate()
            digests.add(small(workers, **DROPOUT))
            assert torch.get_num_threads() == 3
            assert torch.equal(torch.get_rng_state(), states[0])
            assert str(np.random.get_state()) == str(states[1])
            assert random.getstate() == states[2]
        with pytest.raises(edgefed.EdgeFedError):
            edgefed.simulate({"data": {"name": "npz", "path": "absent"}})
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert len(digests) == 1


def inside_a_loop(work: Callable[[], str]) -> str:
    async def call() -> str:
        return work()

    return asyncio.run(call())


def in_a_thread(work: Callable[[], str]) -> str:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@pytest.mark.parametrize(("how", "workers"), [(inside_a_loop, 2), (in_a_thread, 1)])
def test_it_works_where_notebooks_call_it(
    how: Callable[[Callable[[], str]], str], workers: int
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert how(lambda: small(workers)) == reference()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_calls_in_several_threads_take_turns() -> None:
    wanted = [small(seed=seed, **DROPOUT) for seed in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda seed: small(seed=seed, **DROPOUT), range(2))
        assert list(found) == wanted


def _in_a_pool(digests: multiprocessing.SimpleQueue[str]) -> None:
    digests.put(small(2))


def test_it_works_in_a_daemonic_process() -> None:
    context = multiprocessing.get_context("fork")
    digests = context.SimpleQueue()
    process = context.Process(target=_in_a_pool, args=(digests,), daemon=True)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert digests.get() == reference()


def held() -> tuple[int, int, int]:
    """Return how many threads, open files and children this process has."""
    gc.collect()
    this = psutil.Process()
    return threading.active_count(), len(os.listdir("/proc/self/fd")), len(this.children())  # noqa: PTH208


@pytest.mark.parametrize(("workers", "end"), [(1, "refuse"), (2, "finish"), (2, "fail")])
def test_repeated_calls_leave_no_thread_file_or_process(
    workers: int, end: str, tmp_path: Path
) -> None:
    def fail(result: edgefed.RoundResult) -> None:
        raise ValueError

    def call() -> None:
        tables = recipe(simulation={"workers": workers})
        if end == "refuse":
            (tmp_path / "file").write_text("")
        folder = tmp_path / ("file" if end == "refuse" else "runs")
        calls = [fail] if end == "fail" else []
        try:
            edgefed.simulate(tables, callbacks=calls, folder=folder, **DATA)
        except edgefed.EdgeFedError:
            assert end != "finish"
        else:
            assert end == "finish"

    call()
    before = held()
    for _ in range(2):
        call()
    assert held() == before


INTERRUPTED = """
import os, signal, sys, tempfile
import edgefed
from tests.api.small import TEST, TRAIN, arrays, recipe

os.setsid()
signal.signal(signal.SIGINT, signal.default_int_handler)
folder, tempfile.tempdir = {folders!r}

def told(result):
    print(result.number, flush=True)

tables = recipe(rounds={{"count": 100000}}, simulation={{"workers": 2}})
try:
    edgefed.simulate(tables, data=arrays(TRAIN), test=arrays(TEST), callbacks=told, folder=folder)
except KeyboardInterrupt:
    import psutil, threading
    print("interrupted", len(psutil.Process().children()), threading.active_count())
"""


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path) -> None:
    folder, out, err = tmp_path / "runs", tmp_path / "out", tmp_path / "err"
    code = INTERRUPTED.format(folders=(str(folder), str(tmp_path / "temporary")))
    (tmp_path / "interrupted.py").write_text(code)
    environment = {**clean_environment(), "PYTHONPATH": str(tmp_path)}
    process = ForkedProgram(["interrupted"], environment, out, err)
    wait_until(lambda: out.exists() and "3\n" in out.read_text(), "three rounds")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    assert (out.read_text().splitlines()[-1], err.read_text()) == ("interrupted 0 1", "")
    assert list(tmp_path.rglob("*.part")) == []
    store = Store(folder / "simulations")
    (record,) = store.runs()
    rounds = len(store.rounds(record.run))
    store.close()
    assert (record.status, record.error) == ("aborted", "interrupted")
    assert record.round == rounds >= 3


MANY_THREADS = """
import torch, edgefed
torch.set_num_threads(4)
a = torch.randn(800, 800)
(a @ a).sum()
from tests.api.small import *
r = recipe(simulation={"workers": 2})
digest = edgefed.simulate(r, data=arrays(TRAIN), test=arrays(TEST)).weights_digest
print(digest, torch.get_num_threads())
"""


@pytest.mark.slow
def test_it_works_after_torch_has_computed_with_many_threads(tmp_path: Path) -> None:
    """Worker processes are forked from a process whose torch has computed with many threads."""
    (tmp_path / "many_threads.py").write_text(MANY_THREADS)
    told = ended(["many_threads"], {**clean_environment(), "PYTHONPATH": str(tmp_path)})
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.split() == [reference(), "4"]
