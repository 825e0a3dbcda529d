"""Screen 4 shows the label bounties, the labels of the devices, and what mixes cost them."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot

from tests.tui.driving import drive, press, screen_text
from tests.tui.folded import RUN, folded, happened, run_of
from tests.tui.recorded_fleet import recorded
from tests.tui.samples import dashboard, fine

SMALL = (80, 24)


def bounty(device: str, label: int, **more: Any) -> dict[str, Any]:
    return {"device": device, "label": label, "count": 60, "mixes": 30, **more}


def test_bounties_and_devices_scroll_each_for_itself() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "1 to 7 of 38 rows  j k scroll" in screen_text(pilot)
        await press(pilot, "j", "down")
        assert "3 to 9 of 38 rows" in screen_text(pilot)
        await press(pilot, "tab", "G")
        assert "33 to 40 of 40 devices  j k scroll" in screen_text(pilot)
        assert "3 to 9 of 38 rows  tab selects" in screen_text(pilot)

    drive(dashboard(recorded("bounties"), screen="labels"), scenario, size=SMALL)


def test_ids_cannot_break_the_screen() -> None:
    snapshot = folded(
        run_of("a\tb"),
        happened("labels", run=RUN, bounties=[bounty("x\x1b[2J\n", 0)], budgets=[], removed=[]),
    )

    async def scenario(pilot: Pilot[None]) -> None:
        assert "x [2J" in screen_text(pilot)
        assert "a?b" in screen_text(pilot)

    drive(dashboard(fine(snapshot), screen="labels"), scenario)
