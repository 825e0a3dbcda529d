"""Screen 3 names the class that is never right, and tells how accuracy spreads over devices."""

from __future__ import annotations

from collections.abc import Sequence

from textual.pilot import Pilot

from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from tests.tui.driving import drive, heading, inside, press, screen_text, words
from tests.tui.folded import RUN, evaluated, folded, happened, run_of
from tests.tui.recorded_fleet import recorded
from tests.tui.samples import RecordingControl, dashboard, fine

SMALL = (80, 24)
PETS = ("dog", "cat", "emu")


def counted(counts: Sequence[Sequence[int]], place: str = "coordinator") -> Event:
    devices = 0 if place == "coordinator" else 7
    return happened(
        "confusion", run=RUN, place=place, round=4, counts=counts, devices=devices, tested=devices
    )


def pets(cats: Sequence[int] = (6, 0, 2)) -> Snapshot:
    return folded(run_of(*PETS), counted([[9, 1, 0], cats, [0, 0, 5]]))


def test_without_such_a_class_the_worst_one_is_in_the_heading() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert heading(pilot, "#class-table") == "Classes  worst: cat 0.250"
        assert not pilot.app.screen.query_one("#class-table").has_class("-alarm")

    drive(dashboard(fine(pets((6, 2, 0))), screen="classes"), scenario)


def test_several_classes_that_are_never_right_are_counted() -> None:
    names = tuple("abcdef")
    wrong = [[0] * 5 + [number] for number in range(1, 6)]
    update = fine(folded(run_of(*names), counted([*wrong, [0] * 5 + [4]])))

    async def scenario(pilot: Pilot[None]) -> None:
        assert heading(pilot, "#class-table") == "Classes  never right: e, d, c and 2 more"

    drive(dashboard(update, screen="classes"), scenario)


def test_a_row_has_recall_and_the_class_that_it_is_mistaken_for() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert words(pilot, "#class-table")[1:4] == [
            ["cat", "0.00", "dog", "75", "%"],
            ["dog", "0.90", "cat", "10", "%"],
            ["emu", "1.00"],
        ]
        await press(pilot, "o")
        assert [row[0] for row in words(pilot, "#class-table")[1:4]] == ["dog", "cat", "emu"]
        await press(pilot, "o")
        assert [row[0] for row in words(pilot, "#class-table")[1:4]] == ["cat", "dog", "emu"]

    drive(dashboard(fine(pets()), screen="classes"), scenario, size=SMALL)


def test_nearly_all_is_not_a_hundred_percent() -> None:
    update = fine(folded(run_of("a", "b"), counted([[999, 1], [0, 1]])))

    async def scenario(pilot: Pilot[None]) -> None:
        assert words(pilot, "#confusion")[1] == ["0", "a", "99", "0"]

    drive(dashboard(update, screen="classes"), scenario)


def test_of_very_many_classes_only_the_sums_are_known() -> None:
    sums = [[2] * 300, [2] * 300, [2] * 299 + [0]]
    update = fine(folded(run_of(), counted(sums)))

    async def scenario(pilot: Pilot[None]) -> None:
        assert heading(pilot, "#class-table") == "Classes  never right: 299"
        assert "Of more than 200 classes" in screen_text(pilot)
        await press(pilot, "G")
        assert "of 300 classes" in screen_text(pilot)

    drive(dashboard(update, screen="classes"), scenario)


def test_the_test_of_the_devices_is_a_key_away() -> None:
    both = (counted([[9, 1], [0, 5]]), counted([[1, 9], [0, 5]], "devices"))
    update = fine(folded(run_of("dog", "cat"), *both))

    async def scenario(pilot: Pilot[None]) -> None:
        assert "15 held-out samples of the coordinator" in screen_text(pilot)
        await press(pilot, "t")
        assert heading(pilot, "#class-table") == "Classes  worst: dog 0.100"
        assert "15 held-out samples of 7 devices" in screen_text(pilot)
        await press(pilot, "t")
        assert "15 held-out samples of the coordinator" in screen_text(pilot)

    drive(dashboard(update, screen="classes"), scenario)


def test_the_test_of_the_devices_is_shown_where_there_is_no_other() -> None:
    update = fine(folded(run_of("dog", "cat"), counted([[1, 9], [0, 5]], "devices")))

    async def scenario(pilot: Pilot[None]) -> None:
        assert "15 held-out samples of 7 devices" in screen_text(pilot)
        assert "t Test" not in screen_text(pilot)

    drive(dashboard(update, screen="classes"), scenario)


def test_the_worst_device_and_the_spread_are_told() -> None:
    answers = [
        evaluated("b", 0.4),
        evaluated("a", 0.8),
        evaluated("c", 0.9),
        evaluated("old", 0.1, 3),
    ]
    update = fine(folded(run_of(), *answers))

    async def scenario(pilot: Pilot[None]) -> None:
        title = "Accuracy by device  worst: b 0.400  3 devices in round 4"
        assert heading(pilot, "#device-tests") == title
        spread, *devices = inside(pilot, "#device-tests")
        told = "least 0.400  median 0.800  most 0.900  standard deviation 0.216"
        assert spread.rstrip() == told
        assert devices[0].split()[::3] == ["b", "a", "c"]
        assert devices[0].split()[2::3] == ["0.400", "0.800", "0.900"]
        assert "old" not in screen_text(pilot)

    drive(dashboard(update, screen="classes"), scenario, size=SMALL)


def test_many_devices_scroll_once_their_pane_has_the_focus() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "1 to 12 of 36 devices  tab selects" in screen_text(pilot)
        second = words(pilot, "#device-tests")[2]
        await press(pilot, "tab", "tab", "j")
        assert "3 to 14 of 36 devices  j k scroll" in screen_text(pilot)
        assert words(pilot, "#device-tests")[1] == second
        await press(pilot, "pagedown", "pagedown", "pagedown")
        assert "25 to 36 of 36 devices" in screen_text(pilot)
        await press(pilot, "k")
        assert "23 to 34 of 36 devices" in screen_text(pilot)
        await press(pilot, "g", "k")
        assert "1 to 12 of 36 devices" in screen_text(pilot)

    app = dashboard(recorded("fedprox"), control=RecordingControl(), screen="classes")
    drive(app, scenario, size=SMALL)


def test_names_cannot_break_the_screen() -> None:
    names = ("\x1b[31mred", "two\nlines")
    update = fine(folded(run_of(*names), counted([[0, 3], [0, 5]]), evaluated("d\n\x07", 0.5)))

    async def scenario(pilot: Pilot[None]) -> None:
        assert heading(pilot, "#class-table") == "Classes  never right: ?[31mred"
        assert not {char for char in screen_text(pilot) if ord(char) < 32} - {"\n"}
        assert "two?lines" in screen_text(pilot)

    drive(dashboard(update, screen="classes"), scenario)


def test_another_run_begins_without_tests() -> None:
    before = folded(
        happened("device", device="a", state="idle"), run_of(*PETS), evaluated("a", 0.4)
    )
    assert before.devices[0].accuracy == 0.4
    after = folded(
        happened("device", device="a", state="idle"), run_of(*PETS), evaluated("a", 0.4),
        happened("run", run="r-2", status="running"),
    )  # fmt: skip
    assert after.tests == ()
    assert (after.devices[0].accuracy, after.devices[0].accuracy_round) == (None, 0)
