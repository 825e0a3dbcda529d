"""Virtual time: how long tasks take, absences, and the speeds that are drawn or measured."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.speeds_section import SpeedsSection
from edgefed.errors import DataError
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from edgefed.simulator.virtual_time import Speed, VirtualTime

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def time_of(devices: int = 1, **keys: float | str) -> VirtualTime:
    section = SpeedsSection.model_validate({"seconds_per_sample": 0.5, **keys})
    return VirtualTime(section, tuple(f"d{number}" for number in range(devices)), 1, BEGAN)


def test_a_task_takes_its_download_training_and_upload() -> None:
    assert Speed(0.5, uplink=10.0, downlink=100.0).seconds(8, down=200, up=30) == 2 + 4 + 3
    assert Speed(0.5).seconds(8, down=200, up=30) == 4
    assert time_of(uplink=10.0).finish("d0", 3.0, 8, down=99, up=20) == 3 + 4 + 2


def test_the_clock_moves_forwards_only() -> None:
    clock = time_of().clock
    clock.advance(5.0)
    clock.advance(2.0)
    assert clock.monotonic() == 5.0
    assert (clock.now() - BEGAN).total_seconds() == 5.0


def test_speeds_are_log_normal_around_the_median() -> None:
    many = time_of(devices=2000, spread=0.7)
    took = np.log([many.finish(f"d{number}", 0.0, 1, 0, 0) for number in range(2000)])
    assert np.median(took) == pytest.approx(np.log(0.5), abs=0.05)
    assert took.std() == pytest.approx(0.7, abs=0.05)
    again = time_of(devices=2, spread=0.7)
    assert again.finish("d1", 0.0, 1, 0, 0) == many.finish("d1", 0.0, 1, 0, 0)


def test_measured_devices_have_their_speed_and_others_the_medians(tmp_path: Path) -> None:
    file = tmp_path / "speeds.csv"
    file.write_text("device,seconds_per_sample,uplink\nd1,2.0,10\n")
    measured = time_of(devices=2, file=str(file))
    assert measured.finish("d1", 0.0, 3, 0, 50) == 6 + 5
    assert measured.finish("d0", 0.0, 3, 0, 50) == 1.5


def test_an_empty_cell_is_unknown_and_takes_the_value_of_the_table(tmp_path: Path) -> None:
    file = tmp_path / "speeds.csv"
    file.write_text(
        "device,seconds_per_sample,uplink,downlink\nd0,2.0,,\nd1, ,0,\nd2,3.0\nd3,,5,40\n"
    )
    measured = time_of(devices=5, file=str(file), uplink=10.0, downlink=100.0)
    took = [measured.finish(f"d{number}", 0.0, 4, 200, 50) for number in range(5)]
    assert took == [2 + 8 + 5, 2 + 2, 2 + 12 + 5, 5 + 2 + 10, 2 + 2 + 5]
    drawn = time_of(devices=1, uplink=10.0, downlink=100.0, spread=1.0)
    file.write_text("device,seconds_per_sample\nd0,\n")
    same = time_of(devices=1, uplink=10.0, downlink=100.0, spread=1.0, file=str(file))
    assert same.finish("d0", 0.0, 4, 200, 50) == drawn.finish("d0", 0.0, 4, 200, 50)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name,speed\nd0,1\n",
        "device,uplink\nd0,1\n",
        "device,seconds_per_sample\nd0,fast\n",
        "device,seconds_per_sample\nd0,-1\n",
        "device,seconds_per_sample,uplink\nd0,1,nan\n",
        "device,seconds_per_sample,uplink\nd0,1,inf\n",
    ],
)
def test_a_file_of_speeds_that_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "speeds.csv"
    if text:
        file.write_text(text)
    with pytest.raises(DataError, match=r"speeds\.csv cannot be read") as caught:
        time_of(file=str(file))
    assert caught.value.code == "speeds.file"


def test_a_file_of_other_devices_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "speeds.csv"
    file.write_text("device,seconds_per_sample\nboard-1,1\nd9,1\n")
    with pytest.raises(DataError, match="other devices, such as board-1") as caught:
        time_of(devices=9, file=str(file))
    assert caught.value.code == "speeds.file"
    assert time_of(devices=10, file=str(file)).finish("d9", 0.0, 1, 0, 0) == 1


def test_devices_are_away_for_the_share_of_the_time() -> None:
    absent = time_of(absent=0.25, absence=20.0)
    there = 0
    for second in range(20_000):
        absent.clock.advance(float(second))
        there += absent.is_present("d0")
    assert there / 20_000 == pytest.approx(0.75, abs=0.04)
    assert absent.finish("d0", 0.0, 2 * 15_000, 0, 0) == pytest.approx(20_000, rel=0.06)


@given(st.floats(0, 5000), st.floats(0, 500), st.floats(0, 500))
def test_work_stands_still_while_a_device_is_away(begun: float, one: float, two: float) -> None:
    """A task ends while its device is there, and two halves take as long as the whole."""
    whole = time_of(absent=0.5, absence=30.0)
    end = whole.finish("d0", begun, 2 * (one + two), 0, 0)
    middle = whole.finish("d0", begun, 2 * one, 0, 0)
    assert end == pytest.approx(whole.finish("d0", middle, 2 * two, 0, 0), abs=1e-6)
    assert end >= begun + one + two - 1e-6
    there = time_of().finish("d0", begun, 2 * (one + two), 0, 0)
    assert there == pytest.approx(begun + one + two)


def recipe(**rounds: object) -> Recipe:
    tables = {
        "model": {"name": "mlp", "hidden": []},
        "data": {"partition": "iid", "limit": 400},
        "rounds": {"count": 2, **rounds},
        "simulation": {"devices": 6, "workers": 1},
        "speeds": {"seconds_per_sample": 0.1, "spread": 1.0},
    }
    return Recipe.model_validate(tables)


def seconds(made: Recipe, folder: Path) -> float:
    ended = Simulation(made, folder, SystemClock()).run().record
    assert ended.status == "finished", ended.reason
    return ended.seconds


def test_over_selected_rounds_wait_for_the_first_answers_only(tmp_path: Path) -> None:
    """With 4 of 6 devices a round ends at the fourth answer, and not at the slowest one."""
    everybody = seconds(recipe(), tmp_path / "all")
    chosen = seconds(recipe(cohort=4, over_selection=0.5), tmp_path / "first")
    assert chosen < everybody


def test_a_deadline_passes_in_virtual_time(tmp_path: Path) -> None:
    assert seconds(recipe(deadline=8.0, quorum=0.1), tmp_path / "run") == 16.0


def test_the_seconds_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    made = recipe(mode="buffered", buffer=2, count=6)
    more = made.model_copy(update={"simulation": made.simulation.model_copy(update={"workers": 2})})
    one, two = (
        Simulation(each, tmp_path / name, SystemClock()).run().record
        for each, name in ((made, "one"), (more, "two"))
    )
    assert (one.seconds, one.weights_digest) == (two.seconds, two.weights_digest)
