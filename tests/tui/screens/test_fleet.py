"""The grid of the fleet on the Overview: what fits, the cursor, and keys for its device."""

from __future__ import annotations

from itertools import product

import pytest
from textual.pilot import Pilot

from edgefed.events.base.snapshot import DeviceSnapshot, Snapshot
from edgefed.tui.panes.devices.fleet import FleetPane
from edgefed.tui.panes.devices.fleet_layout import fleet_layout
from edgefed.tui.screens.device import DeviceScreen
from edgefed.tui.state.trouble import by_trouble
from tests.tui.driving import drive, heading, inside, notices, press, screen_text
from tests.tui.samples import (
    RecordingControl,
    ago,
    dashboard,
    device_view,
    fine,
    snapshot,
)


def fleet_of(count: int) -> Snapshot:
    """A fleet in which every twentieth device is lost, with a reason."""
    return snapshot().model_copy(update={"devices": tuple(map(view_of, range(1, count + 1)))})


def view_of(index: int) -> DeviceSnapshot:
    view = device_view(index, device=f"board-{index:04d}", temperature=40.0)
    if view.state != "lost":
        return view
    return view.model_copy(update={"reason": "connection broke", "state_since": ago(48 + index)})


def pane_of(pilot: Pilot[None]) -> FleetPane:
    return pilot.app.screen.query_one(FleetPane)


def test_the_cursor_reaches_every_device_and_stays_in_sight() -> None:
    shown = fleet_of(1000)
    order = [view.device for view in by_trouble(shown.devices)]

    async def scenario(pilot: Pilot[None]) -> None:
        pane = pane_of(pilot)
        await press(pilot, "g")
        assert pane.selected == order[0]
        await press(pilot, "right", "right", "left")
        assert pane.selected == order[1]
        before, seen = -1, 0
        while (place := order.index(pane.selected or "")) != before:
            before, seen = place, seen + 1
            assert order[place] in inside(pilot, "#fleet")[-1]
            await pilot.press("down")
            await pilot.pause()
        assert seen == pane._layout.place(999)[0] + 1
        await press(pilot, "G")
        assert pane.selected == order[-1]
        await press(pilot, "left", "up", "down")
        assert pane.selected == order[-2]
        await press(pilot, "g")

    drive(dashboard(fine(shown)), scenario, (80, 24))


def test_the_cursor_stays_on_its_device_once_it_was_moved() -> None:
    first, second = fleet_of(4), fleet_of(4)
    lost = view_of(4).model_copy(update={"state": "lost"})
    second = second.model_copy(update={"devices": (*second.devices[:3], lost)})
    before = [view.device for view in by_trouble(first.devices)]
    app = dashboard(fine(first))

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "right")
        assert pane_of(pilot).selected == before[1]
        app._listen(fine(second))
        await pilot.pause()
        app._draw()
        await pilot.pause()
        assert pane_of(pilot).ids[0] == "board-0004"
        assert pane_of(pilot).selected == before[1]

    drive(app, scenario)


def test_without_a_move_the_cursor_is_on_the_worst_device() -> None:
    first = fleet_of(4)
    lost = view_of(4).model_copy(update={"state": "lost"})
    app = dashboard(fine(first))

    async def scenario(pilot: Pilot[None]) -> None:
        app._listen(fine(first.model_copy(update={"devices": (*first.devices[:3], lost)})))
        await pilot.pause()
        app._draw()
        await pilot.pause()
        assert pane_of(pilot).selected == "board-0004"

    drive(app, scenario)


def test_enter_opens_the_device_and_the_next_ones_are_in_the_order_of_the_grid() -> None:
    shown = fleet_of(60)
    order = [view.device for view in by_trouble(shown.devices)]

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "right", "enter")
        assert isinstance(pilot.app.screen, DeviceScreen)
        assert pilot.app.screen.chosen() == order[1]
        await press(pilot, "right_square_bracket")
        assert pilot.app.screen.chosen() == order[2]

    drive(dashboard(fine(shown)), scenario)


