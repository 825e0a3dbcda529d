"""Pauses, pings, logs and exclusions in a fleet with certificates and rules, across a SIGKILL."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.errors import EdgeFedError
from edgefed.simulator.local_fleet import device_names
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

FIRST, SECOND = device_names(2)
BY = "operator.ann"


def recipe() -> Recipe:
    """Two short rounds that one device suffices for."""
    return Recipe.model_validate(
        {
            "name": "orders",
            "seed": 3,
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"limit": 200},
            "rounds": {"count": 2, "min_devices": 1},
            "simulation": {"devices": 2, "holdout": 0.0},
        }
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """The fleet of all tests, one owner of which shares no log."""
    folder, settings = tmp_path_factory.mktemp("home"), {FIRST: {"share_log": "false"}}
    with fleet(folder, recipe(), signed=True, ruled=True, settings=settings) as made:
        made.wait_for_devices(2)
        yield made


def asked(home: FleetProcesses, run: str) -> set[str]:
    """The devices whose replies a run took."""
    return {event["device"] for event in home.events(run, "reply")}


@contextmanager
def viewer_of(home: FleetProcesses) -> Iterator[CoordinatorClient]:
    assert home.trust is not None
    own = home.trust.issue("viewer", "hall")
    home.reload()
    client = CoordinatorClient(home.trust.address(own), FLEET)
    client.connect()
    try:
        client.wait_until_online(30)
        yield client
    finally:
        client.close()


def refused(client: CoordinatorClient, action: str, **arguments: Any) -> str:
    with pytest.raises(EdgeFedError) as caught:
        if action in ("device.ping", "device.log"):
            client.call(action, arguments)
        else:
            client.order(action, **arguments)
    return caught.value.code


def test_a_pause_outlasts_a_killed_coordinator_and_only_operators_look_after_devices(
    home: FleetProcesses,
) -> None:
    home._order("device.pause", device=FIRST, reason="new fan")
    home.kill("coordinator")
    home.start("coordinator")
    wait_until(lambda: home.devices()[FIRST]["seen_at"] != "", "the device", home.logs)
    view = home.devices()[FIRST]
    assert (view["state"], view["paused_by"], view["pause_reason"]) == ("paused", BY, "new fan")
    assert (view["trust"], view["standing"]) == (1.0, "trusted")
    home.wait_for_devices(2)

    run = home.begin()
    assert home.finish(run)["status"] == "finished", home.logs()
    assert asked(home, run) == {SECOND}
    assert home.devices()[FIRST]["state"] == "paused"

    told = home._call(lambda client: client.ask("device.ping", devices=[FIRST, SECOND]))
    assert [(each["device"], each["outcome"]) for each in told] == [
        (FIRST, "answered"),
        (SECOND, "answered"),
    ]
    assert all(0 < each["seconds"] < 60 for each in told)
    lines = home._call(lambda client: client.ask("device.log", device=SECOND))["lines"]
    assert any("task" in line and "taken: fit, round 2" in line for line in lines), lines
    with pytest.raises(EdgeFedError) as caught:
        home._call(lambda client: client.ask("device.log", device=FIRST))
    assert caught.value.code == "device.log_not_shared"

    with viewer_of(home) as viewer:
        assert refused(viewer, "device.pause", device=SECOND) == "request.role"
        assert refused(viewer, "device.resume", device=FIRST) == "request.role"
        assert refused(viewer, "device.ping", devices=[FIRST]) == "request.role"
        assert refused(viewer, "device.log", device=FIRST) == "request.role"

    assert home._order("device.resume", device=FIRST) == {"resumed": FIRST}
    assert home.devices()[FIRST]["state"] == "idle"
    run = home.begin()
    assert home.finish(run)["status"] == "finished", home.logs()
    assert asked(home, run) == {FIRST, SECOND}


def test_a_device_that_stays_connected_in_silence_is_left_out(home: FleetProcesses) -> None:
    """The agents are the real ones: one is stopped (SIGSTOP), and stays connected meanwhile."""
    plan = recipe()
    rounds = plan.rounds.model_copy(update={"count": 4, "deadline": 4})
    plan = plan.model_copy(update={"rounds": rounds})
    home.wait_for_devices(2)
    # Heard of: one for which only a retained birth speaks is not blamed for its silence.
    home._call(lambda client: client.ask("device.ping", devices=[FIRST, SECOND]))
    os.kill(home.processes[FIRST].pid, signal.SIGSTOP)
    try:
        run = home.begin(plan)

        def exclusions() -> list[str]:  # on disk, since one lasts for a round of milliseconds
            events = home.events(run, "device", device=FIRST)
            return [each["excluded"] for each in events if each.get("excluded")]

        wait_until(lambda: bool(exclusions()), "exclusion", home.logs)
        reason = "it missed 2 deadlines while connected, and is left out up to round 3"
        assert exclusions()[0] == reason
        home.restart("coordinator")
        assert home.finish(run)["status"] == "finished", home.logs()
    finally:
        os.kill(home.processes[FIRST].pid, signal.SIGCONT)
    counts = {
        each["round"]: each["asked"] for each in home.events(run, "exchange", phase="broadcast")
    }
    assert [counts[number] for number in (1, 2, 3)] == [2, 2, 1]
