"""The device table keeps its cursor, writes only what changed, and holds a large fleet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widgets import Input

from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.tui.app import DRAW_EVERY, Dashboard
from edgefed.tui.feeds.recorded_feed import PERIOD
from edgefed.tui.look.symbols import HOT
from edgefed.tui.look.theme import MUTED, SKY, VERMILLION
from edgefed.tui.state.display_state import DisplayState, Shown
from edgefed.tui.state.filtering import matches
from edgefed.tui.state.trouble import by_trouble, why
from edgefed.tui.tables.columns import COLUMNS, PADDING, DeviceColumn, columns_for, in_order
from edgefed.tui.tables.device_table import DeviceTable
from tests.tui.driving import drive, press, screen_text, settle, until
from tests.tui.samples import (
    MIB,
    FakeClock,
    ago,
    dashboard,
    device_view,
    feed,
    fine,
    snapshot,
)


def table_of(pilot: Pilot[None]) -> DeviceTable:
    return pilot.app.screen.query_one(DeviceTable)


def ids(pilot: Pilot[None]) -> list[str]:
    return list(table_of(pilot).ids)


def training(*indices: int) -> list[DeviceSnapshot]:
    """Devices without trouble, of which no cell has an age."""
    return [device_view(index, seen_at="", state="train", temperature=40.0) for index in indices]


def updated(
    before: list[DeviceSnapshot], after: list[DeviceSnapshot]
) -> tuple[Dashboard, Callable[[], None]]:
    """A dashboard of some devices, and what brings the others."""
    clock = FakeClock()
    empty = snapshot(devices=0)
    updates = [fine(empty.model_copy(update={"devices": tuple(each)})) for each in (before, after)]
    source = feed(clock, *updates)

    def deliver() -> None:
        clock.seconds += PERIOD
        source.deliver()
        # The app's timer may have drawn the old devices a moment ago; then the next tick draws.
        clock.seconds += DRAW_EVERY

    return Dashboard(source, None, clock, zone=timezone.utc, screen="devices"), deliver


def test_an_update_keeps_the_cursor_on_its_device() -> None:
    before = training(*range(1, 9))
    app, deliver = updated(before, [*before, device_view(9, device="a-new-one", state="train")])

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "down", "down", "down")
        assert table_of(pilot).selected == "jetson-04"
        deliver()
        await until(pilot, lambda: ids(pilot)[0] == "a-new-one")
        assert table_of(pilot).selected == "jetson-04"
        assert table_of(pilot).cursor_row == 4

    drive(app, scenario)


def test_an_update_paints_only_the_rows_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = training(*range(1, 9))
    changed = before[2].model_copy(update={"fraction": 0.5})
    app, deliver = updated(before, [*before[:2], changed, *before[3:]])
    painted: list[Region] = []
    refresh = DeviceTable.refresh

    def recording(self: DeviceTable, *regions: Region, **more: bool) -> DeviceTable:
        painted.extend(regions or [self.region])
        return refresh(self, *regions, **more)

    async def scenario(pilot: Pilot[None]) -> None:
        monkeypatch.setattr(DeviceTable, "refresh", recording)
        deliver()
        await until(pilot, lambda: "50 %" in screen_text(pilot))
        assert {(region.y, region.height) for region in painted} == {(3, 1)}

    drive(app, scenario)


def test_only_visible_rows_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built: set[str] = set()
    content = DeviceColumn.content

    def recording(self: DeviceColumn, device: DeviceSnapshot, shown: Shown) -> Text:
        built.add(device.device)
        return content(self, device, shown)

    monkeypatch.setattr(DeviceColumn, "content", recording)

    async def scenario(pilot: Pilot[None]) -> None:
        assert len(ids(pilot)) == 200
        assert len(built) < 40

    drive(dashboard(fine(snapshot(devices=200)), screen="devices"), scenario)


def test_pages_and_ends_of_the_table() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        table = table_of(pilot)
        rows = table.size.height - 1
        await press(pilot, "pagedown")
        assert table.cursor_row == rows
        assert table.selected is not None
        assert table.selected in screen_text(pilot)
        await press(pilot, "pageup", "up")
        assert table.cursor_row == 0
        await press(pilot, "end", "down")
        assert table.cursor_row == 199
        await press(pilot, "home")
        assert table.cursor_row == 0
        assert ids(pilot)[0] in screen_text(pilot)

    drive(dashboard(fine(snapshot(devices=200)), screen="devices"), scenario)


def test_sideways_the_ids_stand_still() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "w")
        assert "HARDWARE" not in screen_text(pilot)
        for _ in range(200):
            table_of(pilot).action_scroll_right()
        await settle(pilot)
        assert "HARDWARE" in screen_text(pilot)
        assert "STATE" not in screen_text(pilot)
        assert ids(pilot)[0] in screen_text(pilot)
        await pilot.click(DeviceTable, offset=(70, 0))
        await settle(pilot)
        assert "sort: hardware" in screen_text(pilot)

    views = tuple(device_view(n, hardware=f"Orin {n}", memory=n, battery=50.0) for n in range(1, 9))
    update = fine(snapshot().model_copy(update={"devices": views}))
    drive(dashboard(update, screen="devices"), scenario, size=(80, 24))


def test_a_click_on_a_head_sorts_and_a_second_one_reverses() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await pilot.click(DeviceTable, offset=(2, 0))
        await settle(pilot)
        assert "sort: device ─" in screen_text(pilot)
        await pilot.click(DeviceTable, offset=(2, 0))
        await settle(pilot)
        assert "sort: device reversed" in screen_text(pilot)
        await pilot.click(DeviceTable, offset=(2, 3))
        await settle(pilot)
        assert table_of(pilot).cursor_row == 2

    drive(dashboard(screen="devices"), scenario)


def test_a_lost_device_leaves_the_table_with_the_snapshot() -> None:
    clock = FakeClock()
    source = feed(clock, fine(snapshot(devices=5)), fine(snapshot(devices=3)))
    app = Dashboard(source, None, clock, zone=timezone.utc, screen="devices")

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "G")
        clock.seconds += 0.5
        source.deliver()
        await settle(pilot)
        assert sorted(ids(pilot)) == ["jetson-01", "jetson-02", "jetson-03"]

    drive(app, scenario)


def test_filter_as_typed_then_clear() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "slash", *"state:train", "enter")
        assert ids(pilot) == [f"jetson-{n:02d}" for n in (2, 4, 7, 11, 15)]
        assert pilot.app.screen.focused is table_of(pilot)
        await press(pilot, "escape")
        assert len(ids(pilot)) == 20
        assert not pilot.app.screen.query_one(Input).display

    drive(dashboard(screen="devices"), scenario)


def test_sort_and_reverse() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "sort: trouble" in screen_text(pilot)
        await press(pilot, "o", "O")
        assert ids(pilot)[0] == "jetson-20"
        assert "sort: device reversed" in screen_text(pilot)
        await press(pilot, "o")
        assert ids(pilot)[0] == "jetson-06"  # the first idle one
        assert "sort: state ─" in screen_text(pilot)
        shown = len(table_of(pilot).keys)
        await press(pilot, *"o" * (shown - 1))
        assert "sort: trouble" in screen_text(pilot)

    drive(dashboard(screen="devices"), scenario)


def test_the_worst_and_oldest_trouble_stands_first() -> None:
    troubles = [
        device_view(1, device="z-lost", state="lost", state_since=ago(90)),
        device_view(1, device="a-lost-later", state="lost", state_since=ago(30)),
        device_view(1, device="0-lost-at-some-time", state="lost"),
        device_view(1, device="y-failed", state="failed", state_since=ago(500)),
        device_view(1, device="w-refused", state="idle", refused_at=ago(80)),
        device_view(1, device="b-refused-later", state="rejected", refused_at=ago(20)),
        device_view(1, device="v-suspect", state="train", standing="suspect"),
        device_view(1, device="u-late", state="late", state_since=ago(10)),
        device_view(1, device="t-paused", state="paused", state_since=ago(900), temperature=90.0),
        device_view(1, device="s-hot", state="done", temperature=HOT),
        device_view(1, device="r-paused", state="paused", state_since=ago(20)),
        device_view(1, device="e-battery", state="train", battery=9.0),
        device_view(1, device="c-invited", state="invited", temperature=HOT - 1),
        device_view(1, device="d-idle", state="idle"),
        device_view(1, device="q-done", state="done", state_since=ago(900)),
        device_view(1, device="r-trains", state="train", state_since=ago(900)),
    ]
    wanted = [view.device for view in troubles]
    shuffled = sorted(troubles, key=lambda view: view.device)
    assert [view.device for view in by_trouble(shuffled)] == wanted
    update = fine(snapshot().model_copy(update={"devices": tuple(shuffled)}))

    async def scenario(pilot: Pilot[None]) -> None:
        assert ids(pilot) == wanted
        await press(pilot, "O")
        assert ids(pilot) == wanted[::-1]
        assert "sort: trouble reversed" in screen_text(pilot)

    drive(dashboard(update, screen="devices"), scenario)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"state": "idle"}, ""),
        ({"state": "lost"}, "not connected"),
        ({"state": "lost", "reason": "stopped cleanly"}, "stopped cleanly"),
        ({"state": "idle", "reason": "refused its data: x"}, "refused its data: x"),
        ({"state": "failed", "reason": "out of memory"}, "out of memory"),
        ({"state": "idle", "refused_at": ago(3), "refused_reason": "norm 19.4"}, "norm 19.4"),
        ({"state": "rejected", "reason": "norm 19.4 exceeds 10.0"}, "norm 19.4 exceeds 10.0"),
        ({"standing": "quarantined", "trust_reason": "by bas"}, "quarantined: by bas"),
        ({"standing": "suspect"}, "suspect"),
        ({"state": "train", "temperature": 91.0}, "hot: 91 °C"),
        ({"state": "paused", "reason": "battery 9 %"}, "battery 9 %"),
        ({"state": "train", "battery": 9.0}, "battery 9 %"),
    ],
)
def test_the_reason_says_what_is_wrong(changes: dict[str, object], told: str) -> None:
    view = device_view(1, **{"state": "idle", "temperature": 40.0, **changes})
    assert why(view) == told
    columns = {column.key: column for column in columns_for([view], None)}
    assert ("reason" in columns) is bool(told)
    if told:
        assert columns["reason"].content(view, DisplayState(FakeClock()).shown()).plain == told


def test_a_silent_device_says_for_how_long() -> None:
    view = device_view(1, state="silent", state_since=ago(24), temperature=40.0)
    columns = {column.key: column for column in columns_for([view], None)}
    cell = columns["reason"].content(view, DisplayState(FakeClock()).shown())
    assert (why(view), cell.plain) == ("does not answer a ping", "silent for 24 s")


LONG = "jetson-orin-nano-hall-3-row-14-board-"


def test_a_long_id_drops_no_column_that_would_fit() -> None:
    short = [device_view(index, device=f"jetson-nano{index}") for index in range(1, 21)]
    long = [*short[:-1], device_view(20, device=f"{LONG}20")]
    for width in (77, 97, 117, 197):
        keys = [[column.key for column in columns_for(views, width)] for views in (short, long)]
        assert keys[0] == keys[1]


def test_long_ids_are_cut_in_the_middle_and_keep_their_order() -> None:
    # The ids look the same once they are cut.
    names = [f"{LONG}{number:02d}-{'x' * 20}" for number in range(1, 12)]
    views = [device_view(1, device=name, state="idle", temperature=40.0) for name in names]
    update = fine(snapshot().model_copy(update={"devices": tuple(views)}))

    async def scenario(pilot: Pilot[None]) -> None:
        assert "jetson…xxxxxx" in screen_text(pilot)
        assert "TRAINING" in screen_text(pilot)
        await press(pilot, "o", "O")
        assert ids(pilot) == [view.device for view in reversed(views)]

    drive(dashboard(update, screen="devices"), scenario, size=(80, 24))


def test_columns_of_which_no_device_has_anything_are_hidden() -> None:
    bare = DeviceSnapshot(device="bare")
    keys = [column.key for column in columns_for([bare], None)]
    assert keys == ["device", "state", "training", "seen", "samples", "sent", "received"]
    told = device_view(
        1, hardware="Orin Nano", memory=3 * 1024**3, loss=0.25, late=2, rejected=1, reason="hot"
    )
    more = {"reason", "hardware", "memory", "loss", "late", "rejected", "labels", "temperature"}
    columns = {column.key: column for column in columns_for([bare, told], None)}
    assert more <= columns.keys()
    shown = DisplayState(FakeClock()).shown()
    cells = {key: columns[key].content(told, shown).plain for key in more}
    assert cells["memory"] == "3.0 GiB"
    whole = told.model_copy(update={"memory_total": 8 * 1024**3})
    assert columns["memory"].content(whole, shown).plain == "3.0 of 8.0 GiB"
    assert (cells["hardware"], cells["loss"], cells["late"]) == ("Orin Nano", "0.250", "2")
    assert {columns[key].content(bare, shown).plain for key in more} <= {"—", "·"}


def test_arrows_mean_the_same_on_both_screens() -> None:
    one = device_view(1, sent=7 * MIB, received=5 * MIB)
    update = fine(snapshot(sent=5 * MIB, received=7 * MIB).model_copy(update={"devices": (one,)}))

    async def scenario(pilot: Pilot[None]) -> None:
        table = table_of(pilot)
        heads = [column.label for column in COLUMNS if column.key in ("sent", "received")]
        assert heads == ["▲ MiB", "▼ MiB"]
        assert table.text("jetson-01", "sent") == "7.0"
        assert table.text("jetson-01", "received") == "5.0"
        await press(pilot, "1")
        words = " ".join(screen_text(pilot).split())
        assert "▲ received 7.0 MiB" in words
        assert "▼ sent 5.0 MiB" in words

    drive(dashboard(update, screen="devices"), scenario, size=(200, 50))


def test_a_lost_row_is_dimmed_and_the_cursor_leaves_colours() -> None:
    lost = device_view(1, state="lost", reason="no heartbeat")
    update = fine(snapshot().model_copy(update={"devices": (lost, device_view(2, state="train"))}))

    def colours(pilot: Pilot[None], row: int) -> dict[str, str]:
        strip = table_of(pilot).render_line(row + 1)
        return {
            segment.text.strip(): segment.style.color.name
            for segment in strip
            if segment.style and segment.style.color and segment.text.strip()
        }

    async def scenario(pilot: Pilot[None]) -> None:
        for _ in range(2):  # with the cursor on the row, then beside it
            row = colours(pilot, 0)
            assert row["✗ lost"] == VERMILLION.lower()
            assert row["jetson-01"] == row["513"] == MUTED.lower()
            await press(pilot, "j")
        row = colours(pilot, 1)
        assert row["● train"] == SKY.lower()
        assert row["jetson-02"] != MUTED.lower()

    drive(dashboard(update, screen="devices"), scenario)


def test_wide_shows_every_column() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "rejected" not in table_of(pilot).keys
        await press(pilot, "w")
        assert "rejected" in table_of(pilot).keys
        await press(pilot, "w")
        assert "rejected" not in table_of(pilot).keys

    drive(dashboard(screen="devices"), scenario, size=(80, 24))


@given(width=st.integers(20, 200), name=st.integers(1, 40))
@settings(max_examples=25, deadline=None)
def test_the_columns_fit_and_the_most_important_stay(width: int, name: int) -> None:
    chosen = columns_for([device_view(1, device="d" * name)], width)
    assert sum(column.width + PADDING for column in chosen) <= width
    ranks = sorted(column.rank for column in chosen)
    known = sorted(column.rank for column in columns_for([device_view(1)], None))
    assert ranks == known[: len(ranks)]


def test_mixtures_bring_their_column_before_the_labels() -> None:
    alone, mixed = device_view(1), device_view(2, mixture=(0.2, 0.104, 0.696), kept_experts=(0, 2))
    assert "mixture" not in {column.key for column in columns_for([alone], None)}
    narrow = {column.key: column for column in columns_for([alone, mixed], 77)}
    assert "mixture" in narrow
    assert "labels" not in narrow
    column = narrow["mixture"]
    shown = DisplayState(FakeClock()).shown()
    cells = [column.content(view, shown).plain for view in (mixed, alone)]
    assert cells == ["e2 .70 e0 .20", "·"]
    whole = device_view(3, mixture=(0.001, 0.999))
    assert column.content(whole, shown).plain == "e1 1.0 e0 .00"
    in_turn = [view.device for view in in_order([alone, mixed, whole], column, reverse=False)]
    assert in_turn == [whole.device, mixed.device, alone.device]


def test_a_device_that_is_not_trusted_brings_the_column_of_trust() -> None:
    trusted = device_view(1, trust=0.9)
    suspect = device_view(2, trust=0.75, standing="suspect")
    quarantined = device_view(3, trust=0.25, standing="quarantined")
    assert "trust" not in {column.key for column in columns_for([trusted], None)}
    shown, devices = DisplayState(FakeClock()).shown(), [trusted, suspect, quarantined]
    (column,) = [each for each in columns_for(devices, 97) if each.key == "trust"]
    cells = [column.content(view, shown).plain for view in devices]
    assert cells == ["0.90", "0.75", "quarantined"]
    in_turn = [view.device for view in in_order(devices, column, reverse=False)]
    assert in_turn == [view.device for view in (quarantined, suspect, trusted)]


def test_devices_without_a_value_sort_last_both_ways() -> None:
    column = next(column for column in COLUMNS if column.key == "temperature")
    views = [
        DeviceSnapshot(device="a", temperature=None),
        DeviceSnapshot(device="b", temperature=40.0),
        DeviceSnapshot(device="c", temperature=60.0),
    ]
    assert [view.device for view in in_order(views, column, reverse=False)] == ["b", "c", "a"]
    assert [view.device for view in in_order(views, column, reverse=True)] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("", True),
        ("SON-0", True),
        ("state:train", True),
        ("state:idle", False),
        ("jetson state:tr", True),
        ("jetson hardware:orin", True),
        ("reason:norm", True),
        ("reason:heartbeat", False),
        ("trust:suspect", True),
        ("colour:blue", False),
        ("state:", False),
    ],
)
def test_filter(query: str, fits: bool) -> None:
    device = DeviceSnapshot(
        device="jetson-07", state="train", hardware="Orin Nano", standing="suspect",
        refused_at=ago(5), refused_reason="norm 19.4",
    )  # fmt: skip
    assert matches(device, query) is fits
