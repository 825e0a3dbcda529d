"""Simulations on Ray: the same bits as in one process, despite failures; all processes end."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from edgefed.config.recipes.recipe import SimulationSection
from edgefed.data.base.types import Shard
from edgefed.errors import EdgeFedError, TimeLimitError, UnreachableError, UsageError
from edgefed.events.base.model import Event
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import Executor, Maker, Sequential
from edgefed.simulator.ray_actor import check_versions, versions
from edgefed.simulator.ray_executor import gpu_share, on_ray
from edgefed.simulator.run import Simulation
from tests.forked_programs import run_module
from tests.processes import PATIENCE, edgefed, outcome, start_module
from tests.simulator.sweep.sweeps import GRID, write
from tests.simulator.work import never, orders, recipe, shards

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed"
)


@dataclass(frozen=True)
class Held:
    """A cluster that belongs to somebody else."""

    address: str
    process: psutil.Process

    def actors(self) -> list[psutil.Process]:
        """The processes of our actors, which Ray names after their class."""
        found = []
        for child in self.process.children(recursive=True):
            try:
                if "RayActor" in " ".join(child.cmdline()):
                    found.append(child)
            except psutil.Error:
                continue
        return found

    def wait_until_free(self) -> None:
        until = time.monotonic() + PATIENCE
        while self.actors():
            assert time.monotonic() < until, "actors are left"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def held() -> Iterator[Held]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with mock.patch.dict(os.environ, token):
        yield from holding()


def holding() -> Iterator[Held]:
    process = start_module("tests.simulator.executors.ray_holder")
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, process.communicate()[1]
        yield Held(address, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def made(maker: Maker, data: list[Shard]) -> Executor:
    executor, how = maker(data, SimulationSection(), lambda text: None)
    assert "2 CPUs" in how
    return executor


def trained(folder: Path, workers: int = 0, maker: Maker | None = None) -> tuple[Any, ...]:
    record = Simulation(recipe(workers), folder, SystemClock(), executors=maker).run().record
    assert record.status == "finished", record.reason
    return record.weights_digest, record.accuracy, record.loss, record.bytes_up


@needs_ray
@pytest.mark.slow
def test_a_joined_cluster_ends_in_the_bits_of_one_process(
    held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", held.address)
    alone = trained(tmp_path / "1", 1)
    with on_ray() as maker:
        on_cluster = trained(tmp_path / "ray", 0, maker)
        stacked = recipe(0).model_copy(update={"simulation": SimulationSection(engine="stacked")})
        with pytest.raises(UsageError, match="stacked engine"):
            Simulation(stacked, tmp_path / "refused", SystemClock(), executors=maker)
    assert not (tmp_path / "refused").exists()
    assert on_cluster == alone
    held.wait_until_free()
    assert held.process.is_running()


@needs_ray
@pytest.mark.slow
def test_killed_actors_are_replaced_and_their_orders_done_again(
    held: Held, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed: list[int] = []
    told: list[str] = []

    def kill(event: Event, number: int) -> None:
        del number
        if event.kind == "note":
            told.append(event.fields["text"])
        if event.kind == "device" and event.fields.get("state") == "done" and not killed:
            killed.extend(actor.pid for actor in held.actors())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    with on_ray(held.address) as maker:
        simulation = Simulation(recipe(0), tmp_path / "ray", SystemClock(), executors=maker)
        simulation.journal.listen(kill)
        record = simulation.run().record
        after = [actor.pid for actor in held.actors()]
    assert record.status == "finished", record.reason
    assert killed
    assert after
    assert not set(killed) & set(after)
    assert any(text.startswith("an actor died; device-0") for text in told)
    assert capsys.readouterr().out == ""
    assert record.weights_digest == trained(tmp_path / "alone", 1)[0]


class Deadly(Shard):
    """A shard that ends whatever process reads it."""

    def __reduce__(self) -> Any:
        return os._exit, (9,)


@needs_ray
@pytest.mark.slow
def test_orders_that_fail_say_why_and_others_are_those_of_one_process(held: Held) -> None:
    data, (asked, blobs) = shards(4), orders(4)
    alone = {o.device: out for o, out in Sequential(data).outcomes(asked, blobs.__getitem__, never)}
    with on_ray(held.address) as maker:
        executor = made(maker, data)
        done = {o.device: out for o, out in executor.outcomes(asked, blobs.__getitem__, never)}
        assert set(done) == set(range(4))
        for device, expected in alone.items():
            assert done[device].blobs == expected.blobs
            assert done[device].metrics == expected.metrics

        with on_ray(patience=1) as second, pytest.raises(TimeLimitError, match="0 of its 2 CPUs"):
            list(made(second, data).outcomes(asked, blobs.__getitem__, never))

        stopping = [False, True]
        list(executor.outcomes(asked, blobs.__getitem__, lambda: stopping.pop(0)))
        assert not stopping
        deadly = made(maker, [Deadly(each.train, each.test, each.classes) for each in data[:1]])
        with pytest.raises(EdgeFedError, match="died twice on device device-00") as caught:
            list(deadly.outcomes(asked[:1], blobs.__getitem__, never))
        assert caught.value.code == "simulation.worker"
    held.wait_until_free()


@needs_ray
@pytest.mark.slow
def test_a_sweep_on_a_cluster_has_the_results_of_one_without(held: Held, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits are not installed")
    file = write(tmp_path / "sweep", GRID.replace("seeds = [1, 2]", "seeds = [2]"))
    told = []
    for place in ([], ["--on", "ray", "--address", held.address]):
        out = tmp_path / f"out{len(place)}"
        words = ("sim", "sweep", str(file), "--out", str(out), "--json", *place)
        code, text, error = run_module("edgefed.cli.main", *words)
        assert code == 0, error
        told.append([(c["case"], c["accuracy"], c["loss"]) for c in json.loads(text)["cases"]])
    assert told[0] == told[1]
    assert len({loss["mean"] for _, _, loss in told[0]}) == 2
    held.wait_until_free()


@needs_ray
@pytest.mark.slow
def test_ctrl_c_ends_all_that_a_run_has_started(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text('[data]\nname = "digits"\n[rounds]\ncount = 100000\n')
    pytest.importorskip("sklearn", reason="the digits are not installed")
    state = tmp_path / "state"
    place = ("--on", "ray", "--address", "local")
    process = edgefed("--state", str(state), "sim", "run", str(file), *place)
    wait_for_a_round(process, state)
    started = psutil.Process(process.pid).children(recursive=True)
    assert any("RayActor" in " ".join(child.cmdline()) for child in started)
    assert all(is_loopback(child) for child in started)
    process.send_signal(signal.SIGINT)
    code, told, error = outcome(process)
    assert code == 130
    assert told == ""
    assert error.splitlines()[-1] == "edgefed: error: Interrupted.  [interrupted]"
    _, left = psutil.wait_procs(started, timeout=PATIENCE)
    assert not left


def wait_for_a_round(process: subprocess.Popen[str], state: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not any('"scored"' in path.read_text() for path in state.rglob("events.jsonl")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "no round was done"
        time.sleep(0.05)


def is_loopback(process: psutil.Process) -> bool:
    """Whether only this machine reaches what a process listens on."""
    listening = [each for each in process.net_connections() if each.status == psutil.CONN_LISTEN]
    return all("127.0.0.1" in each.laddr.ip for each in listening)


@needs_ray
def test_where_there_is_no_cluster_the_address_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UnreachableError, match=address), on_ray(address):
            raise AssertionError("it was joined")


@pytest.mark.parametrize("address", ["here", "ray://127.0.0.1:10001", ":6379", "host:port"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(UsageError) as caught, on_ray(address):
        raise AssertionError("it was joined")
    assert caught.value.code == "ray.address"


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError) as caught, on_ray("local"):
        raise AssertionError("it started")
    assert (caught.value.code, caught.value.hint) == ("ray.missing", "pip install 'edgefed[ray]'")


@pytest.mark.parametrize("name", versions())
def test_another_version_on_the_cluster_is_told(name: str) -> None:
    check_versions(versions())
    with pytest.raises(EdgeFedError, match=f"has {name} 0.0.1, this one has"):
        check_versions({**versions(), name: "0.0.1"})


@pytest.mark.parametrize(
    ("actors", "gpus", "share"), [(4, 0, 0), (4, 1, 1 / 4), (3, 2, 1 / 2), (8, 2, 1 / 4), (1, 2, 1)]
)
def test_actors_share_gpus_without_having_parts_of_two(
    actors: int, gpus: int, share: float
) -> None:
    assert gpu_share(actors, gpus) == share
