"""Screen 4 shows the label bounties, the labels of the devices, and what mixes cost them."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot

from edgefed.events.base.snapshot import Snapshot
from tests.tui.driving import drive, heading, press, screen_text, words
from tests.tui.folded import RUN, folded, happened, run_of
from tests.tui.recorded_fleet import recorded
from tests.tui.samples import dashboard, fine

SMALL = (80, 24)


def bounty(device: str, label: int, **more: Any) -> dict[str, Any]:
    return {"device": device, "label": label, "count": 60, "mixes": 30, **more}


def supplemented(*bounties: dict[str, Any], budgets: tuple[dict[str, Any], ...] = ()) -> Snapshot:
    return folded(
        happened("device", device="cam-1", state="idle", labels=[30, 10, 0]),
        happened("device", device="cam-2", state="idle"),
        run_of("dog", "cat", "emu"),
        happened("labels", run=RUN, bounties=bounties, budgets=budgets, removed=[]),
    )


def test_a_bounty_has_what_label_bounties_has() -> None:
    snapshot = supplemented(
        bounty("cam-1", 2, offered=40, received=24, noise=30, status="closed"),
        bounty("cam-2", 0, offered=12, received=6),
        bounty("cam-2", 1, offered=5, received=5, noise=10, status="cancelled"),
        bounty("cam-3", 9),
    )

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "4")
        found = words(pilot, "#bounties")
        verdict = "mixes fill 15 %, noise 17 %; 2 open, 1 closed, 1 cancelled"
        assert " ".join(found[0]) == verdict, "verdict first"
        assert found[1] == [
            "DEVICE", "LABEL", "STATUS", "FILLED", "COUNT", "MIXES", "OFFERED", "RECEIVED", "NOISE",
        ]  # fmt: skip
        assert found[2:6] == [
            ["cam-3", "9", "open", "░░░░░░", "0%", "60", "30", "0", "0", "0"],
            ["cam-2", "dog", "open", "░░░░░░", "10%", "60", "30", "12", "6", "0"],
            ["cam-2", "cat", "cancelled", "█░░░░░", "25%", "60", "30", "5", "5", "10"],
            ["cam-1", "emu", "closed", "█████░", "90%", "60", "30", "40", "24", "30"],
        ]
        assert heading(pilot, "#bounties") == "label bounties  round 0"

    drive(dashboard(fine(snapshot)), scenario, size=SMALL)


def test_a_device_has_its_labels_before_and_after() -> None:
    closed = bounty("cam-1", 2, received=10, noise=10, status="closed")

    async def scenario(pilot: Pilot[None]) -> None:
        found = words(pilot, "#label-devices")
        assert found[1] == ["cam-1", "█▃·", "75", "%", "█▃▆", "50", "%", "·"]
        assert found[2] == ["cam-2", "not", "shared", "·", "·"]
        title = heading(pilot, "#label-devices")
        assert title.endswith("most frequent label 75 % before, 50 % after")

    drive(dashboard(fine(supplemented(closed)), screen="labels"), scenario, size=SMALL)


def test_an_open_bounty_supplements_nothing_yet() -> None:
    snapshot = supplemented(bounty("cam-1", 2, received=10))

    async def scenario(pilot: Pilot[None]) -> None:
        assert words(pilot, "#label-devices")[1] == ["cam-1", "█▃·", "75", "%", "·", "·"]
        title = heading(pilot, "#label-devices")
        assert title.endswith("most frequent label 75 %")

    drive(dashboard(fine(snapshot), screen="labels"), scenario, size=SMALL)


def test_a_budget_has_what_label_budget_has() -> None:
    budgets = (
        {"device": "cam-1", "released": 120, "mixes_left": 0, "epsilon": 2.5, "epsilon_left": 0.0},
        {"device": "cam-2", "released": 40, "epsilon": None, "shares": False},
    )

    async def scenario(pilot: Pilot[None]) -> None:
        found = words(pilot, "#label-devices")
        assert found[0][-5:] == ["RELEASED", "LEFT", "EPSILON", "EPSILON", "LEFT"]
        assert found[1][-4:] == ["120", "0", "2.5", "0"]
        assert found[2][-5:] == ["40", "none", "unbounded", "no", "limit"]

    drive(dashboard(fine(supplemented(budgets=budgets)), screen="labels"), scenario)


def test_bounties_and_devices_scroll_each_for_itself() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "1 to 7 of 38 rows  j k scroll" in screen_text(pilot)
        await press(pilot, "j", "down")
        assert "3 to 9 of 38 rows" in screen_text(pilot)
        await press(pilot, "tab", "G")
        assert "33 to 40 of 40 devices  j k scroll" in screen_text(pilot)
        assert "3 to 9 of 38 rows  tab selects" in screen_text(pilot)

    drive(dashboard(recorded("bounties"), screen="labels"), scenario, size=SMALL)


def test_a_run_without_bounties_says_how_to_start_one_that_has_some() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "This run has no label bounties" in screen_text(pilot)
        assert "edgefed run start --set labels.supplement=0.1" in screen_text(pilot)

    drive(dashboard(recorded("fedprox"), screen="labels"), scenario, size=SMALL)


def test_ids_cannot_break_the_screen() -> None:
    snapshot = folded(
        run_of("a\tb"),
        happened("labels", run=RUN, bounties=[bounty("x\x1b[2J\n", 0)], budgets=[], removed=[]),
    )

    async def scenario(pilot: Pilot[None]) -> None:
        assert "x [2J" in screen_text(pilot)
        assert "a?b" in screen_text(pilot)

    drive(dashboard(fine(snapshot), screen="labels"), scenario)
