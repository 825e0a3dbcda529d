"""The screen of one device says all that the snapshot knows of it."""

from __future__ import annotations

from datetime import timezone

from textual.pilot import Pilot

from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import DeviceRoundView, DeviceSnapshot, Snapshot
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.tui.app import Dashboard
from edgefed.tui.screens.device import DeviceScreen
from edgefed.tui.screens.devices import DevicesScreen
from edgefed.tui.tables.device_table import DeviceTable
from tests.tui.driving import drive, press, screen_text, settle
from tests.tui.samples import (
    CLASS_NAMES,
    MIB,
    SHARES,
    SUPPLEMENTED,
    FakeClock,
    ago,
    dashboard,
    device_view,
    feed,
    fine,
    snapshot,
)

SMALL = (80, 24)


def rounds() -> tuple[DeviceRoundView, ...]:
    """Four rounds: two accepted, one lost, one late."""
    return (
        DeviceRoundView(round=9, outcome="accepted", seconds=20.0),
        DeviceRoundView(round=10, outcome="lost"),
        DeviceRoundView(round=11, outcome="late", seconds=95.5),
        DeviceRoundView(round=12, outcome="accepted", seconds=41.0),
    )


def full_view(**changes: object) -> DeviceSnapshot:
    """A device of which everything is known."""
    known: dict[str, object] = {
        "device": "jetson-07", "state": "lost", "reason": "no heartbeat for 30 s",
        "state_since": ago(95), "seen_at": ago(125), "hardware": "Orin Nano 8 GB",
        "accelerator": "cuda", "agent": "0.1.0", "torch": "2.8.0", "samples": 519,
        "labels": (61, 72, 60, 31, 98, 45, 6, 70, 32, 0), "class_names": CLASS_NAMES,
        "temperature": 71.0, "power": 14.2, "memory": 5 * 1024 * MIB,
        "memory_total": 8000 * MIB, "cpu": 12.0, "gpu": 98.0,
        "battery": 41.0, "accepted": 11, "late": 2, "rejected": 1, "loss": 0.803,
        "sent": 15 * MIB, "received": 14 * MIB, "refused_at": ago(600),
        "refused_reason": "norm 19.4", "trust": 0.71, "standing": "suspect",
        "trust_reason": "norm too large", "rounds": rounds(), **SHARES, **SUPPLEMENTED,
    }  # fmt: skip
    return DeviceSnapshot.model_validate({**known, **changes})


def of_fleet(*views: DeviceSnapshot) -> Snapshot:
    return snapshot().model_copy(update={"devices": views})


def words(pilot: Pilot[None]) -> str:
    """The screen with single spaces, borders left out."""
    return " ".join(screen_text(pilot).replace("│", " ").split())


def test_enter_opens_the_device_of_the_row_and_escape_goes_back() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "j", "enter")
        assert isinstance(pilot.app.screen, DeviceScreen)
        assert "╭─ jetson-10 ─" in screen_text(pilot)
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, DevicesScreen)
        table = pilot.app.screen.query_one(DeviceTable)
        assert table.selected == "jetson-10"
        assert pilot.app.screen.focused is table

    drive(dashboard(screen="devices"), scenario, size=SMALL)


def test_the_screen_says_what_the_snapshot_knows() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        told = words(pilot)
        for part in (
            "✗ lost 90 s since 14:00:56",
            "reason no heartbeat for 30 s",
            "seen 2 min ago",
            "11 accepted, 2 late, 1 rejected",
            "refused at 13:52:31 norm 19.4",
            "trust 0.71 suspect norm too large",
            "bytes ▲ 15.0 MiB ▼ 14.0 MiB loss 0.803",
            "4 means of 128+ samples, 3.2 KiB; 2 open bounties; 1120 mixes and 480 noise received",
            "board Orin Nano 8 GB",
            "accelerator cuda",
            "agent 0.1.0, torch 2.8.0",
            "temperature 71 °C",
            "power 14.2 W",
            "machine RAM 5.0 of 7.8 GiB",
            "load CPU 12 % GPU 98 %",
            "battery 41 %",
            "Data 519 samples",
            "Rounds 2 of 4 accepted",
        ):
            assert part in told, part

    drive(dashboard(fine(of_fleet(full_view())), screen="devices"), scenario, size=(160, 36))


def test_many_labels_become_one_line() -> None:
    many = full_view(labels=tuple(range(62)), class_names=())

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        assert "labels 0 to 61: 61 present" in words(pilot)
        assert "most frequent: 61, 61" in words(pilot)

    drive(dashboard(fine(of_fleet(many)), screen="devices"), scenario, size=SMALL)


def test_a_long_reason_is_not_cut_after_one_line() -> None:
    reason = "rejected: norm 19.4 exceeds the bound of 10.0 that the recipe sets for every layer"
    refused = full_view(state="rejected", refused_reason=reason)

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        left = " ".join(line[1:41].strip() for line in screen_text(pilot).splitlines()[2:6])
        assert reason in " ".join(left.split())

    drive(dashboard(fine(of_fleet(refused)), screen="devices"), scenario, size=SMALL)


def test_the_open_screen_follows_the_fleet() -> None:
    clock = FakeClock()
    events = [
        Event(time=ago(60), kind="device", fields={"device": "b-1", "state": "train"}),
        Event(time=ago(0), kind="device", fields={"device": "b-1", "state": "lost"}),
    ]
    builder, updates = SnapshotBuilder(Snapshot(fleet="plant-a")), []
    for event in events:
        builder.apply(event)
        updates.append(fine(builder.snapshot()))
    source = feed(clock, *updates, fine(Snapshot(fleet="plant-a", time=ago(-1))))
    app = Dashboard(source, None, clock, zone=timezone.utc, screen="devices")

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        assert "● train" in words(pilot)
        clock.seconds += 0.5
        source.deliver()
        await settle(pilot)
        assert "✗ lost" in words(pilot)
        assert "since 14:02:31" in words(pilot)
        clock.seconds += 0.5
        source.deliver()
        await settle(pilot)
        assert "The fleet does not know this device any more." in words(pilot)

    drive(app, scenario)


def test_odd_ids_and_letters() -> None:
    odd = full_view(device="[red]" + "x" * 60, hardware="a\nb\x1b[31m", reason="[/]\x07")

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        text = screen_text(pilot)
        assert not {char for char in text if ord(char) > 126 or (ord(char) < 32 and char != "\n")}
        assert "[red]xx" in text
        assert "a?b?[31m" in text
        assert "[/]?" in text

    drive(dashboard(fine(of_fleet(odd)), letters=True, screen="devices"), scenario, size=SMALL)


def test_a_click_on_the_row_of_the_cursor_opens_it() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await pilot.click(DeviceTable, offset=(3, 1))
        await settle(pilot)
        assert isinstance(pilot.app.screen, DeviceScreen)

    drive(dashboard(fine(of_fleet(device_view(3))), screen="devices"), scenario)
