"""The agent's part: it fetches an offer, hands it to the updater, and keeps to the bandwidth."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from device_agent.commands.cli import app
from device_agent.daemon.agent_updates import AgentUpdates, UpdateOptions
from device_agent.reports.publisher import Publisher
from device_agent.updater.disk import read_json, write_json
from edgefed.process.clock import SystemClock
from edgefed.wire.blobs import chunk, chunk_count
from edgefed.wire.limits import CHUNK_BYTES
from edgefed.wire.messages import BlobRef, Chunk, Need
from edgefed.wire.tensors import digest
from edgefed.wire.update_messages import UpdateOffer, UpdateState

SESSION, OFFER = "a" * 8, "b" * 8
BLOB = bytes(range(256)) * (20 * CHUNK_BYTES // 256)


class Device:
    """The agent's part with a publisher that keeps what it is given."""

    def __init__(self, folder: Path, *, mode: Any = "auto", bandwidth: int = 0) -> None:
        self.home = folder / "home"
        publisher = cast("Publisher", Mock(spec=Publisher, silent=False))
        self.sent = publisher
        options = UpdateOptions(self.home, mode, bandwidth, Mock())
        cache = Mock(put=digest)
        self.updates = AgentUpdates(options, "cam", SESSION, publisher, cache, SystemClock())

    def offer(self, blob: bytes = BLOB) -> None:
        ref = BlobRef(digest=digest(blob), size=len(blob))
        metadata = {"timestamp.json": ref}
        self.updates.take(
            UpdateOffer(session=SESSION, offer=OFFER, release="0.2.0", metadata=metadata)
        )

    def needs(self) -> list[Need]:
        """Return the requests since the last call."""
        calls = cast("Mock", self.sent.need)
        found = [call.args[0] for call in calls.call_args_list]
        calls.reset_mock()
        return found

    def serve(self, need: Need, now: float) -> None:
        """Send what was asked for."""
        for number in need.chunks:
            data = chunk(BLOB, number)
            self.updates.take_chunk(Chunk(digest=need.digest, index=number, data=data), now)

    def states(self) -> list[UpdateState]:
        calls = cast("Mock", self.sent.update_state).call_args_list
        return [call.args[0] for call in calls]


def test_an_offer_is_handed_over_once_its_metadata_is_here(tmp_path: Path) -> None:
    device, now = Device(tmp_path), 0.0
    device.offer()
    for _ in range(10):
        device.updates.due(now, connected=True, quiet=True)
        for need in device.needs():
            device.serve(need, now)
        now += 1.0
    offer = read_json(device.home / "offer.json")
    assert (offer["id"], offer["release"]) == (OFFER, "0.2.0")
    (name,) = offer["metadata"].values()
    assert (device.home / "incoming" / "blobs" / name).read_bytes() == BLOB
    device.offer()
    device.updates.due(now, connected=True, quiet=True)
    assert device.needs() == []
    no_more = UpdateOffer(
        session=SESSION, offer="f" * 16, release="0.2.0", metadata={}, withdraw=True
    )
    device.updates.take(no_more)
    device.updates.due(now, connected=True, quiet=True)
    assert read_json(device.home / "offer.json")["withdraw"] is True
    device.updates.close()


def test_a_download_keeps_to_the_bandwidth_and_resumes(tmp_path: Path) -> None:
    rate, now = 4 * CHUNK_BYTES, 0.0
    device = Device(tmp_path, bandwidth=rate)
    device.offer()
    received, resumed = 0, False
    while not (device.home / "offer.json").exists():
        device.updates.due(now, connected=True, quiet=True)
        for need in device.needs():
            device.serve(need, now)
            received += len(need.chunks)
        assert received <= 8 * (1 + resumed) + 4 * now
        if received >= 8 and not resumed:
            device.updates.close()
            device, resumed = Device(tmp_path, bandwidth=rate), True
            device.offer()
        now += 0.25
        assert now < 100
    assert received == chunk_count(len(BLOB))
    device.updates.close()


@pytest.mark.parametrize("mode", ["off", "none"])
def test_an_offer_that_the_device_does_not_take_is_answered(tmp_path: Path, mode: str) -> None:
    device = Device(tmp_path, mode=mode if mode == "off" else "auto")
    if mode == "none":
        options = UpdateOptions(None, "auto", 0, Mock())
        own = ("cam", SESSION, device.sent, Mock(), SystemClock())
        device.updates = AgentUpdates(options, *own)
    device.offer()
    (state,) = device.states()
    assert (state.phase, state.offer) == ("off", OFFER)
    assert ("switched updates off" if mode == "off" else "no updater") in state.reason
    device.updates.due(1.0, connected=True, quiet=True)
    assert device.needs() == []
    device.updates.reconnected(2.0)
    assert device.updates.next_due == (math.inf if mode == "none" else 0.0)


def test_nothing_leaves_a_version_on_trial(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_json(home / "state.json", {"phase": "trial", "current": "old"})
    device = Device(tmp_path)
    assert device.updates.on_trial
    assert vars(device.sent)["silent"]
    device.updates.due(0.0, connected=True, quiet=True)
    assert device.states() == []
    assert read_json(home / "agent.json")["probe"] is False
    write_json(home / "state.json", {"phase": "idle", "current": "new"})
    assert device.updates.due(1.0, connected=True, quiet=True)
    assert not vars(device.sent)["silent"]
    assert device.states()[-1].release == "new"


def agent(*words: str | Path) -> Any:
    """Call ``edgefed-agent`` in this process."""
    common = ("--no-config", "--state", "s", "--broker", "mqtt://127.0.0.1:1")
    return CliRunner().invoke(app, [*common, *map(str, words)], env={"EDGEFED_NAME": "cam"})


def test_the_owners_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "s" / "updates" / "default" / "cam"
    assert agent("update", "status").exit_code == 5
    assert agent("update", "approve").exit_code == 5
    write_json(home / "state.json", {"phase": "waiting", "release": "0.2.0", "previous": ""})
    assert json.loads(agent("update", "status", "--json").stdout)["release"] == "0.2.0"
    agent("update", "approve")
    assert read_json(home / "order.json") == {"order": "approve"}
    write_json(home / "state.json", {"phase": "idle", "previous": "0.1.0"})
    agent("update", "rollback")
    assert read_json(home / "order.json") == {"order": "rollback"}
