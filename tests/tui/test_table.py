"""The device table keeps its cursor, writes only what changed, and holds a large fleet."""

from __future__ import annotations

from datetime import timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot
from textual.widgets import Input

from edgefed.events.snapshot import DeviceView
from edgefed.tui.app import DRAW_EVERY, Dashboard
from edgefed.tui.columns import COLUMNS, PADDING, columns_for, in_order
from edgefed.tui.device_table import DeviceTable
from edgefed.tui.display_state import DisplayState
from edgefed.tui.filtering import matches
from tests.tui.driving import drive, notices, press, screen_text, settle, until
from tests.tui.samples import SHARES, FakeClock, dashboard, device_view, feed, fine, snapshot


def table_of(pilot: Pilot[None]) -> DeviceTable:
    return pilot.app.screen.query_one(DeviceTable)


def ids(pilot: Pilot[None]) -> list[str | None]:
    return [row.key.value for row in table_of(pilot).ordered_rows]


def test_an_update_keeps_the_cursor_on_its_device_and_writes_only_changed_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    before = [device_view(index, seen_at="") for index in range(1, 9)]  # no cell with an age
    after = [*before[:2], before[2].model_copy(update={"fraction": 0.5}), *before[3:]]
    after.append(device_view(0, device="a-new-one", seen_at=""))
    source = feed(clock, *(fine(snapshot(devices=0).model_copy(update={"devices": tuple(views)}))
                           for views in (before, after)))  # fmt: skip
    app = Dashboard(source, None, clock, zone=timezone.utc, screen="devices")
    written: list[tuple[object, object]] = []
    update_cell = DeviceTable.update_cell

    def recording(
        self: DeviceTable, row: str, column: str, *values: object, **more: object
    ) -> None:
        written.append((row, column))
        update_cell(self, row, column, *values, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(DeviceTable, "update_cell", recording)

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "down", "down", "down")
        assert table_of(pilot).selected == "jetson-04"
        clock.seconds += 0.5
        source.deliver()
        await settle(pilot)
        # The app's timer may have drawn the old devices a moment ago; then the next tick draws.
        clock.seconds += DRAW_EVERY
        await until(pilot, lambda: ids(pilot)[0] == "a-new-one")
        assert table_of(pilot).selected == "jetson-04"
        assert table_of(pilot).cursor_row == 4
        assert written == [("jetson-03", "training")]

    drive(app, scenario)


def test_two_hundred_devices() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert table_of(pilot).row_count == 200
        await press(pilot, "G")
        assert table_of(pilot).selected == "jetson-99"
        assert "jetson-99" in screen_text(pilot)
        await press(pilot, "w", "o", "O", "1")
        assert "Attention 52" in screen_text(pilot)

    drive(dashboard(fine(snapshot(devices=200)), screen="devices"), scenario)


def test_a_lost_device_leaves_the_table_with_the_snapshot() -> None:
    clock = FakeClock()
    source = feed(clock, fine(snapshot(devices=5)), fine(snapshot(devices=3)))
    app = Dashboard(source, None, clock, zone=timezone.utc, screen="devices")

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "G")
        clock.seconds += 0.5
        source.deliver()
        await settle(pilot)
        assert ids(pilot) == ["jetson-01", "jetson-02", "jetson-03"]

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


def test_no_match_says_so() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "slash", *"nano p.")
        assert "No device matches 'nano p.'. esc clears the filter." in screen_text(pilot)

    drive(dashboard(screen="devices"), scenario)


def test_sort_and_reverse() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "O")
        assert ids(pilot)[0] == "jetson-20"
        await press(pilot, "o")
        assert ids(pilot)[0] == "jetson-06"  # the first idle one
        assert "sort: state ▲" in screen_text(pilot)

    drive(dashboard(screen="devices"), scenario)


def test_copy_the_id_under_the_cursor() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "j", "c")
        assert pilot.app.clipboard == "jetson-02"
        assert [text for _, text in notices(pilot)] == ["Copied jetson-02"]

    drive(dashboard(screen="devices"), scenario)


def test_wide_shows_every_column() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "rejected" not in table_of(pilot).columns
        await press(pilot, "w")
        assert "rejected" in table_of(pilot).columns
        await press(pilot, "w")
        assert "rejected" not in table_of(pilot).columns

    drive(dashboard(screen="devices"), scenario, size=(80, 24))


def test_a_battery_brings_its_column() -> None:
    without, charged = [device_view(1)], [device_view(1, battery=41.0)]
    assert "battery" not in [column.key for column in columns_for(without, None)]
    assert "battery" in [column.key for column in columns_for(charged, None)]


@given(width=st.integers(20, 200), name=st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_the_columns_fit_and_the_most_important_stay(width: int, name: int) -> None:
    chosen = columns_for([device_view(1, device="d" * name)], width)
    assert sum(column.width + PADDING for column in chosen) <= width
    ranks = sorted(column.rank for column in chosen)
    hidden = ("battery", "mixture", "trust")
    known = sorted(column.rank for column in COLUMNS if column.key not in hidden)
    assert ranks == known[: len(ranks)]


def test_shared_averages_bring_their_columns() -> None:
    alone, sharing = device_view(1), device_view(2, **SHARES)
    of_averages = {"means", "group", "shared"}
    assert not of_averages & {column.key for column in columns_for([alone], None)}
    assert of_averages <= {column.key for column in columns_for([alone, sharing], None)}
    narrow = [column.key for column in columns_for([alone, sharing], 77)]
    assert narrow == [column.key for column in columns_for([alone], 77)]


def test_supplements_bring_their_columns() -> None:
    alone = device_view(1)
    of_bounties = {"bounties", "mixes", "noise"}
    assert not of_bounties & {column.key for column in columns_for([alone], None)}
    for field in ("open_bounties", "received_mixes", "noise_samples"):
        having = device_view(2, **{field: 3})
        assert of_bounties <= {column.key for column in columns_for([alone, having], None)}
        narrow = [column.key for column in columns_for([alone, having], 77)]
        assert narrow == [column.key for column in columns_for([alone], 77)]


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
    (column,) = [each for each in columns_for(devices, 77) if each.key == "trust"]
    cells = [column.content(view, shown).plain for view in devices]
    assert cells == ["0.90", "0.75", "quarantined"]
    in_turn = [view.device for view in in_order(devices, column, reverse=False)]
    assert in_turn == [view.device for view in (quarantined, suspect, trusted)]


def test_devices_without_a_value_sort_last_both_ways() -> None:
    column = next(column for column in COLUMNS if column.key == "temperature")
    views = [
        DeviceView(device="a", temperature=None),
        DeviceView(device="b", temperature=40.0),
        DeviceView(device="c", temperature=60.0),
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
        ("colour:blue", False),
        ("state:", False),
    ],
)
def test_filter(query: str, fits: bool) -> None:
    device = DeviceView(device="jetson-07", state="train", hardware="Orin Nano")
    assert matches(device, query) is fits
