"""A pause by an operator: kept on disk, apart from trust, and out of the roster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgefed.coordinator.devices.device_orders import DeviceOrders
from edgefed.coordinator.devices.device_pauses import DevicePauses, OperatorPause
from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.devices.sender_limits import everybody
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.errors import EdgeFedError
from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.events.state.attention import attention, devices_there
from edgefed.wire.messages import Progress
from tests.coordinator.devices.test_device_registry import ONE, Hands, birth


class Fleet:
    """A coordinator's part about devices, in a state folder."""

    def __init__(
        self, folder: Path | None = None, enrolled: Callable[[str], bool] = everybody
    ) -> None:
        self.clock = Hands()
        self.journal = EventJournal("fleet", self.clock)
        self.trust, self.pauses = TrustScores(folder), DevicePauses(folder)
        self.registry = DeviceRegistry(
            self.journal, self.clock, self.trust, enrolled, pauses=self.pauses
        )
        self.orders = DeviceOrders(
            self.registry, self.trust, self.pauses, self.journal, self.clock, lambda device: None
        )

    def close(self) -> None:
        self.trust.close()
        self.pauses.close()

    def view(self) -> DeviceSnapshot:
        (view,) = self.journal.snapshot.devices
        return view

    def roster(self) -> list[str]:
        return [member.device for member in self.registry.roster()]

    def says(self, state: str) -> None:
        told = Progress.model_validate({"session": ONE, "state": state})
        assert self.registry.take_progress("cam-1", told)


def code(call: object) -> str:
    assert callable(call)
    with pytest.raises(EdgeFedError) as caught:
        call()
    return caught.value.code


def test_a_paused_device_is_not_in_the_roster_and_its_trust_stays() -> None:
    fleet = Fleet()
    fleet.registry.take_birth("cam-1", birth())
    before = fleet.trust.of("cam-1")
    fleet.orders.pause("cam-1", "operator.ann", "noisy fan")
    assert fleet.roster() == []
    assert fleet.trust.of("cam-1") == before
    assert (fleet.view().state, fleet.view().standing) == ("paused", "trusted")
    assert devices_there(fleet.journal.snapshot) == 0
    (item,) = attention(fleet.journal.snapshot, fleet.clock.now())
    assert (item.kind, item.text) == ("paused", "paused by operator.ann: noisy fan")
    fleet.orders.resume("cam-1")
    assert fleet.roster() == ["cam-1"]
    assert devices_there(fleet.journal.snapshot) == 1
    assert (fleet.view().state, fleet.view().paused_by, fleet.view().pause_reason) == (
        "idle",
        "",
        "",
    )


def test_a_pause_is_kept_on_disk_and_ended_on_disk(tmp_path: Path) -> None:
    first = Fleet(tmp_path)
    first.registry.take_birth("cam-1", birth())
    first.orders.pause("cam-1", "local", "")
    first.close()

    second = Fleet(tmp_path)
    assert second.pauses.all() == [OperatorPause("cam-1", "local", "", "2024-05-06T00:00:00.000Z")]
    assert (second.view().state, second.view().paused_by) == ("lost", "local")
    second.registry.take_birth("cam-1", birth())
    assert (second.view().state, second.roster()) == ("paused", [])
    second.orders.resume("cam-1")
    second.close()

    third = Fleet(tmp_path)
    third.registry.take_birth("cam-1", birth())
    assert (third.view().state, third.roster()) == ("idle", ["cam-1"])
    third.close()


def test_a_device_at_work_finishes_and_is_paused_then() -> None:
    fleet = Fleet()
    fleet.registry.take_birth("cam-1", birth())
    fleet.says("train")
    fleet.orders.pause("cam-1", "local", "")
    assert fleet.view().state == "train"
    assert fleet.roster() == []
    assert devices_there(fleet.journal.snapshot) == 0
    fleet.says("done")
    assert fleet.view().state == "paused"
    fleet.registry.take_birth("cam-1", birth(status="lost"))
    assert (fleet.view().state, fleet.view().paused_by) == ("lost", "local")


def test_orders_that_make_no_sense_are_refused() -> None:
    fleet = Fleet()
    fleet.registry.take_birth("cam-1", birth())
    assert code(lambda: fleet.orders.resume("cam-1")) == "device.not_paused"
    assert code(lambda: fleet.orders.pause("cam-2", "local", "")) == "device.unknown"
    fleet.orders.pause("cam-1", "local", "")
    assert code(lambda: fleet.orders.pause("cam-1", "local", "again")) == "device.paused"
    assert fleet.view().pause_reason == ""


def test_a_device_that_was_forgotten_is_resumed_without_coming_back_to_lists() -> None:
    fleet = Fleet()
    fleet.registry.take_birth("cam-1", birth())
    fleet.orders.pause("cam-1", "local", "")
    fleet.registry.take_birth("cam-1", birth(status="lost"))
    fleet.orders.forget("cam-1")
    fleet.orders.resume("cam-1")
    assert fleet.journal.snapshot.devices == ()


@pytest.mark.parametrize("which", ["cam-1", ""])
def test_a_paused_or_quarantined_device_that_is_away_since_a_restart_can_be_forgotten(
    tmp_path: Path, which: str
) -> None:
    first = Fleet(tmp_path)
    first.registry.take_birth("cam-1", birth())
    first.orders.pause("cam-1", "local", "")
    first.orders.quarantine("cam-1", "local")
    first.close()

    second = Fleet(tmp_path)
    assert second.registry.lost() == ["cam-1"]
    assert second.orders.forget(which) == ["cam-1"]
    assert second.journal.snapshot.devices == ()
    assert code(lambda: second.orders.forget("cam-1")) == "device.unknown"
    second.registry.take_birth("cam-1", birth())
    assert (second.view().paused_by, second.view().standing) == ("local", "quarantined")
    assert second.registry.lost() == []
    second.close()


def test_a_device_that_was_removed_from_the_fleet_does_not_come_back_at_a_restart(
    tmp_path: Path,
) -> None:
    first = Fleet(tmp_path)
    first.registry.take_birth("cam-1", birth())
    first.orders.pause("cam-1", "local", "")
    first.orders.quarantine("cam-1", "local")
    first.registry.remove("cam-1")
    first.close()

    second = Fleet(tmp_path, lambda device: False)
    assert (second.journal.snapshot.devices, second.registry.lost()) == ((), [])
    second.close()


def test_a_device_that_is_away_since_a_restart_can_be_removed_from_the_fleet(
    tmp_path: Path,
) -> None:
    first = Fleet(tmp_path)
    first.registry.take_birth("cam-1", birth())
    first.orders.pause("cam-1", "local", "")
    first.close()

    second = Fleet(tmp_path)
    second.registry.remove("cam-1")
    assert (second.journal.snapshot.devices, second.registry.lost()) == ((), [])
    second.close()
