"""The coordinator process: which runs it resumes, and the effects of a crashed run."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from broker.mosquitto import MosquittoBroker
from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.process.service import Service
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.errors import NotAllowedError, StorageError
from edgefed.process.clock import SystemClock
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import Request
from tests.run_fixture import recipe, shards
from tests.signed_fleet import Trust
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto


def plan() -> Recipe:
    return recipe(data={"name": "none"}, evaluation={"every": 0}, rounds={"count": 2})


@contextmanager
def serving(broker: MosquittoBroker, folder: Path) -> Iterator[Service]:
    """A coordinator whose devices are virtual ones."""
    service = Service(ServiceSettings(broker.address, "review", folder), SystemClock())
    with running_service(service):
        yield service


@contextmanager
def running_service(service: Service) -> Iterator[None]:
    """Let a coordinator serve, with virtual devices for real ones."""
    cache: BlobCache = service.cache
    devices = LocalFleet(shards((5, 9)), cache, SystemClock())
    service.fleet.ask = devices.ask  # type: ignore[method-assign]
    service.fleet.roster = devices.roster  # type: ignore[method-assign]
    service.fleet.wait_for = devices.wait_for  # type: ignore[method-assign]
    service.fleet.verdict = devices.verdict  # type: ignore[method-assign]
    thread = threading.Thread(target=service.serve)
    thread.start()
    try:
        yield
    finally:
        service.stop()
        thread.join()


def test_memory_is_released_once_a_run_has_ended(
    mosquitto: MosquittoBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[tuple[str, bool]] = []
    with serving(mosquitto, tmp_path) as service:

        def release() -> None:
            released.append((service._store.runs()[0].status, bool(service._jobs)))

        monkeypatch.setattr("edgefed.coordinator.process.service.release_memory", release)
        for _ in range(2):
            before = len(released)
            service.start(plan())
            wait_until(lambda count=before: len(released) > count, "the release")  # type: ignore[misc]
    assert released == [("finished", False)] * 2


def test_a_bug_in_the_middle_gives_no_index_away_twice(
    mosquitto: MosquittoBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = FedAvg.merge

    def broken(self: FedAvg, state: State, asked: Exchange, answers: Iterable[Answer]) -> State:
        if asked.round == 2:
            raise RuntimeError("a bug")
        return merge(self, state, asked, answers)

    monkeypatch.setattr(FedAvg, "merge", broken)
    with serving(mosquitto, tmp_path) as service:
        run = service.start(plan()).run
        wait_until(lambda: service._store.run(run).status == "failed", "the failure")
        failed = service._store.run(run)
        assert (failed.round, failed.exchanges) == (1, 2)
        wait_until(lambda: not service._jobs, "the end of the job")
        shown = service.journal.current()[0].run
        assert shown is not None
        assert (shown.status, shown.round) == ("failed", 1)
        assert "a bug" in failed.reason
        monkeypatch.undo()
        service.order(run, "resume")
        wait_until(lambda: service._store.run(run).status == "finished", "the end")
        wait_until(lambda: not service._jobs, "the end of the job")
        other = service.start(plan()).run
        wait_until(lambda: service._store.run(other).status == "finished", "the undisturbed run")
        resumed, undisturbed = service._store.run(run), service._store.run(other)
        assert resumed.exchanges == undisturbed.exchanges
        assert resumed.weights_digest == undisturbed.weights_digest != ""


def test_a_deleted_run_leaves_the_snapshot(mosquitto: MosquittoBroker, tmp_path: Path) -> None:
    with serving(mosquitto, tmp_path) as service:
        runs = []
        for _ in range(2):
            runs.append(service.start(plan()).run)
            wait_until(lambda: service._store.run(runs[-1]).status == "finished", "the end")
            wait_until(lambda: not service._jobs, "the end of the job")
        for gone, left in zip(reversed(runs), (runs[0], None), strict=True):
            number = service.journal.number
            service.delete(gone)
            snapshot = service.journal.snapshot
            assert (snapshot.run.run if snapshot.run else None) == left
            assert bool(snapshot.rounds) == (left is not None)
            assert service.journal.number == number + 1, "clients ask for the snapshot anew"


@pytest.mark.parametrize("lost", ["changed", "row"])
def test_a_run_without_its_checkpoint_is_not_resumed(
    lost: str, mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    """As in a copy of the folder that was made while the coordinator ran."""
    with serving(mosquitto, tmp_path) as service:
        run = service.start(plan()).run
        wait_until(lambda: service._store.run(run).status == "finished", "the end")
        wait_until(lambda: not service._jobs, "the end of the job")
        service._store.save_run(replace(service._store.run(run), status="failed"))
        before = service._store.run(run)
        (state,) = service._store.run_folder(run).glob("state-*.safetensors")
        kept = state.read_bytes()
        if lost == "changed":
            state.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        else:
            with service._store._db.transaction():
                service._store._db.delete("checkpoints", run=run)
        with pytest.raises(StorageError) as caught:
            service.order(run, "resume")
        assert caught.value.code == "run.checkpoint"
        assert caught.value.exit_code != 0
        assert service._store.run(run) == before  # nothing was begun
        assert not service._jobs
        if lost != "row":
            state.write_bytes(kept)
            assert service.order(run, "resume") == "taken up from its last checkpoint"
            wait_until(lambda: service._store.run(run).status == "finished", "the end")
            wait_until(lambda: not service._jobs, "the end of the job")
        fresh = create_run(service._store, plan(), SystemClock()).run
        service._store.save_run(replace(service._store.run(fresh), status="failed"))
        assert service.order(fresh, "resume") == "taken up from its beginning"
        wait_until(lambda: service._store.run(fresh).status == "finished", "the end")
        wait_until(lambda: not service._jobs, "the end of the job")


def test_every_unfinished_run_is_taken_up_and_takes_orders(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    runs = [create_run(store, plan(), SystemClock()).run for _ in range(2)]
    for run in runs:
        store.save_run(replace(store.run(run), status="paused"))
    store.close()
    with serving(mosquitto, tmp_path) as service:
        wait_until(lambda: list(service._jobs) == runs, "the runs")
        with pytest.raises(NotAllowedError) as caught:  # at once, before what takes time
            service.start(recipe(model={"name": "mlp", "weights": "none.pth"}))
        assert caught.value.code == "run.busy"
        assert service.check(plan())["busy"] == runs[0]
        for run in runs:
            assert service.order(run, "resume") == "running"
        for run in runs:
            wait_until(lambda at=run: service._store.run(at).status == "finished", run)  # type: ignore[misc]
        assert len(service._store.rounds(runs[1])) == 2


def test_a_viewer_may_ask_and_gives_no_orders(mosquitto: MosquittoBroker, tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust")
    with serving(mosquitto, tmp_path / "state") as service:
        handler = service._requests._handler
        for role, allowed in (("viewer", False), ("operator", True)):
            signer = trust.issue(role, "ann").certificate  # type: ignore[arg-type]
            asked = Request(nonce="ab" * 8, action="run.list")
            assert handler.answer(asked, signer)[0].ok
            order = Request(
                nonce="cd" * 8,
                action="device.forget",
                arguments={"device": ""},
                challenge=handler._challenges.issue("ann"),
            )
            (answer,) = handler.answer(order, signer, "ann")
            assert answer.ok is allowed
            assert allowed or b"request.role" in zstandard.decompress(answer.body)
            check = Request(nonce="ef" * 8, action="run.check", arguments={"recipe": {}})
            told = zstandard.decompress(handler.answer(check, signer)[0].body)
            assert (b"request.role" in told) is not allowed  # it would read files of its choice
