"""Simulations on Ray: the same bits as in one process, despite failures; all processes end."""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgefed.config.recipes.recipe import SimulationSection
from edgefed.data.base.types import Shard
from edgefed.errors import EdgeFedError, TimeLimitError, UnreachableError, UsageError
from edgefed.events.base.model import Event
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import Maker, Sequential
from edgefed.simulator.ray_actor import check_versions, versions
from edgefed.simulator.ray_executor import RayExecutor, gpu_share, on_ray
from edgefed.simulator.run import Simulation
from tests.processes import PATIENCE, clean_environment, start_module
from tests.programs.forked_programs import ForkedProgram
from tests.simulator.sweep.sweeps import GRID, Swept, planned, write
from tests.simulator.work import LONG, MANY, never, orders, recipe, shards

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed"
)


@dataclass(frozen=True)
class Held:
    """A cluster of two nodes that belongs to somebody else; ``other`` is the one with no head."""

    address: str
    process: psutil.Process
    other: int

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


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    process = start_module("tests.simulator.executors.ray_holder")
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert words, process.communicate()[1]
        yield Held(words[0], psutil.Process(process.pid), int(words[1]))
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def made(maker: Maker, data: list[Shard]) -> RayExecutor:
    executor, how = maker(data, SimulationSection(), lambda text: None)
    assert isinstance(executor, RayExecutor)
    assert "2 machines, 2 CPUs" in how
    return executor


class Deadly(Shard):
    """A shard that ends whatever process reads it."""

    def __reduce__(self) -> Any:
        return os._exit, (9,)


@needs_ray
@pytest.mark.slow
def test_a_cluster_has_the_bits_of_one_process_despite_failures(
    held: Held,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One cluster for all, and few actors: each takes many seconds to start."""
    monkeypatch.setenv("RAY_ADDRESS", held.address)
    before = signal.getsignal(signal.SIGTERM)
    with on_ray() as maker:
        assert signal.getsignal(signal.SIGTERM) == before, "Ray sets one of its own"
        check_orders(maker)
        stacked = recipe(0).model_copy(update={"simulation": SimulationSection(engine="stacked")})
        with pytest.raises(UsageError, match="stacked engine"):
            Simulation(stacked, tmp_path / "refused", SystemClock(), executors=maker)
        assert not (tmp_path / "refused").exists()
        check_death(held, maker, tmp_path)
        check_sweep(maker, tmp_path)
        check_ends(maker)
        assert capsys.readouterr().out == ""
    held.wait_until_free()
    assert held.process.is_running()
    assert signal.getsignal(signal.SIGTERM) == before


def check_orders(maker: Maker) -> None:
    """Check their outcomes, that each node gets the data once, and that others' room is waited for.

    Two actors are idle afterwards.
    """
    from ray.experimental import get_object_locations

    data, (asked, blobs) = shards(8, samples=2000), orders(8, epochs=1)
    executor, until, places = made(maker, data), time.monotonic() + PATIENCE, [""]
    while len(places) < 2:  # one actor may do all orders before the other one has started
        assert time.monotonic() < until, "an actor has not started"
        done = {o.device: out for o, out in executor.outcomes(asked, blobs.__getitem__, never)}
        (crate,) = get_object_locations(executor._crates).values()
        places = crate["node_ids"]
    assert len(set(places)) == len(places) == 2
    assert set(done) == set(range(8))
    for order, expected in Sequential(data).outcomes(asked, blobs.__getitem__, never):
        assert done[order.device].blobs == expected.blobs
        assert done[order.device].metrics == expected.metrics
    executor.close()
    with on_ray(patience=1) as second, pytest.raises(TimeLimitError, match="0 of its 2 CPUs"):
        list(made(second, data).outcomes(asked, blobs.__getitem__, never))


def check_death(held: Held, maker: Maker, folder: Path) -> None:
    """Kill a node in the second round; the actor of the other one is left."""
    alone = Simulation(recipe(1), folder / "alone", SystemClock()).run().record
    simulation = Simulation(recipe(0), folder / "ray", SystemClock(), executors=maker)
    killed, told, begun = False, list[str](), 0

    def hear(event: Event, number: int) -> None:
        nonlocal begun, killed
        del number
        if event.kind == "round":
            begun = event.fields["round"]
        if event.kind == "note":
            told.append(event.fields["text"])
        if event.fields.get("state") == "done" and begun == 2 and not killed:
            os.kill(held.other, signal.SIGKILL)
            killed = True

    simulation.journal.listen(hear)
    record = simulation.run().record
    assert record.status == "finished", record.reason
    deaths = [text for text in told if text.startswith("an actor died; device-0")]
    # Ray says that the node died, or before it knows, that the actor is unavailable
    assert any("node" in text or "unavailable" in text for text in deaths), told
    for name in ("weights_digest", "accuracy", "loss", "bytes_up"):
        assert getattr(record, name) == getattr(alone, name)


def check_sweep(maker: Maker, folder: Path) -> None:
    """Check that a sweep on the cluster has the results of one without."""
    file = write(folder / "sweep", GRID.replace("seeds = [1, 2]", "seeds = [2]"))
    alone, cluster = (
        Swept(folder / f"out-{number}").run(planned(file), executors=executors)
        for number, executors in enumerate((None, maker))
    )
    assert cluster.failures == {}
    found = [
        [result.weights_digest for result in each.results.values()] for each in (alone, cluster)
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) == 2


def check_ends(maker: Maker) -> None:
    """Check that no order kills without end, and that no stop waits for an order."""
    (shard,) = shards(1)
    deadly = made(maker, [Deadly(shard.train, shard.test, shard.classes)])
    asked, blobs = orders(1, **LONG)
    with pytest.raises(EdgeFedError, match="died twice on device device-00") as caught:
        list(deadly.outcomes(asked, blobs.__getitem__, never))
    assert caught.value.code == "simulation.worker"
    executor = made(maker, shards(1, MANY))
    actors = executor._actor_pool.actors
    at_work = lambda: any(actor.order is not None for actor in actors)  # noqa: E731
    assert not list(executor.outcomes(asked, blobs.__getitem__, at_work))
    assert not actors


@needs_ray
@pytest.mark.slow
def test_ctrl_c_ends_all_that_a_run_has_started(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    pytest.importorskip("sklearn", reason="the digits are not installed")
    file.write_text("[rounds]\ncount = 100000\n[simulation]\nworkers = 1\n")
    state = tmp_path / "state"
    words = ("--state", str(state), "sim", "run", str(file), "--on", "ray", "--address", "local")
    environment = {**clean_environment(), "RAY_worker_niceness": "0"}
    out, err = tmp_path / "out", tmp_path / "err"
    process = ForkedProgram(["edgefed.cli.main", *words], environment, out, err)
    wait_for_a_round(process, state)
    started = psutil.Process(process.pid).children(recursive=True)
    assert any("RayActor" in " ".join(child.cmdline()) for child in started)
    assert all(is_loopback(child) for child in started)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    assert out.read_text() == ""
    assert err.read_text().splitlines()[-1] == "edgefed: error: Interrupted.  [interrupted]"
    _, left = psutil.wait_procs(started, timeout=PATIENCE)
    assert not left


def wait_for_a_round(process: ForkedProgram, state: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not any('"scored"' in path.read_text() for path in state.rglob("events.jsonl")):
        assert process.poll() is None, "it ended by itself"
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