def test_keys_concern_the_device_under_the_cursor_and_the_footer_names_them() -> None:
    control = RecordingControl()
    app = dashboard(fine(fleet_of(40)), control=control)
    order = [view.device for view in by_trouble(fleet_of(40).devices)]

    async def scenario(pilot: Pilot[None]) -> None:
        footer = screen_text(pilot).splitlines()[-1]
        assert "i P x r D Device" in footer
        hints = "enter Open  i Ping  P Pause…  x Quarantine…  r Release  D Forget…"
        assert hints in str(pane_of(pilot).border_subtitle)
        await press(pilot, "g", "D", "y")
        await press(pilot, "right", "i")
        await press(pilot, "P", "f", "a", "n", "enter")
        await press(pilot, "x", "y")
        await press(pilot, "r")
        assert control.device_orders == [
            ("forget", order[0], ""),
            ("pause", order[1], "fan"),
            ("quarantine", order[1], ""),
        ]
        texts = [text for _, text in notices(pilot)]
        assert f"{order[1]} answered in 10.0 ms." in texts
        assert f"{order[1]} is not quarantined." in texts
        control.device_orders.clear()

    drive(app, scenario, (80, 24))


def test_a_click_moves_the_cursor_and_another_one_opens() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        pane = pane_of(pilot)
        await pilot.click(FleetPane, offset=(42, 3))
        assert pane.selected == pane.ids[3]
        await pilot.click(FleetPane, offset=(42, 3))
        await pilot.pause()
        assert isinstance(pilot.app.screen, DeviceScreen)
        assert pilot.app.screen.chosen() == pane.ids[3]

    drive(dashboard(fine(fleet_of(4))), scenario, (80, 24))


def test_without_devices_the_pane_says_how_to_start_one() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "No device yet." in inside(pilot, "#fleet")[0]
        assert heading(pilot, "#fleet") == "Fleet"
        await press(pilot, "down", "right", "enter", "i")
        assert pane_of(pilot).selected is None

    drive(dashboard(fine(fleet_of(0))), scenario, (80, 24))


def test_nothing_is_drawn_again_where_nothing_changed() -> None:
    app = dashboard(fine(fleet_of(1000)))

    async def scenario(pilot: Pilot[None]) -> None:
        pane = pane_of(pilot)
        drawn, order = pane._drawn, pane._sorted
        app._draw()
        assert pane._drawn is drawn
        assert pane._sorted is order

    drive(app, scenario)


@pytest.mark.parametrize("count", [0, 1, 4, 60, 1000])
def test_layouts_fit_and_have_a_place_for_each_device(count: int) -> None:
    for width, height in product((30, 76, 116, 196), (2, 4, 6, 13)):
        check_layout(count, width, height)


def check_layout(count: int, width: int, height: int) -> None:
    layout = fleet_layout(count, width, height)
    assert layout.height <= height
    assert 0 < layout.columns * layout.width <= width
    assert layout.across * layout.pitch <= width
    places = [layout.place(index) for index in range(count)]
    assert len(set(places)) == count
    assert [layout.at(*place) for place in places] == list(range(count))
    for index in {0, count // 3, count // 2, count - 1} if count else ():
        row, cell = layout.place(index)
        for rows in (-1, 1):
            other = layout.beside(index, rows, count)
            assert 0 <= other < count
            assert abs(layout.place(other)[0] - row) <= 1
            if layout.place(other)[0] == row and rows == 1:
                assert row == layout.place(count - 1)[0]
            assert cell < width


@pytest.mark.parametrize(
    ("count", "size", "named", "symbols"),
    [(4, (76, 4), 4, 0), (60, (76, 4), 8, 1), (60, (116, 6), 12, 1), (60, (196, 13), 60, 0)],
)
def test_what_is_shown_of_each_device(
    count: int, size: tuple[int, int], named: int, symbols: int
) -> None:
    layout = fleet_layout(count, *size)
    assert (layout.named, layout.symbol_lines) == (named, symbols)
