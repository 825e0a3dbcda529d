"""On a full disk a run waits for space, loses nothing, and resumes without help.

A limit on the size of files, which no waiting mends, ends it with a reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.models.model_file_contents import file_round
from edgefed.coordinator.storage.stored_runs import OpenExchange, RunRecord
from edgefed.events.base.log import Log
from edgefed.events.base.model import Event
from edgefed.wire.tensors import weights_digest
from tests.base.test_files import files_up_to
from tests.coordinator.big_model import STATE_BYTES, big_recipe
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.fleets import TamperedFleet
from tests.coordinator.full_disk import NO_DISK
from tests.programs.forked_programs import run_module
from tests.run_fixture import Ticking, World

LITTLE = 4096
"""Less than the database already takes."""


def run_with_little_room(here: World, room: int) -> RunRecord:
    """Run; from the merge of round 2 on, no file may grow beyond ``room`` bytes."""
    merges: list[Event] = []
    limits = files_up_to(room)

    def limit(event: Event) -> None:
        if event.kind == "exchange" and event.fields.get("phase") == "merge":
            merges.append(event)
            if len(merges) == 2:
                limits.__enter__()

    try:
        return here.engine(listener=limit).run()
    finally:
        limits.__exit__(None, None, None)


@pytest.mark.parametrize("room", [STATE_BYTES // 2, LITTLE], ids=["files", "database"])
def test_a_run_without_room_fails_and_is_resumed(world: MakeWorld, room: int) -> None:
    straight = world(big_recipe(), durable=True).engine().run()
    here = world(big_recipe(), durable=True)
    record = run_with_little_room(here, room)
    assert (record.status, record.error) == ("failed", "storage.limit")
    assert "exceeds the largest file that this process" in record.reason
    assert "state is intact" in record.hint
    assert here.seen("run")[-1]["status"] == "failed"
    if room == LITTLE:
        assert here.record.status == "running", "not even this could be written"
        assert "the end of the run was not written" in here.seen("note")[-1]["text"]
    else:
        assert here.record == record
    checkpoint = here.store().checkpoint(here.run)
    assert checkpoint is not None
    assert checkpoint.state.round == 1
    assert [each.round for each in checkpoint.open] == [2]
    resumed = here.engine().run()
    assert resumed.status == "finished"
    assert resumed.weights_digest == straight.weights_digest
    assert resumed.exchanges == straight.exchanges
    assert [row["replies"] for row in here.rows] == [4, 4, 4]


def test_a_best_model_without_room_ends_the_run_and_is_written_once_it_is_resumed(
    world: MakeWorld,
) -> None:
    straight = world(big_recipe(), durable=True)
    straight.engine().run()
    here = world(big_recipe(), durable=True)
    limits = files_up_to(STATE_BYTES // 2)

    def limit(event: Event) -> None:
        if event.kind == "scored" and event.fields["round"] == 1:
            limits.__enter__()

    try:
        record = here.engine(listener=limit).run()
    finally:
        limits.__exit__(None, None, None)
    kept = Path("runs", here.run, "best.safetensors")
    assert (record.status, record.error, record.round) == ("failed", "storage.limit", 1)
    assert not (here.folder / kept).exists()
    seen: list[int | None] = []

    def look(event: Event) -> None:
        if event.kind == "round":
            seen.append(file_round(here.folder / kept))

    assert here.engine(listener=look).run().status == "finished"
    assert seen[0] == 1, "before the next round begins"
    ours, theirs = (load_file(each.folder / kept) for each in (here, straight))
    assert weights_digest(ours) == weights_digest(theirs)


def test_replies_stay_with_the_devices_while_their_round_is_not_written(world: MakeWorld) -> None:
    here = world(big_recipe(), durable=True)
    limits = files_up_to(STATE_BYTES // 2)

    def no_room(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        if exchange.index == 1:
            limits.__enter__()
        return replies

    fleet = TamperedFleet(here.devices, no_room)
    try:
        record = here.engine(fleet).run()
    finally:
        limits.__exit__(None, None, None)
    assert record.error == "storage.limit"
    assert fleet.through == 0


class Freed(TamperedFleet):
    """A fleet that makes room as soon as it is told that something is over."""

    limits: AbstractContextManager[None] | None = None

    def closed(self, run: str, through: int) -> None:
        super().closed(run, through)
        if self.limits is not None:
            self.limits.__exit__(None, None, None)
            self.limits = None


def test_an_exchange_that_could_not_be_written_was_never_asked(world: MakeWorld) -> None:
    straight = world(durable=True).engine().run()
    here = world(durable=True)
    fleet = Freed(here.devices)

    def no_room(event: Event) -> None:
        if event.kind == "scored":
            fleet.limits = files_up_to(LITTLE)
            fleet.limits.__enter__()

    record = here.engine(fleet, listener=no_room).run()
    assert (record.status, len(fleet.asked)) == ("failed", 1)
    assert here.record == record, "there was room again for the row"
    assert record.exchanges == 1
    assert here.engine().run().weights_digest == straight.weights_digest


def test_events_that_do_not_fit_cost_lines_and_nothing_else(tmp_path: Path) -> None:
    journal = EventJournal("tests", Ticking())
    journal.open(tmp_path / "events.jsonl")
    with files_up_to(100):
        for number in range(5):
            journal.emit("note", level="info", text=f"number {number}")
        journal.close()
        assert (tmp_path / "events.jsonl").read_bytes().endswith(b"}\n")
    assert journal.number == 5
    assert len(journal.snapshot.lines) == 5
    journal.open(tmp_path / "events.jsonl")
    journal.emit("note", level="info", text="there is room")
    journal.close()
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert lines[-1]["text"] == "there is room"


def test_an_event_after_one_that_a_kill_cut_short_has_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"kind": "no')
    journal = EventJournal("tests", Ticking())
    journal.open(path)
    journal.emit("note", level="info", text="whole")
    journal.close()
    assert [event["text"] for event in Log(path).events()] == ["whole"]


MOMENTS = ("merge", "scored", "last")
ORDERS = ("abort", "stop", "restart", "rubbish", "half")


@pytest.fixture(scope="module")
def on_a_small_disk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Runs on a disk of 14 MB in memory, that only the process which fills it can see."""
    disk = str(tmp_path_factory.mktemp("disk"))
    cases = (*MOMENTS, *(f"merge:{order}" for order in ORDERS))
    code, out, err = run_module("tests.coordinator.full_disk", disk, *cases)
    if code == NO_DISK:
        pytest.skip(f"a process may not mount a disk of its own here: {err}")
    assert code == 0, err
    told: dict[str, dict[str, Any]] = json.loads(out)
    return told


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest that the run ends in when nothing happens."""
    here = World(tmp_path_factory.mktemp("straight"), big_recipe())
    try:
        return here.engine().run().weights_digest
    finally:
        here.close()


@pytest.mark.parametrize("when", [*MOMENTS, "merge:half"])
def test_a_run_waits_while_the_disk_is_full_and_goes_on_by_itself(
    on_a_small_disk: dict[str, Any], straight: str, when: str
) -> None:
    told = on_a_small_disk[when]
    assert told["waits"] >= 2
    for status, reason in told["shown"].values():
        assert status == "running"
        assert "disk is full" in reason
        assert "Waiting for the disk" in reason
    assert told["notes"][-1] == "the disk takes writes again; going on"
    assert (told["ended"]["status"], told["ended"]["reason"]) == ("finished", "")
    assert told["row"] == told["ended"]
    assert told["ended"]["weights_digest"] == straight
    assert told["rounds"] == [4, 4, 4]


def test_a_state_that_fits_half_leaves_the_last_one_and_no_part_of_itself(
    on_a_small_disk: dict[str, Any],
) -> None:
    told = on_a_small_disk["merge:half"]
    (committed,) = told["files"]
    _, reason = told["shown"]["row"]
    size = int(reason.split(" bytes to ")[0].rsplit(" ", 1)[1].replace(",", ""))
    assert size == STATE_BYTES, "the message says how much space it takes"
    assert "state-" in reason
    assert committed not in reason


def test_a_run_taken_up_on_a_full_disk_keeps_what_devices_hold(
    on_a_small_disk: dict[str, Any], straight: str
) -> None:
    told = on_a_small_disk["merge:restart"]
    assert told["waits"] >= 2
    assert not [note for note in told["notes"] if "the blob cache lost" in note]
    assert told["ended"]["weights_digest"] == straight


def test_what_nobody_needs_makes_room_before_anything_waits(
    on_a_small_disk: dict[str, Any], straight: str
) -> None:
    told = on_a_small_disk["merge:rubbish"]
    assert told["was_full"]
    assert not told["rubbish"]
    assert told["waits"] == 0
    assert told["ended"]["weights_digest"] == straight


@pytest.mark.parametrize(("order", "status"), [("abort", "aborted"), ("stop", "running")])
def test_an_order_ends_the_wait_for_space(
    on_a_small_disk: dict[str, Any], straight: str, order: str, status: str
) -> None:
    told = on_a_small_disk[f"merge:{order}"]
    assert told["row"]["status"] == status
    assert told["resumed"]["status"] == "finished"
    assert told["resumed"]["weights_digest"] == straight
    assert told["rounds"] == [4, 4, 4]
