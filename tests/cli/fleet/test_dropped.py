"""Messages that did not fit into the coordinator's inbox are shown to the operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.cli.fleet.status import refused_in_words, versions
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.process.challenges import Challenges
from edgefed.coordinator.process.request_handler import RequestHandler
from edgefed.coordinator.storage.run_store import Store
from edgefed.transport.inbox import Inbox, InboxLimits, Incoming
from edgefed.version import VERSION
from tests.cli.commands import Told, edgefed
from tests.cli.runs.test_report import Nobody
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


class Flooded:
    """A gate that has refused what two senders sent."""

    def admit(self, message: Incoming) -> bool:
        return True

    def refused(self) -> dict[str, int]:
        return {"device d-1": 40, "unknown devices": 2}


def test_status_and_doctor_show_who_floods(overrun: Overrun) -> None:
    overrun.inbox = Inbox(Ticking(), gate=Flooded())
    told = "42 messages were not read: device d-1 40, unknown devices 2"
    assert told in overrun("status").out
    found = finding(overrun("doctor", "--json"))
    assert (found["state"], told in found["text"]) == ("warning", True)


def test_most_senders_are_counted_only() -> None:
    refused = {f"device d-{number}": 9 - number for number in range(6)}
    told = refused_in_words(refused)
    assert told == "39 messages were not read: device d-0 9, device d-1 8, device d-2 7, 3 more"


def test_status_counts_devices_of_another_version() -> None:
    assert versions([VERSION, "", VERSION]) == ""
    assert versions(["0.0.9", VERSION, "0.2.0", "0.0.9"]) == (
        f"2 devices 0.0.9, 1 device 0.2.0; this program is {VERSION}"
    )
