"""The states that the coordinator gives a device: what a pause and an exclusion show, and when."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from edgefed.events.base.model import Event, EventKind
from edgefed.events.base.snapshot import DeviceSnapshot, Snapshot
from edgefed.events.state.attention import attention, devices_there
from edgefed.events.state.fold import SnapshotBuilder

NOW = datetime(2026, 3, 4, 14, 2, 31, tzinfo=timezone.utc)
WHY = "its inputs are 5, the run's are 8"


class Fold:
    """A fleet of two devices, of which the run asks one."""

    def __init__(self) -> None:
        self.builder = SnapshotBuilder(Snapshot())
        self("run", run="r-1", status="running")
        for device in ("a", "b"):
            self("device", device=device, joined=True, state="idle", samples=5)
        self("device", device="b", excluded=WHY)

    def __call__(self, kind: EventKind, **fields: Any) -> None:
        self.builder.apply(Event(time="2026-03-04T14:02:31Z", kind=kind, fields=fields))

    @property
    def snapshot(self) -> Snapshot:
        return self.builder.snapshot()

    @property
    def other(self) -> DeviceSnapshot:
        return self.snapshot.devices[1]

    def state(self) -> str:
        return self.other.state

    def found(self) -> list[tuple[str, str]]:
        return [(item.subject, item.text) for item in attention(self.snapshot, NOW)]


def test_an_excluded_device_is_so_in_state_and_attention_until_it_may_take_part() -> None:
    fold = Fold()
    assert (fold.other.state, fold.other.excluded) == ("excluded", WHY)
    assert (fold.snapshot.devices[0].state, devices_there(fold.snapshot)) == ("idle", 1)
    assert fold.found() == [("b", f"excluded: {WHY}")]
    fold("device", device="b", state="done")
    assert fold.other.state == "excluded"
    fold("device", device="b", excluded="")
    assert (fold.other.state, fold.found(), devices_there(fold.snapshot)) == ("idle", [], 2)


def test_the_warning_about_an_excluded_device_is_no_second_item() -> None:
    fold = Fold()
    fold("note", level="warning", text=f"b is excluded: {WHY}")
    assert fold.found() == [("b", f"excluded: {WHY}")]


def test_work_loss_and_pauses_show_before_the_exclusion() -> None:
    fold = Fold()
    for state in ("train", "lost"):
        fold("device", device="b", state=state)
        assert fold.state() == state
    fold("device", device="b", state="idle")
    assert fold.state() == "excluded"
    fold("device", device="b", paused_by="operator.ann")
    assert fold.state() == "paused"
    fold("device", device="b", paused_by="")
    assert fold.state() == "excluded"
    fold("device", device="b", state="paused")
    assert fold.state() == "paused"


def test_a_device_that_returns_to_a_run_at_work_is_still_excluded() -> None:
    fold = Fold()
    fold("device", device="b", joined=True, state="idle", samples=5)
    assert (fold.other.state, fold.other.excluded) == ("excluded", WHY)


@pytest.mark.parametrize("ended", ["finished", "aborted", "failed"])
def test_after_a_run_the_reason_stays_until_the_device_or_another_run_begins(ended: str) -> None:
    fold = Fold()
    fold("run", run="r-1", status=ended)
    assert (fold.other.state, fold.other.excluded) == ("excluded", WHY)
    fold("device", device="b", joined=True, state="idle", samples=5)
    assert (fold.other.state, fold.other.excluded) == ("idle", "")
    fold("device", device="b", excluded=WHY)
    fold("run", run="r-2", status="waiting")
    assert (fold.other.state, fold.other.excluded) == ("idle", "")


def test_data_that_were_read_again_end_an_exclusion_only_between_two_runs() -> None:
    fold = Fold()
    renewed = {"device": "b", "renewed": True, "samples": 8}
    fold("device", **renewed)
    assert (fold.other.samples, fold.other.excluded) == (8, WHY)
    fold("run", run="r-1", status="finished")
    fold("device", **renewed)
    assert (fold.other.state, fold.other.excluded) == ("idle", "")


def test_a_run_that_is_taken_up_again_says_anew_whom_it_does_not_ask() -> None:
    fold = Fold()
    fold("run", run="r-1", status="running")
    assert fold.other.excluded == WHY
    fold("run", run="r-1", status="failed")
    fold("run", run="r-1", status="running")
    assert (fold.other.state, fold.other.excluded) == ("idle", "")


def test_a_quarantined_device_is_so_whatever_it_does_until_it_is_released() -> None:
    fold = Fold()

    def state() -> str:
        return fold.snapshot.devices[0].state

    fold("device", device="a", standing="quarantined", trust=0.2, trust_reason="by the operator")
    assert (state(), devices_there(fold.snapshot)) == ("quarantined", 0)
    for shown in ("train", "asked", "silent", "done"):
        fold("device", device="a", state=shown)
        assert state() == "quarantined"
    fold("device", device="a", paused_by="operator.ann")
    assert state() == "quarantined"
    fold("device", device="a", state="lost")
    assert state() == "lost"
    fold("device", device="a", joined=True, state="idle", samples=5, paused_by="")
    assert state() == "quarantined"
    fold("device", device="a", standing="suspect", trust=0.6, trust_reason="")
    assert state() == "idle"


@pytest.mark.parametrize(("cause", "after"), [("excluded", "excluded"), ("paused_by", "paused")])
def test_after_a_quarantine_another_cause_shows(cause: str, after: str) -> None:
    fold = Fold()
    fold("device", device="a", **{cause: WHY})
    fold("device", device="a", standing="quarantined", trust=0.2, trust_reason="by the operator")
    assert fold.snapshot.devices[0].state == "quarantined"
    fold("device", device="a", standing="suspect", trust=0.6, trust_reason="")
    assert fold.snapshot.devices[0].state == after


def test_a_device_that_is_asked_or_silent_is_so_before_it_is_paused() -> None:
    fold = Fold()
    for state in ("asked", "silent"):
        fold("device", device="a", state=state, paused_by="operator.ann")
        assert fold.snapshot.devices[0].state == state
    fold("device", device="a", state="idle")
    assert fold.snapshot.devices[0].state == "paused"
