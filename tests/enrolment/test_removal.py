"""A device that is removed in mid-round: the round goes on without it, and it is out at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgefed.config.values.address import Address, parse_address
from edgefed.control.enrolment_client import enroll
from edgefed.process.clock import SystemClock
from edgefed.trust.credentials import load_credentials
from edgefed.wire.topics import Topics
from tests.broker.test_secured_fleet import write_data
from tests.enrolment.hub import FLEET, Hub, running_hub
from tests.support.open_modes import open_to_others
from tests.transport.listening import linked

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]

PATIENCE = 300.0
TOPICS = Topics(FLEET)
RECIPE = {
    "model": {"name": "mlp"},
    "data": {"name": "none"},
    "rounds": {"count": 2, "min_devices": 1, "deadline": 3600, "lost_grace": "deadline"},
    "evaluation": {"on": "devices"},
}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with running_hub(tmp_path) as made:
        yield made


def wait(until: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not until():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.2)


def party(folder: Path) -> Address:
    """Return the address of the fleet's broker for a party."""
    own = load_credentials(folder, SystemClock().now())
    return replace(parse_address(own.broker), credentials=own)


def retain(address: Address, topics: Collection[str]) -> None:
    with linked(address, "retaining") as (link, _):
        for each in [link.publish(topic, b"kept", retain=True) for topic in topics]:
            each.wait_for_publish(PATIENCE)


def retained(address: Address, own: str, *filters: str) -> set[str]:
    """Return the topics below filters on which the broker retains messages.

    Args:
        address: of a party that may read them.
        own: a topic that it may write and read, on which a message comes after all of them.
        filters: the filters.
    """
    with linked(address, "looking", *filters, own) as (link, inbox):
        link.publish(own, b"the last")
        inbox.wait(topic=own)
        return {each.topic for each in inbox.messages() if each.retained}


def of_parties(hub: Hub) -> set[str]:
    """Return what parties had retained, while the coordinator is away."""
    filters = (f"{TOPICS.root}/up/#", f"{TOPICS.root}/control/#")
    own = TOPICS.check("coordinator", 0)
    return retained(party(hub.trust / "coordinator"), own, *filters)


def enroll_viewer(hub: Hub, machine: str) -> Address:
    applicant = replace(hub.applicant(machine, hub.invite("hall", "viewer")), roles=("viewer",))
    return party(enroll(applicant, SystemClock(), print).folder).for_commands()


def test_what_parties_left_with_the_broker_is_deleted(hub: Hub) -> None:
    hub.enroll("cam-1")
    hall = enroll_viewer(hub, "hall")
    device, viewer = TOPICS.written_by_device("cam-1"), TOPICS.written_by_client("viewer.hall")
    hub.kill_coordinator()
    kept = {*device, *(each for each in viewer if "/control/" in each)}

    def retained_all() -> bool:
        # Both are dropped until the broker has read the rules of new parties.
        retain(party(hub.credentials("cam-1")), device)
        retain(hall, viewer)
        return of_parties(hub) == kept

    wait(retained_all, "all messages of parties")
    hub.start_coordinator()
    hub.ask("snapshot")
    hub.kill_coordinator()
    assert of_parties(hub) == {TOPICS.birth("cam-1"), TOPICS.gateway("cam-1")}  # which alone may be
    checks = f"{TOPICS.root}/check/viewer.hall/+"
    hub.start_coordinator()
    hub.order("member.remove", user="viewer.hall")
    hub.order("member.remove", user="cam-1")
    again = enroll_viewer(hub, "another")
    with linked(again, "again", checks) as (link, inbox):

        def delivered() -> bool:
            link.publish(TOPICS.check("viewer.hall", 0), b"the last")  # dropped until then too
            return bool(inbox.messages())

        wait(delivered, "a message of the new viewer")
        assert not any(each.retained for each in inbox.messages())
    hub.kill_coordinator()
    assert of_parties(hub) == set()


def test_a_device_removed_in_mid_round(hub: Hub, tmp_path: Path) -> None:
    agents = {}
    for seed, name in enumerate(("cam-1", "cam-2")):
        hub.enroll(name)
        agents[name] = hub.fork_agent(name, write_data(tmp_path / f"{name}.npz", seed))
    gone, log = agents["cam-2"]
    try:
        wait(lambda: len(hub.ask("snapshot")["snapshot"]["devices"]) == 2, "both devices")
        os.kill(gone.pid, signal.SIGSTOP)  # it is asked, and does not answer
        run = hub.order("run.start", recipe=RECIPE)["run"]
        wait(lambda: hub.ask("run.show", run=run)["status"] == "running", "the run's begin")
        time.sleep(2.0)
        record = hub.ask("run.show", run=run)
        assert (record["status"], record["round"]) == ("running", 1)  # it waits for cam-2
        assert hub.order("member.remove", user="cam-2")["name"] == "cam-2"
        wait(lambda: hub.ask("run.show", run=run)["status"] == "finished", "the run")
        assert hub.ask("run.show", run=run)["round"] == 2
        devices = [each["device"] for each in hub.ask("snapshot")["snapshot"]["devices"]]
        assert devices == ["cam-1"]
        os.kill(gone.pid, signal.SIGCONT)
        assert gone.wait() == 4
        assert "[device.removed]" in log.read_text()
        assert hub.members()["cam-2"]["state"] == "revoked"
        assert "runs" in {path.name for path in hub.state.rglob("*")}
        assert open_to_others(hub.state) == open_to_others(hub.device("cam-1")) == {}
    finally:
        for process, _ in agents.values():
            process.kill()
            process.wait()
