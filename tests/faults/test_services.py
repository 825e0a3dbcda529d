"""Reports to the operator about parts of a fleet that stop and start, and clean-up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.errors import EdgeFedError
from edgefed.transport.link import Incoming
from edgefed.wire.envelope import decode
from edgefed.wire.messages import Birth
from edgefed.wire.topics import Topics
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until
from tests.transport.listening import linked

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]

GONE = "device-01"
RECIPE = Recipe.model_validate(
    {
        "name": "services",
        "seed": 7,
        "model": {"name": "mlp", "hidden": [8]},
        "data": {"limit": 200},
        "rounds": {"count": 2, "min_devices": 2},
        "simulation": {"devices": 2},
    }
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """The fleet of both tests, of which the first one is to be the first."""
    with fleet(tmp_path_factory.mktemp("home"), RECIPE) as made:
        yield made


def said(home: FleetProcesses, part: str) -> str:
    return (home.folder / f"{part}.log").read_text()


def wait_for_line(home: FleetProcesses, part: str, line: str) -> None:
    wait_until(lambda: line in said(home, part), f"{part} to say {line!r}", home.logs)


def wait_for_state(home: FleetProcesses, device: str, *, lost: bool) -> None:
    def reached() -> bool:
        found = home.devices().get(device)
        return found is not None and (found["state"] == "lost") == lost

    wait_until(reached, f"{device} to come or go", home.logs)


def forget(home: FleetProcesses, device: str) -> list[str]:
    client = CoordinatorClient(home.address, FLEET)
    client.connect()
    try:
        client.wait_until_online(30.0)
        return list(client.order("device.forget", device=device)["forgotten"])
    finally:
        client.close()


def test_the_logs_tell_who_comes_and_goes_rounds_and_connections(home: FleetProcesses) -> None:
    run = home.begin()
    home.finish(run)
    home.kill(GONE)
    wait_for_line(home, "coordinator", f"WARNING device {GONE} lost")
    home.start(GONE)
    wait_for_line(home, "coordinator", f"INFO device {GONE} returned, ")
    home.kill("broker")
    home.start("broker")
    for part in ("coordinator", "device-00"):
        wait_for_line(home, part, "WARNING connection to the broker lost: ")
        wait_for_line(home, part, "INFO connection to the broker restored")
    lines = said(home, "coordinator").splitlines()
    agent = said(home, "device-00").splitlines()
    told = [line.split(" INFO ", 1)[-1] for line in lines]
    assert told.count("connected to the broker") == 1
    assert [line for line in told if line.startswith("device device-00 joined, ")]
    rounds = [line for line in told if line.startswith(f"run {run}: round ")]
    assert ["accuracy 0." in line and "2 replies" in line for line in rounds] == [True, True]
    ends = [line for line in told if line.startswith(f"run {run} finished after round 2 of 2, ")]
    assert len(ends) == 1
    told = [line.split(" INFO ", 1)[-1] for line in agent]
    assert told.count("connected to the broker") == 1
    assert told.count(f"task {run}-0 taken: fit, round 1") == 1
    assert told.count(f"reply to {run}-0 accepted") == 1


def test_a_forgotten_device_stays_away_until_it_is_born_again(home: FleetProcesses) -> None:
    topic = Topics(FLEET).birth(GONE)
    wait_for_state(home, GONE, lost=False)
    home.kill(GONE)
    wait_for_state(home, GONE, lost=True)
    with linked(home.address, "before", topic) as (_, inbox):
        kept = inbox.wait(topic=topic)
        assert isinstance(kept, Incoming)
        assert decode(kept.payload, Birth).status == "lost"
    assert forget(home, "") == [GONE]
    assert list(home.devices()) == ["device-00"]
    with pytest.raises(EdgeFedError, match=f"No device {GONE}") as caught:
        forget(home, GONE)
    assert caught.value.code == "device.unknown"
    with linked(home.address, "after", topic) as (link, inbox):
        link.subscribe(Topics(FLEET).birth("device-00"))
        inbox.wait(topic=Topics(FLEET).birth("device-00"))
        assert [each.payload for each in inbox.messages() if each.topic == topic] == []
    home.kill("coordinator")
    home.start("coordinator")
    wait_for_state(home, "device-00", lost=False)
    assert list(home.devices()) == ["device-00"]
    home.start(GONE)
    wait_for_state(home, GONE, lost=False)
