"""Invalid messages, and floods of them, during a run without an access list: the same bits."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

import pytest

from benchmarks.attacks.flooding import FLOODS, publish
from edgefed.config.recipes.recipe import Recipe
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from edgefed.transport.link import Link
from edgefed.wire.envelope import encode
from edgefed.wire.limits import MAX_MESSAGE_BYTES
from edgefed.wire.messages import Chunk, Progress
from edgefed.wire.topics import Topics
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

RECIPE = Recipe.model_validate(
    {
        "name": "garbage",
        "seed": 3,
        "model": {"name": "mlp", "hidden": [32]},
        "data": {"classes_per_device": 5, "limit": 200},
        "rounds": {"count": 16, "lost_grace": "deadline", "quorum": 1.0, "min_devices": 2},
        "wire": {"downlink": "int8", "uplink": "int8"},
        "simulation": {"devices": 2},
    }
)
COUNTS = {"needs": 4_000, "births": 6_000, "tasks": 8_000, "states": 4_000}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """The fleet of all tests."""
    with fleet(tmp_path_factory.mktemp("home"), RECIPE) as made:
        made.wait_for_devices(2)
        yield made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest that the recipe ends in when nothing happens."""
    folder = tmp_path_factory.mktemp("sim")
    return Simulation(RECIPE, folder, SystemClock()).run().record.weights_digest


def disturbed(home: FleetProcesses, disturb: Callable[[], None]) -> str:
    """Return the digest of a run that is disturbed, in which nothing ends and nobody joins."""
    run = home.begin()
    wait_until(lambda: home.record(run)["round"] >= 2, "the second round")
    disturb()
    record = home.finish(run)
    assert record["status"] == "finished", record["reason"]
    assert {process.poll() for process in home.processes.values()} == {None}
    assert set(home.devices()) == {"device-00", "device-01"}
    return str(record["weights_digest"])


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


def test_garbage_on_every_topic_changes_nothing(home: FleetProcesses, undisturbed: str) -> None:
    rng = random.Random(5)
    vandal = Link(home.address, "vandal", lambda arrival: None)
    vandal.start_now(10)

    def spoil() -> None:
        for topic in topics(rng):
            for payload in payloads(rng):
                # What is empty clears a retained message, as any client may do; the births of
                # real devices are left alone, since those who lack rights may not write there.
                if payload or not topic.endswith(("birth", "coordinator")):
                    vandal.publish(topic, payload, qos=0)

    assert disturbed(home, spoil) == undisturbed
    vandal.stop()


def not_read(home: FleetProcesses, flood: str) -> int:
    """Return how many messages of a flood were counted and not read."""
    if flood == "tasks":
        (status,) = home.folder.glob("state/agents/*/device-00/status.json")
        return sum(json.loads(status.read_text())["over_limits"].values())
    return sum(home._ask("snapshot")["inbox"]["refused"].values())


def test_a_run_ends_with_the_same_bits_in_floods(home: FleetProcesses, undisturbed: str) -> None:
    def pour() -> None:
        for flood, count in COUNTS.items():
            before = not_read(home, flood)
            publish(home.address, FLOODS[flood](Topics(FLEET), [*home._sources], count))
            wait_until(lambda f=flood, b=before: not_read(home, f) > b + 1000, "the count")  # type: ignore[misc]

    assert disturbed(home, pour) == undisturbed
