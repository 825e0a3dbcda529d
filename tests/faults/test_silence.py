"""What operators see of devices that stall, die, are stopped or refuse their data."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.events.base.coordinator_states import CONNECTION_BROKE, REFUSED_DATA, STOPPED
from edgefed.simulator.local_fleet import device_names
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until
from tests.programs.forked_programs import ForkedProgram, run_module

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

STALLED, KILLED, ENDED, REFUSING = device_names(4)
DEADLINE = 900.0


def recipe() -> Recipe:
    """One round that waits for every device, of which one suffices."""
    return Recipe.model_validate(
        {
            "name": "silence",
            "seed": 3,
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"limit": 400},
            "rounds": {"count": 1, "min_devices": 1, "quorum": 0.1, "deadline": DEADLINE},
            "simulation": {"devices": 4, "holdout": 0.0},
        }
    )


@contextmanager
def shows(home: FleetProcesses, device: str, limit: float) -> Iterator[dict[str, Any]]:
    """Wait until a device is as the block says, for ``limit`` seconds from the block's beginning.

    The block causes the event, and names the view's fields with a check of each.
    """
    wanted: dict[str, Callable[[Any], bool]] = {}
    until = time.monotonic() + limit
    yield wanted
    while True:
        view = home.devices()[device]
        if all(check(view[name]) for name, check in wanted.items()):
            return
        assert time.monotonic() < until, f"{device} is {view}\n{home.logs()}"
        time.sleep(0.1)


def is_(value: object) -> Callable[[Any], bool]:
    return lambda shown: shown == value


def begins(text: str) -> Callable[[Any], bool]:
    return lambda shown: str(shown).startswith(text)


def command(home: FleetProcesses, *words: str) -> str:
    operator = ("--broker", str(home.address), "--fleet", FLEET)
    code, out, err = run_module("edgefed.cli.main", *operator, *words)
    assert (code, err) == (0, "")
    return out


def terminate(home: FleetProcesses, device: str) -> None:
    process = home.processes[device]
    assert isinstance(process, ForkedProgram)
    process.terminate()


def test_each_reason_is_told_apart_in_time(tmp_path: Path) -> None:
    with fleet(tmp_path / "home", recipe()) as home:
        home.wait_for_devices(4)
        data = Path(home._sources[REFUSING].removeprefix("npz:"))
        with shows(home, REFUSING, 5.0) as wanted:  # the agent at work, between runs
            wanted |= {"state": is_("idle"), "reason": begins(REFUSED_DATA)}
            data.write_bytes(b"no samples")
        terminate(home, REFUSING)
        home.processes[REFUSING].wait()
        with shows(home, REFUSING, 5.0) as wanted:  # the agent that is started again
            wanted |= {"state": is_("lost"), "reason": begins(REFUSED_DATA)}
            home.start(REFUSING)
        assert "[data." in home.devices()[REFUSING]["reason"]

        stalled = home.processes[STALLED].pid
        try:
            with shows(home, STALLED, 20.0) as wanted:
                wanted |= {"state": is_("silent")}
                os.kill(stalled, signal.SIGSTOP)
                run = home.begin()
                wait_until(
                    lambda: home.devices()[STALLED]["state"] == "asked", "the task", home.logs
                )
            said = command(home, "status")
            assert f"{STALLED} silent for " in said and "(deadline)" in said
            assert f"{STALLED}  silent  silent for " in command(home, "device", "list")
            with shows(home, KILLED, 5.0) as wanted:
                wanted |= {"state": is_("lost"), "reason": is_(CONNECTION_BROKE)}
                home.processes[KILLED].kill()
            with shows(home, ENDED, 2.0) as wanted:
                wanted |= {"state": is_("lost"), "reason": is_(STOPPED)}
                terminate(home, ENDED)
            listed = command(home, "device", "list")
            assert all(why in listed for why in (CONNECTION_BROKE, STOPPED, REFUSED_DATA))
        finally:
            os.kill(stalled, signal.SIGCONT)
        assert home.finish(run)["history"][0]["replies"] == 3
        assert home.devices()[STALLED]["state"] == "done"
        ends = home.events(run, "device", device=ENDED, state="lost")
        assert [event["reason"] for event in ends] == [STOPPED], "it is told once"
        told = [event["device"] for event in home.events(run, "device") if event.get("heard")]
        assert told == [STALLED], "it was silent once, and nobody else was"
