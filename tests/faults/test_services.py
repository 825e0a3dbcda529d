"""A forgotten device over a real broker: nothing of it is left, and it may come back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.errors import EdgeFedError
from edgefed.transport.inbox import Incoming
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
    """A fleet of two devices."""
    with fleet(tmp_path_factory.mktemp("home"), RECIPE) as made:
        yield made


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
