"""Two exchanges open at once, put to real agents, over two lives of the coordinator's side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.algorithms.interface.base import State
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.learn.modeling.model_building import build
from edgefed.wire.messages import BlobRef, Task
from edgefed.wire.tensors import digest, pack
from tests.agent.agent_harness import CLASSES, MODEL, SAMPLES, SHAPE, write_data
from tests.complete_task import complete
from tests.coordinator.dispatch.test_dispatcher import DEVICES, TOPICS, Scene, at_work, never
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram
from tests.run_fixture import Ticking
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto

DEADLINE = 120.0


@pytest.fixture
def agents(mosquitto: MosquittoBroker, tmp_path: Path) -> Iterator[None]:
    """Agents with the names of the two devices."""
    data = write_data(tmp_path / "data.npz")
    started = [
        ForkedProgram(
            (
                *("device_agent.commands.cli", "run", "--broker", str(mosquitto.address)),
                *("--fleet", TOPICS.fleet, "--state", str(tmp_path / name)),
                *("--name", name, "--data", f"npz:{data}"),
            ),
            clean_environment(),
            tmp_path / f"{name}.log",
        )
        for name in DEVICES
    ]
    yield
    for process in started:
        process.kill()
        process.wait()


def exchange(run: str, index: int, weights: bytes, devices: tuple[str, ...]) -> OpenExchange:
    name = f"{run}-{index}"
    fields = {
        "run": run,
        "exchange": name,
        "index": index,
        "round": 1,
        "question": "fit",
        "deadline": DEADLINE,
        "algorithm": "fedavg",
        "settings": {},
        "model": MODEL,
        "shape": SHAPE,
        "classes": CLASSES,
        "training": {"epochs": 1, "batch_size": 4},
        "codec": "bf16",
        "error_feedback": True,
        "samples": SAMPLES,
        "blobs": {"weights": BlobRef(digest=digest(weights), size=len(weights))},
        "params": {},
    }
    tasks = tuple(
        Task(**complete({**fields, "device": device, "seed": 10 * index + place}))
        for place, device in enumerate(devices)
    )
    return OpenExchange(
        name, index, "fit", 1, tasks, 2, 1, DEADLINE, max_reply_bytes=2 * len(weights)
    )


def weights() -> bytes:
    return pack(build(ModelSection.model_validate(MODEL), SHAPE, CLASSES, 5).weights())


def told(delivered: Delivered) -> tuple[str, str, str]:
    """Return whose reply it is, and the digest of its delta, which is here whole."""
    ref = delivered.reply.blobs["delta"]
    assert digest(delivered.read(ref.digest)) == ref.digest
    return delivered.reply.exchange, delivered.reply.device, ref.digest


def tasks(scene: Scene, device: str) -> list[str]:
    given = scene.told(TOPICS.task(device), Task)
    return [each.exchange for each in given if isinstance(each, Task)]


def collect(scene: Scene, opened: OpenExchange) -> list[tuple[str, str, str]]:
    found = []
    for delivered in scene.fleet.replies(opened, never):
        found.append(told(delivered))
        scene.fleet.verdict(delivered.reply, "accepted", "")
    return sorted(found)


def test_agents_answer_two_open_exchanges_and_after_a_restart_the_same_again(
    mosquitto: MosquittoBroker, tmp_path: Path, agents: None
) -> None:
    """The first life ends with both open and written down; nothing is trained twice."""
    blob = weights()
    with closing(Store(tmp_path / "state")) as store:
        record = create_run(store, Recipe(), Ticking())
        store.commit(record, State(0, {}, {}), {})
        both = exchange(record.run, 0, blob, DEVICES), exchange(record.run, 1, blob, DEVICES[:1])
        for opened in both:
            store.begin_exchange(record, opened, {})
    with at_work(mosquitto, tmp_path / "first", play_births=False) as scene:
        scene.cache.put(blob)
        wait_until(lambda: len(scene.registry.roster()) == 2, "the agents")
        for opened in both:
            scene.fleet.put(opened)
        second, first = collect(scene, both[1]), collect(scene, both[0])
        assert [each[:2] for each in (*first, *second)] == [
            (both[0].exchange, "one"),
            (both[0].exchange, "two"),
            (both[1].exchange, "one"),
        ]
        assert tasks(scene, "one") == [both[0].exchange, both[1].exchange], "each was given once"
        assert tasks(scene, "two") == [both[0].exchange]
    with closing(Store(tmp_path / "state")) as store:
        found = store.checkpoint(record.run)
        assert found is not None
        assert found.open == both
    with at_work(mosquitto, tmp_path / "second", play_births=False) as scene:
        scene.cache.put(blob)
        wait_until(lambda: len(scene.registry.roster()) == 2, "the agents again")
        for opened in found.open:
            scene.fleet.put(opened)
        assert collect(scene, both[1]) == second
        assert collect(scene, both[0]) == first
        for opened in both:
            scene.fleet.drop(opened)
