"""Runs of a signed fleet over TLS: the simulator's bits, and nothing that forgers can do to them.

The broker here lets everybody with a certificate publish and read everything, as one that somebody
else controls: what holds, holds by signatures and encryption alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agent.tasks.device_store import read_releases
from edgefed.config.recipes.recipe import Recipe
from edgefed.simulator.local_fleet import device_names
from edgefed.transport.inbox import Arrival, Incoming
from edgefed.transport.link import Link
from edgefed.wire.envelope import Envelope, decode, encode, open_envelope
from edgefed.wire.messages import Birth, Cancel, Chunk, Progress, Receipt, Reply, Request, Task
from edgefed.wire.tensors import digest
from edgefed.wire.topics import Topics
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet
from tests.faults.test_label_bounties import recipe, simulated

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

TOPICS = Topics(FLEET)
FIRST, SECOND, THIRD = device_names(3)


class Insider:
    """A stolen device: reads everything that the broker has, and publishes what it likes."""

    def __init__(self, home: FleetProcesses, name: str) -> None:
        assert home.trust is not None
        self.seen: list[Incoming] = []
        address = home.trust.address(home.trust.issue("device", name))
        self.link = Link(address, "insider", self._take, subscriptions=(f"{TOPICS.root}/#",))
        self.link.start_now(30)

    def close(self) -> None:
        self.link.stop()

    def heard(self, leaf: str) -> list[Incoming]:
        return [each for each in list(self.seen) if each.topic.endswith(f"/{leaf}")]

    def _take(self, arrival: Arrival) -> None:
        if isinstance(arrival, Incoming):
            self.seen.append(arrival)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """The fleet of all tests, whose devices let mixes leave them."""
    folder, own = tmp_path_factory.mktemp("home"), {"share_mixes": "true", "least_mix_noise": "0"}
    settings = dict.fromkeys(device_names(3), own)
    parts = {"agent": "tests.programs.seeded_agent", "settings": settings, "signed": True}
    with fleet(folder, plain_recipe(), **parts) as made:
        yield made


def test_bounties_over_tls_end_in_the_simulators_bits_and_nobody_reads_the_mixes(
    home: FleetProcesses, tmp_path: Path
) -> None:
    plan = recipe({"count": 3000, "mix_share": 0.9, "noise": "none", "wait": 300})
    insider = Insider(home, "reader")
    try:
        record = home.finish(home.begin(plan))
        assert record["status"] == "finished", (record["reason"], home.logs())
        ledgers = {device: released(home, device) for device in device_names(3)}
        chunks = carried(insider)
        relayed = {
            sent.digest: sent.size
            for arrival in insider.heard("reply")
            for sent in decode(arrival.payload, Reply).relays.values()
        }
    finally:
        insider.close()
    assert record["weights_digest"] == simulated(tmp_path / "sim", plan)
    for device, entries in ledgers.items():
        assert sorted(receiver for _, receiver, _ in entries) == sorted(set(ledgers) - {device})
    caught = [chunks[name] for name in relayed if name in chunks]
    assert caught
    for blob in caught:
        assert entropy(blob) > 7.99  # bits per byte; mixes in clear have far fewer


def carried(insider: Insider) -> dict[str, bytes]:
    """Return the blobs whose chunks went through the broker, as far as they did."""
    pieces: dict[str, dict[int, bytes]] = {}
    for arrival in list(insider.seen):
        parsed = TOPICS.parse(arrival.topic)
        if parsed is not None and parsed.leaf == "c":
            chunk = decode(arrival.payload, Chunk)
            pieces.setdefault(chunk.digest, {})[chunk.index] = chunk.data
    whole = {name: b"".join(parts[k] for k in sorted(parts)) for name, parts in pieces.items()}
    return {name: data for name, data in whole.items() if digest(data) == name}


def entropy(data: bytes) -> float:
    """Return the bits per byte that the frequencies of bytes leave."""
    shares = np.bincount(np.frombuffer(data, np.uint8), minlength=256) / len(data)
    return float(-(shares[shares > 0] * np.log2(shares[shares > 0])).sum())


def released(home: FleetProcesses, device: str) -> list[tuple[str, str, int]]:
    """Return exchange, receiver and number of mixes of each entry about mixes in a ledger."""
    found = read_releases(home.folder / "state" / "agents" / FLEET / device, device)
    return [
        (each.exchange, each.entry["receiver"], sum(each.entry["counts"].values()))
        for each in found
        if each.entry["kind"] == "mixes"
    ]


def plain_recipe() -> Recipe:
    return recipe({}, count=6)


def test_forged_replayed_and_moved_messages_change_nothing(
    home: FleetProcesses, tmp_path: Path
) -> None:
    plan = plain_recipe()
    insider = Insider(home, "stolen")
    try:
        run = home.begin(plan, paused=True)
        home.step(run)
        forge(home, insider, run)
        home.step(run)
        replay(insider)
        home.resume(run)
        record = home.finish(run)
        assert record["status"] == "finished", (record["reason"], home.logs())
        refused = [each["text"] for each in home.events(run, "note") if "refused" in each["text"]]
        states = home.devices()
        statuses = {device: status(home, device) for device in device_names(3)}
    finally:
        insider.close()
    assert record["weights_digest"] == simulated(tmp_path / "sim", plan)
    assert any("not signed" in text for text in refused), refused
    assert any("was signed by stolen" in text or "role device" in text for text in refused), refused
    assert set(states) == {*device_names(3)}  # nobody was born who is not there
    assert all(each["refused"] > 0 for each in statuses.values()), statuses


def status(home: FleetProcesses, device: str) -> dict[str, Any]:
    folder = home.folder / "state" / "agents" / FLEET / device
    return dict(json.loads((folder / "status.json").read_text()))


def forge(home: FleetProcesses, insider: Insider, run: str) -> None:
    """Say in others' names what would end the run, empty the fleet, or change the model."""
    link = insider.link
    task = decode(insider.heard("task")[-1].payload, Task)
    reply = decode(insider.heard("reply")[-1].payload, Reply)
    birth = decode(insider.heard("birth")[-1].payload, Birth)
    order = Request(nonce="00" * 8, action="run.order", arguments={"run": run, "action": "abort"})
    for device in device_names(3):
        # Of a kind of message, only the first that is refused is noted.
        for signed in (True, False) if device == THIRD else (False, True):
            messages = (
                (TOPICS.task(device), task.model_copy(update={"device": device, "index": 99})),
                (TOPICS.cancel(device), Cancel(exchange=task.exchange)),
                (TOPICS.receipt(device), Receipt(exchange=task.exchange, outcome="accepted")),
                (TOPICS.reply(device), reply.model_copy(update={"device": device})),
                (TOPICS.progress(device), Progress(session=birth.session, state="paused")),
                (TOPICS.birth(device), birth.model_copy(update={"status": "lost"})),
                (TOPICS.birth(device), birth.model_copy(update={"session": "ff" * 8})),
                (TOPICS.request("local/4"), order),
            )
            for topic, message in messages:
                if signed:
                    link.send(topic, message)
                else:
                    link.publish(topic, encode(message))
    link.publish(TOPICS.birth("nobody"), encode(birth))
    link.send(TOPICS.birth("nobody"), birth)


def replay(insider: Insider) -> None:
    """Publish again, on its own topic and on others', every signed message that went by."""
    for arrival in list(insider.seen):
        if not arrival.payload or arrival.topic.endswith("/birth"):
            continue
        if not isinstance(open_envelope(arrival.payload), Envelope):
            continue
        insider.link.publish(arrival.topic, arrival.payload)
        for other in (FIRST, SECOND, THIRD):
            for device in (FIRST, SECOND, THIRD):
                moved = arrival.topic.replace(f"/{device}/", f"/{other}/")
                if moved != arrival.topic:
                    insider.link.publish(moved, arrival.payload)
