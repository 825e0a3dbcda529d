"""Events: written, folded, numbered and sent to listeners."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.rounds.reply_stats import DeviceScores, ReplyStats
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.wire.messages import Reply
from tests.run_fixture import Ticking


def test_events_are_written_folded_numbered_and_passed_on(tmp_path: Path) -> None:
    journal = EventJournal("mine", Ticking())
    heard: list[tuple[Event, int]] = []
    runs: list[int] = []
    journal.listen(lambda event, number: heard.append((event, number)))
    journal.listen(lambda event, number: runs.append(number), "run", "scored")
    path = tmp_path / "run" / "events.jsonl"
    journal.emit("note", text="before any run")
    journal.open(path)
    journal.emit("run", run="r-1", status="running")
    journal.emit("device", device="a", samples=3, joined=True)
    journal.close()
    journal.emit("note", text="after it")
    assert [number for _, number in heard] == [1, 2, 3, 4]
    assert runs == [2]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [Event.from_flat(line) for line in lines] == [event for event, _ in heard[1:3]]
    builder = SnapshotBuilder(Snapshot(fleet="mine", time="2024-05-06T07:08:09.000Z"))
    for event, _ in heard:
        builder.apply(event)
    assert journal.current() == (builder.snapshot(), 4)


def test_a_runs_log_begins_with_the_devices_that_are_there(tmp_path: Path) -> None:
    journal = EventJournal("mine", Ticking())
    journal.emit("device", device="a", samples=3, labels=[1, 2], joined=True)
    journal.emit("device", device="b", samples=4, joined=True)
    journal.emit("device", device="b", state="lost")
    number = journal.number
    journal.open(tmp_path / "events.jsonl")
    journal.close()
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["kind"], told["devices"], told["samples"]) == ("roster", ["a"], [3])
    assert told["labels"] == [[1, 2]]
    assert journal.number == number, "nobody else hears it"


def test_a_run_that_is_taken_up_appends(tmp_path: Path) -> None:
    journal = EventJournal("mine", Ticking())
    for text in ("one", "two"):
        journal.open(tmp_path / "events.jsonl")
        journal.emit("note", text=text)
    journal.close()
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 2


def test_no_event_is_lost_between_threads(tmp_path: Path) -> None:
    journal = EventJournal("mine", Ticking())
    journal.open(tmp_path / "events.jsonl")
    heard: list[int] = []
    journal.listen(lambda _, number: heard.append(number))

    def talk(who: str) -> None:
        for _ in range(50):
            journal.emit("reply", device=who, outcome="accepted", accepted=1, round=1)

    threads = [threading.Thread(target=talk, args=(f"device-{k}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    assert heard == list(range(1, 201)), "in order, each once"
    assert [view.accepted for view in journal.snapshot.devices] == [50] * 4
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 200


# -- tallies ------------------------------------------------------------------------------------


def reply(device: str, samples: int, **metrics: float) -> Reply:
    return Reply(
        run="r-1",
        exchange="r-1-0",
        index=0,
        device=device,
        session="0123456789abcdef",
        bases={},
        status="ok",
        samples=samples,
        metrics=metrics,
    )


def test_the_loss_is_weighted_by_samples() -> None:
    assert ReplyStats().loss is None
    stats = ReplyStats()
    stats.accept(reply("a", 1, loss=4.0))
    stats.accept(reply("b", 3, loss=0.0))
    stats.accept(reply("c", 9))
    assert (stats.accepted, stats.loss) == (3, 1.0)
    assert stats.devices == {"a": 1, "b": 3, "c": 9}


def test_tallies_of_a_round_add_up_and_travel() -> None:
    one, two = ReplyStats(), ReplyStats(declined=2)
    one.accept(reply("a", 1, loss=4.0))
    two.accept(reply("b", 3, loss=0.0))
    one.add(ReplyStats.from_json(json.loads(json.dumps(two.to_json()))))
    assert (one.accepted, one.declined, one.loss) == (2, 2, 1.0)
    assert ReplyStats.from_json({}) == ReplyStats()


def test_means_of_device_tests_do_not_depend_on_their_order() -> None:
    tests = [(3, {"accuracy": 0.1, "loss": 1e16}), (5, {"accuracy": 0.7, "loss": 1.0}), (1, {})]
    forward, backward = DeviceScores(), DeviceScores()
    for each in tests:
        forward.add(*each)
    for each in reversed(tests):
        backward.add(*each)
    assert forward.means() == backward.means()
    assert forward.devices == 3
    assert forward.means()["accuracy"] == (0.3 + 3.5) / 9
