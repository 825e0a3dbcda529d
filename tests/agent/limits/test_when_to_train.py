"""A fleet of real processes whose devices pause within an epoch: the model is the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.process.clock import moment_of
from edgefed.simulator.local_fleet import device_names
from tests.cli.commands import edgefed
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until
from tests.programs.sensed_agent import Board

pytestmark = pytest.mark.mosquitto

DEVICES = FIRST, SECOND = device_names(2)
OPEN, SHUT = "2026-11-25T23:00", "2026-11-26T07:30"
HEAT = "sys/class/thermal/thermal_zone0/temp"
RAIL = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1"


def recipe(name: str, **rounds: Any) -> Recipe:
    """A round of one epoch with many small steps."""
    return Recipe.model_validate(
        {
            "name": name,
            "model": {"name": "mlp", "hidden": [40]},
            "data": {"limit": 600},
            "training": {"epochs": 1, "batch_size": 1},
            "rounds": {"count": 1, "deadline": 300, "quorum": 1.0, "min_devices": 2, **rounds},
            "evaluation": {"every": 0},
            "simulation": {"devices": 2, "holdout": 0.0},
        }
    )


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Board]:
    """Boards of which the first one's owner sets hours, and the second one's a temperature."""
    made = {name: Board(tmp_path_factory.mktemp(name)) for name in DEVICES}
    made[FIRST].set_time(OPEN)
    for file, text in (("in1_label", "VDD_IN"), ("in1_input", "5000"), ("curr1_input", "2000")):
        made[FIRST].write(f"{RAIL}/{file}", text)
    made[SECOND].write(HEAT, "50000")
    return made


@pytest.fixture(scope="module")
def home(
    tmp_path_factory: pytest.TempPathFactory, boards: dict[str, Board]
) -> Iterator[FleetProcesses]:
    limits = {
        FIRST: {"WHEN__HOURS": "22:00-06:00"},
        SECOND: {"WHEN__HIGHEST_TEMPERATURE": "70", "WHEN__NICE": "5"},
    }
    folder = tmp_path_factory.mktemp("fleet")
    with fleet(
        folder,
        recipe("undisturbed"),
        agent="tests.programs.sensed_agent",
        settings=limits,
        variables={name: board.variables for name, board in boards.items()},
    ) as made:
        made.wait_for_devices(2)
        yield made


@pytest.fixture(scope="module")
def undisturbed(home: FleetProcesses) -> str:
    """The digest of the model of a run in which nothing pauses."""
    return str(home.finish(home.begin())["weights_digest"])


def wait_for(home: FleetProcesses, device: str, **wanted: Any) -> dict[str, Any]:
    """Wait until a device has these fields, and return all."""

    def there() -> bool:
        return bool(wanted.items() <= home.devices()[device].items())

    wait_until(there, f"{device}: {wanted}", home.logs)
    return home.devices()[device]


def wait_in_the_middle(home: FleetProcesses, device: str) -> None:
    wait_until(lambda: 0 < home.devices()[device]["fraction"] < 0.8, f"{device} at work", home.logs)


def test_windows_that_close_in_mid_epoch_change_no_bit(
    home: FleetProcesses, boards: dict[str, Board], undisturbed: str
) -> None:
    for board in boards.values():
        board.slow_down()
    run = home.begin(recipe("disturbed"))
    wait_in_the_middle(home, FIRST)
    boards[FIRST].set_time(SHUT)
    boards[SECOND].write(HEAT, "71500")
    shut = wait_for(home, FIRST, state="paused")
    assert 0 < shut["fraction"] < 1
    assert shut["reason"] == "outside its hours"
    assert shut["resumes_at"]
    hot = wait_for(home, SECOND, state="paused")
    assert (hot["reason"], hot["resumes_at"]) == ("72 °C (goes on at 65 °C)", "")

    for board in boards.values():
        board.slow_down(False)
    (training,) = psutil.Process(home.processes[SECOND].pid).children()
    training.kill()  # the next process begins the task again, and pauses too
    home.kill(FIRST)  # a pause outlasts the agent
    home.start(FIRST)
    again = wait_for(home, FIRST, state="paused")
    assert again["reason"] == "outside its hours"
    log = home.folder / f"{SECOND}.log"
    wait_until(lambda: "is begun again" in log.read_text(), "another attempt", home.logs)
    assert home.devices()[SECOND]["state"] == "paused"
    boards[SECOND].write(HEAT, "66000")
    boards[SECOND].write(HEAT, "64000")
    wait_for(home, SECOND, state="done")
    assert home.devices()[FIRST]["state"] == "paused"
    boards[FIRST].set_time(OPEN)
    assert home.finish(run)["weights_digest"] == undisturbed

    replies = {each["device"]: each for each in home.events(run, "reply")}
    assert replies[FIRST]["joules"] > 0
    assert "joules" not in replies[SECOND]
    (row,) = home.record(run)["history"]
    assert row["joules"] == replies[FIRST]["joules"]
    view = home.devices()[FIRST]
    assert view["joules"] == row["joules"] and view["resumes_at"] == ""


def test_a_device_that_may_not_train_is_not_asked(
    home: FleetProcesses, boards: dict[str, Board], undisturbed: str
) -> None:
    del undisturbed
    boards[FIRST].set_time(SHUT)
    wait_for(home, FIRST, state="paused")
    to = ("--broker", str(home.address), "--fleet", FLEET)
    until = home.devices()[FIRST]["resumes_at"]
    why = f"outside its hours, until {moment_of(until):%a %H:%M} UTC"
    assert why in edgefed(*to, "device", "list").out
    assert f"1 of 2; {FIRST} is paused: {why}" in " ".join(edgefed(*to, "status").out.split())
    run = home.begin(recipe("one", min_devices=1))
    assert home.finish(run)["status"] == "finished"
    assert [each["device"] for each in home.events(run, "reply")] == [SECOND]

    boards[SECOND].write(HEAT, "90000")
    wait_for(home, SECOND, state="paused")
    record = home.finish(home.begin(recipe("nobody", min_devices=1, join_timeout=1)))
    assert record["status"] == "failed"
    assert record["reason"].startswith(f"No device is there with data after 1 s. Paused: {FIRST} (")
    assert f"{SECOND} (90 °C (goes on at 65 °C))." in record["reason"]
