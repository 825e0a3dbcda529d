"""A simulation leaves its caller's process as it was, wherever it is called from."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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

DATA: dict[str, Any] = {"data": arrays(TRAIN), "test": arrays(TEST)}
DROPOUT: dict[str, Any] = {"model": {"name": "tests.api.drawing_model:make"}}


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use a folder of the test's own for temporary files, and find it empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def small(workers: int = 1, **sections: Any) -> str:
    """Return the digest of a small run."""
    tables = recipe(simulation={"workers": workers}, **sections)
    return edgefed.simulate(tables, **DATA).weights_digest


@pytest.mark.parametrize("workers", [1, 2])
def test_threads_and_generators_of_the_caller_are_untouched(workers: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        states = torch.get_rng_state(), np.random.get_state(), random.getstate()
        small(workers, **DROPOUT)
        assert torch.get_num_threads() == 3
        assert torch.equal(torch.get_rng_state(), states[0])
        assert str(np.random.get_state()) == str(states[1])
        assert random.getstate() == states[2]
        with pytest.raises(edgefed.EdgeFedError):
            edgefed.simulate({"data": {"name": "npz", "path": "absent"}})
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_generators_of_the_caller_have_no_part_in_the_result() -> None:
    digests = set()
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        digests.add(small(2, **DROPOUT))
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
    assert how(lambda: small(workers)) == small(workers)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_calls_in_several_threads_take_turns() -> None:
    wanted = [small(seed=seed, **DROPOUT) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda seed: small(seed=seed, **DROPOUT), range(4))
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
    assert digests.get() == small(2)


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
    for _ in range(3):
        call()
    assert held() == before


INTERRUPTED = """
import signal, sys
import edgefed
from tests.api.small import TEST, TRAIN, arrays, recipe

signal.signal(signal.SIGINT, signal.default_int_handler)

def told(result):
    print(result.number, flush=True)

tables = recipe(rounds={{"count": 100000}}, simulation={{"workers": 2}})
folder = {folder!r}
try:
    edgefed.simulate(tables, data=arrays(TRAIN), test=arrays(TEST), callbacks=told, folder=folder)
except KeyboardInterrupt:
    import psutil, threading
    print("interrupted", len(psutil.Process().children()), threading.active_count())
"""


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path) -> None:
    folder, temporary = tmp_path / "runs", tmp_path / "temporary"
    code = INTERRUPTED.format(folder=str(folder))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**clean_environment(), "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out.splitlines()[-1:]) == (0, ["interrupted 0 1"]), err
    assert err == ""
    assert list(tmp_path.rglob("*.part")) == []
    store = Store(folder / "simulations")
    (record,) = store.runs()
    rounds = len(store.rounds(record.run))
    store.close()
    assert (record.status, record.error) == ("aborted", "interrupted")
    assert record.round == rounds >= 3


@pytest.mark.slow
def test_it_works_after_torch_has_computed_with_many_threads() -> None:
    """Worker processes are forked from a process whose torch has computed with many threads."""
    code = (
        "import torch, edgefed; torch.set_num_threads(4);"
        " a = torch.randn(800, 800); (a @ a).sum(); torch.set_num_threads(4);"
        "from tests.api.small import *;"
        "r = recipe(simulation={'workers': 2});"
        "print(edgefed.simulate(r, data=arrays(TRAIN), test=arrays(TEST)).weights_digest,"
        " torch.get_num_threads())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=clean_environment(),
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.split() == [small(2), "4"]
