"""Messages that did not fit into the coordinator's inbox are shown to the operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.coordinator.challenges import Challenges
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.request_handler import RequestHandler
from edgefed.coordinator.store import Store
from edgefed.transport.inbox import Inbox, InboxLimits
from edgefed.transport.link import Incoming
from tests.cli.commands import Told, edgefed
from tests.cli.test_report import Nobody, NoDevices
from tests.control.fake_coordinator import FLEET, FakeCoordinator
from tests.run_fixture import Ticking

pytestmark = pytest.mark.mosquitto


class Overrun:
    """A coordinator whose inbox takes nothing.

    Attributes:
        inbox: the one that is shown.
    """

    def __init__(self, broker: MosquittoBroker, folder: Path) -> None:
        clock = Ticking()
        self._url, self._folder = str(broker.address), folder
        self.inbox: Inbox[Any] = Inbox(clock, InboxLimits(0, 0, 0))
        requests = RequestHandler(
            "0" * 16,
            Store(folder),
            EventJournal(FLEET, clock),
            Nobody(),
            Challenges(clock, lambda: "0" * 8),
            lambda: self.inbox.counts,
            lambda name: None,
            NoDevices(),
        )
        self.fake = FakeCoordinator(broker.address, requests.answer)

    def close(self) -> None:
        self.fake.close()

    def __call__(self, *words: str) -> Told:
        return edgefed("--broker", self._url, "--fleet", FLEET, *words, state=self._folder)


@pytest.fixture
def overrun(mosquitto: MosquittoBroker, tmp_path: Path) -> Iterator[Overrun]:
    with closing(Overrun(mosquitto, tmp_path / "state")) as made:
        yield made


def test_status_shows_what_was_dropped(overrun: Overrun) -> None:
    assert "dropped" not in overrun("status").out
    for leaf in ("reply", "reply", "progress"):
        overrun.inbox.put(Incoming(f"edgefed/x/up/d/{leaf}", b"", retained=False))
    assert "dropped  3, because messages came too fast" in overrun("status").out
    assert overrun("status", "--json").json["inbox"] == {
        "dropped": 3,
        "dropped_urgent": 2,
        "dropped_chunks": 0,
        "dropped_latest": 1,
        "replaced": 0,
        "duplicates": 0,
        "refused": {},
    }


def finding(told: Told) -> dict[str, str]:
    (found,) = (each for each in told.json if each["name"] == "inbox")
    return dict(found)


def test_doctor_warns_of_what_was_dropped(overrun: Overrun) -> None:
    assert finding(overrun("doctor", "--json"))["state"] == "good"
    overrun.inbox.put(Incoming("edgefed/x/up/d/reply", b"", retained=False))
    told = overrun("doctor", "--json")
    found = finding(told)
    assert (found["state"], found["text"].endswith(": 1"), told.code) == ("warning", True, 0)
    assert found["fix"]
