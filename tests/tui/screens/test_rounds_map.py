"""The map of rounds by devices answers who slows the rounds down, and who misses them."""

from __future__ import annotations

from textual.pilot import Pilot

from edgefed.events.base.snapshot import DeviceOutcome, DeviceRoundView, DeviceSnapshot, Snapshot
from edgefed.tui.screens.devices import DevicesScreen
from tests.tui.driving import drive, press, screen_text
from tests.tui.samples import dashboard, fine, snapshot

SMALL = (80, 24)


def view(device: str, *rounds: tuple[int, DeviceOutcome, float]) -> DeviceSnapshot:
    told = [DeviceRoundView(round=n, outcome=what, seconds=took) for n, what, took in rounds]
    return DeviceSnapshot(device=device, rounds=tuple(told))


def fleet(*views: DeviceSnapshot) -> Snapshot:
    return snapshot().model_copy(update={"devices": views})


def rows(pilot: Pilot[None]) -> list[str]:
    """What stands between the borders."""
    return [line[2:-2] for line in screen_text(pilot).splitlines() if line.startswith("│")]


def test_rows_are_devices_and_cells_are_outcome_or_time() -> None:
    fast = view("fast", (1, "accepted", 10), (2, "accepted", 10), (3, "rejected", 12))
    slow = view("slow", (1, "accepted", 40), (2, "late", 99), (3, "accepted", 29))
    gone = view("gone", (2, "lost", 0)).model_copy(update={"state": "lost"})
    idle = view("never-asked")

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "m")
        assert "Rounds by devices  slowest first" in screen_text(pilot)
        _, *drawn = rows(pilot)
        assert [row.split() for row in drawn[:3]] == [
            ["○", "slow", "█◷▓", "56", "s"],
            ["○", "fast", "░░■", "11", "s"],
            ["✗", "gone", "·✗·", "—"],
        ]
        legend = " ".join(drawn[3].split())
        assert legend.startswith("up to ░ 10 s ▓ 29 s █ 40 s ◷ late ✗ lost ■ refused")
        assert legend.endswith("· not asked")
        assert "never-asked" not in screen_text(pilot)
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, DevicesScreen)

    drive(dashboard(fine(fleet(fast, slow, gone, idle)), screen="devices"), scenario, size=SMALL)


def test_the_numbers_stand_over_their_rounds() -> None:
    long = view("long", *((n, "late" if n in (20, 50) else "accepted", 5.0) for n in range(1, 61)))

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "m")
        ruler, row = rows(pilot)[:2]
        at = [index for index, char in enumerate(row) if char == "◷"]
        assert [ruler[index - 1 : index + 1] for index in at] == ["20", "50"]
        assert sum(char in "░◷" for char in row) == 60

    drive(dashboard(fine(fleet(long)), screen="devices"), scenario, size=(100, 24))


def test_one_very_slow_reply_leaves_the_others_apart() -> None:
    views = [
        view("steady", *((n, "accepted", 10.0 + n) for n in range(1, 8))),
        view("stuck", (1, "accepted", 4000.0)),
    ]

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "m")
        _, stuck, steady, legend = rows(pilot)[:4]
        assert stuck.split()[2] == "█······"
        assert steady.split()[2] == "░░▒▒▓▓█"
        assert legend.startswith("up to ░ 12 s ▒ 14 s ▓ 16 s █ 66 min 40 s")

    drive(dashboard(fine(fleet(*views)), screen="devices"), scenario, size=(100, 24))


def test_the_limits_are_those_of_the_rounds_on_the_screen() -> None:
    slow = [(n, "accepted", 500.0) for n in range(1, 41)]
    fast = [(n, "accepted", 1.0 + n / 10) for n in range(41, 101)]
    views = [view("long", *slow, *fast)]  # type: ignore[arg-type]

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "m")
        assert "8 min 20 s" not in rows(pilot)[2]

    drive(dashboard(fine(fleet(*views)), screen="devices"), scenario, size=(80, 24))


def test_where_not_all_fits_the_legend_explains_the_shades() -> None:
    views = [view("long", *((n, "accepted", 1000.0 * n + 5) for n in range(1, 5)))]

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "m")
        legend = rows(pilot)[2].rstrip()
        assert legend == "up to ░ 16 min 45 s ▒ 33 min 25 s ▓ 50 min 05 s █ 66 min 45 s"

    drive(dashboard(fine(fleet(*views)), screen="devices"), scenario, size=SMALL)


def test_a_large_fleet_scrolls() -> None:
    views = [view(f"d-{n:03d}", (1, "accepted", 300.0 - n)) for n in range(200)]

    async def scenario(pilot: Pilot[None]) -> None:
        def first() -> str:
            return rows(pilot)[1].split()[1]

        await press(pilot, "m")
        assert first() == "d-000"
        assert "1 to 18 of 200 devices" in screen_text(pilot)
        await press(pilot, "k")
        assert first() == "d-000"
        await press(pilot, "j", "pagedown")
        assert first() == "d-019"
        await press(pilot, *["pagedown"] * 15)
        assert first() == "d-182"
        assert "183 to 200 of 200 devices" in screen_text(pilot)
        await press(pilot, "k")
        assert first() == "d-181"

    drive(dashboard(fine(fleet(*views)), screen="devices"), scenario, size=SMALL)


def test_letters_for_symbols() -> None:
    every: tuple[DeviceOutcome, ...] = ("accepted", "late", "lost", "refused", "failed")
    views = [view("x" * 40, *((n, what, n) for n, what in enumerate(every, 1)))]

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "m")
        assert not {char for char in screen_text(pilot) if ord(char) > 126}

    drive(dashboard(fine(fleet(*views)), letters=True, screen="devices"), scenario, size=SMALL)
