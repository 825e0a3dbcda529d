"""Invalid messages on every topic during a run: nothing fails, and the bits are the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from edgefed.transport.link import Link
from edgefed.wire.envelope import encode
from edgefed.wire.limits import MAX_MESSAGE_BYTES
from edgefed.wire.messages import Chunk, Progress
from edgefed.wire.topics import Topics
from tests.faults.fleet_processes import FLEET, fleet, wait_until

RECIPE = Recipe.model_validate(
    {
        "name": "garbage",
        "seed": 3,
        "model": {"name": "mlp", "hidden": [32]},
        "data": {"classes_per_device": 5, "limit": 200},
        "rounds": {"count": 12, "lost_grace": "deadline", "quorum": 1.0, "min_devices": 2},
        "wire": {"downlink": "int8", "uplink": "int8"},
        "simulation": {"devices": 2},
    }
)


def payloads(rng: random.Random) -> list[bytes]:
    """Empty, random, truncated, oversized, of another version, and of the wrong kind."""
    good = encode(Progress(session="0" * 16, state="train"))
    return [
        b"",
        rng.randbytes(rng.randrange(1, 4000)),
        good[: rng.randrange(1, len(good))],
        good + b"\x00",
        rng.randbytes(MAX_MESSAGE_BYTES),
        b"\x93\x63" + good[2:],
        encode(
            Chunk(digest=rng.randbytes(32).hex(), index=rng.randrange(99), data=rng.randbytes(50))
        ),
    ]


def topics(rng: random.Random) -> list[str]:
    """Every topic of the fleet, for devices that are there and for one that is not."""
    tree, blob = Topics(FLEET), f"{rng.getrandbits(256):064x}"
    every = [tree.coordinator(), tree.broadcast_chunk(blob), tree.events()]
    every += [
        tree.request("local/1"),
        tree.response("local/1"),
        f"{tree.root}/all/c/{'0' * 64}/x",
    ]
    for device in ("device-00", "device-01", "nobody"):
        every += [tree.task(device), tree.receipt(device), tree.cancel(device)]
        every += [tree.down_need(device), tree.down_chunk(device)]
        every += [tree.birth(device), tree.progress(device), tree.telemetry(device)]
        every += [tree.reply(device), tree.up_need(device), tree.up_chunk(device)]
        every += [f"{tree.root}/up/{device}/c/short/0", f"{tree.root}/up/{device}/nonsense"]
    return every


@pytest.mark.slow
@pytest.mark.mosquitto
def test_garbage_on_every_topic_changes_nothing(tmp_path: Path) -> None:
    undisturbed = Simulation(RECIPE, tmp_path / "sim", SystemClock()).run().record
    rng = random.Random(5)
    with fleet(tmp_path / "home", RECIPE) as home:
        vandal = Link(home.address, "vandal", lambda arrival: None)
        vandal.start_now(10)
        run = home.begin()
        for _ in range(3):
            for topic in topics(rng):
                for payload in payloads(rng):
                    # What is empty clears a retained message, as any client may do; the births of
                    # real devices are left alone, since those who lack rights may not write there.
                    if payload or not topic.endswith(("birth", "coordinator")):
                        vandal.publish(topic, payload, qos=0)
        record = home.finish(run)
        alive = {name: process.poll() for name, process in home.processes.items()}
        vandal.stop()
    assert record["status"] == "finished", record["reason"]
    assert record["weights_digest"] == undisturbed.weights_digest
    assert set(alive.values()) == {None}


@pytest.mark.slow
@pytest.mark.mosquitto
def test_a_broker_that_is_away_for_a_while_costs_only_time(tmp_path: Path) -> None:
    undisturbed = Simulation(RECIPE, tmp_path / "sim", SystemClock()).run().record
    with fleet(tmp_path / "home", RECIPE) as home:
        run = home.begin()
        wait_until(lambda: home.record(run)["round"] >= 2, "the second round")
        home.kill("broker")
        wait_until(
            lambda: "connection to the broker lost" in (_events(home.folder, run)),
            "the coordinator to notice",
        )
        home.start("broker")
        record = home.finish(run)
    assert record["status"] == "finished", record["reason"]
    assert record["weights_digest"] == undisturbed.weights_digest


def _events(folder: Path, run: str) -> str:
    path = folder / "state" / "coordinator" / FLEET / "runs" / run / "events.jsonl"
    return path.read_text()
