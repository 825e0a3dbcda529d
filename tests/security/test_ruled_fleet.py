"""Attacks on a running fleet behind a Mosquitto with TLS and the generated rules.

Each ends in the run's own bits: what the attacker did changed nothing.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe, WireSection
from edgefed.simulator.local_fleet import device_names
from edgefed.transport.inbox import Arrival, Incoming, LinkUp
from edgefed.transport.link import Link
from edgefed.trust.certificates import Role
from edgefed.trust.credentials import Credentials
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Birth, Cancel, CoordinatorState, Progress, Receipt, Request
from edgefed.wire.topics import Topics
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until
from tests.faults.test_label_bounties import recipe, simulated
from tests.programs.forked_programs import ForkedProgram
from tests.signed_fleet import Trust

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

TOPICS = Topics(FLEET)
DEVICES = device_names(3)


class Attacker:
    """A holder of a valid certificate who sends what it likes, wherever it likes."""

    def __init__(self, home: FleetProcesses, own: Credentials, *, several: bool = False) -> None:
        assert home.trust is not None
        self.seen: list[Incoming] = []
        self.connections = 0
        address = home.trust.address(own)
        self.link = Link(
            address.for_commands() if several else address,
            secrets.token_hex(8),
            self._take,
            subscriptions=("#", f"{TOPICS.root}/up/#", f"{TOPICS.root}/control/#"),
        )
        self.link.start_now(30)

    def say(self, topic: str, message: Any) -> None:
        """Send a message with our signature, and without any."""
        self.link.send(topic, message)
        self.link.publish(topic, encode(message))

    def _take(self, arrival: Arrival) -> None:
        if isinstance(arrival, Incoming):
            self.seen.append(arrival)
        elif isinstance(arrival, LinkUp):
            self.connections += 1


@contextmanager
def attacker(
    home: FleetProcesses, own: Credentials, *, several: bool = False
) -> Iterator[Attacker]:
    made = Attacker(home, own, several=several)
    try:
        yield made
    finally:
        made.link.stop()


def plan() -> Recipe:
    made = recipe({}, count=4)
    # A clone has no memory of what codecs dropped, and may be the one of the two that stays.
    return made.model_copy(update={"wire": WireSection(uplink="fp32", error_feedback=False)})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """The fleet of all tests, whose runs are the same."""
    with fleet(tmp_path_factory.mktemp("home"), plan(), signed=True, ruled=True) as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest that the runs end in when nothing happens."""
    return simulated(tmp_path_factory.mktemp("sim"), plan())


def trust_of(home: FleetProcesses) -> Trust:
    assert home.trust is not None
    return home.trust


def issued(home: FleetProcesses, role: Role, name: str) -> Credentials:
    """Admit another party to the fleet that runs."""
    own = trust_of(home).issue(role, name)
    home.reload()
    return own


def assert_untouched(home: FleetProcesses, run: str, undisturbed: str) -> None:
    record = home.finish(run)
    assert record["status"] == "finished", (record["reason"], home.logs())
    assert record["weights_digest"] == undisturbed


def forge(who: Attacker, run: str) -> None:
    """Send in the names of others what would end the run or empty the fleet."""
    exchange = f"{run}-1"
    order = Request(nonce="00" * 8, action="run.order", arguments={"run": run, "action": "abort"})
    lost = CoordinatorState(session="00" * 8, owner="0" * 8, status="lost")
    who.say(TOPICS.coordinator(), lost)
    for user in ("operator.ann", "local", "coordinator", "stolen"):
        who.say(TOPICS.request(f"{user}/0"), order)
    for device in (*DEVICES, "nobody"):
        who.say(TOPICS.birth(device), Birth(session="ff" * 8, status="online"))
        who.say(TOPICS.birth(device), Birth(session="ff" * 8, status="lost"))
        who.say(TOPICS.progress(device), Progress(session="ff" * 8, state="paused"))
        who.say(TOPICS.cancel(device), Cancel(exchange=exchange))
        who.say(TOPICS.receipt(device), Receipt(exchange=exchange, outcome="accepted"))


def refused_by(home: FleetProcesses, device: str) -> int:
    path = home.folder / "state" / "agents" / FLEET / device / "status.json"
    return int(json.loads(path.read_text())["refused"])


def test_a_stolen_device_reaches_nobody_elses_topics(
    home: FleetProcesses, undisturbed: str
) -> None:
    own = issued(home, "device", "stolen")
    run = home.begin(paused=True)
    home.step(run)
    with attacker(home, own) as stolen, attacker(home, own, several=True) as again:
        for each in (stolen, again):
            forge(each, run)
        home.step(run)
        topics = {arrival.topic for each in (stolen, again) for arrival in each.seen}
        assert {topic.split("/")[2] for topic in topics} <= {"all"}, topics
        home.resume(run)
        assert_untouched(home, run, undisturbed)
    # Nothing of it even reached those in whose names it spoke.
    assert [refused_by(home, device) for device in DEVICES] == [0, 0, 0]
    assert set(home.devices()) == set(DEVICES)
    notes = [each["text"] for each in home.events(run, "note")]
    assert not any("refused" in text for text in notes), notes


def test_of_a_cloned_device_one_stays(
    home: FleetProcesses, undisturbed: str, tmp_path: Path
) -> None:
    run = home.begin(paused=True)
    home.step(run)
    name = DEVICES[0]
    state = tmp_path / "clone"
    shutil.copytree(trust_of(home).folder / name, state / "trust" / FLEET / name)
    command = [*home._command(name)]
    command[command.index("--state") + 1] = str(state)
    log = tmp_path / "clone.log"
    clone = ForkedProgram(command, {}, log)
    logs = (log, home.folder / f"{name}.log")

    def taken() -> int:
        return sum("device.taken" in each.read_text() for each in logs if each.exists())

    try:
        wait_until(lambda: taken() == 1, "the end of one", home.logs)
        wait_until(lambda: home.devices()[name]["state"] != "lost", "the other", home.logs)
        home.resume(run)
        assert_untouched(home, run, undisturbed)
        assert taken() == 1
    finally:
        clone.kill()
        clone.wait()
