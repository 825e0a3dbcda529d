"""The dashboard in a real terminal, over a real fleet: what an operator does in one session."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port
from edgefed.cli.programs.processes import running, wait_for_coordinator
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from edgefed.config.values.toml import parse_toml
from edgefed.data.devices.shard_files import write_shard
from tests.faults.fleet_processes import dealt
from tests.programs.forked_fleet import ForkedProcesses
from tests.tui.terminals.tmux import Terminal, needs_tmux, terminal

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow, needs_tmux]

FLEET = "plant-a"
NIGHT = """
name = "night"
seed = 3
model = { name = "mlp", hidden = [16] }
data = { name = "digits" }
training = { epochs = 2, batch_size = 16 }
rounds = { count = 500, min_devices = 4, quorum = 1.0, deadline = 300 }
simulation = { devices = 4 }
"""
RECIPE = Recipe.model_validate(parse_toml(NIGHT, "night.toml").values)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ForkedProcesses]:
    """Mosquitto, a coordinator and four agents, without a run."""
    processes = ForkedProcesses(Address(LOOPBACK, free_port()), FLEET, tmp_path)
    with running(processes):
        processes.start_broker("mosquitto")
        processes.start_coordinator()
        for device, shard in dealt(RECIPE).items():
            path = tmp_path / f"{device}.npz"
            write_shard(path, shard)
            processes.start_agent(device, f"npz:{path}")
        wait_for_coordinator(processes)
        yield processes


def edgefed(*words: str) -> list[str]:
    return [sys.executable, "-m", "edgefed.cli.main", *words]


def round_of(screen: str) -> int:
    """Return the round that the screen tells."""
    found = re.search(r"Round (\d+)", screen)
    return int(found[1]) if found else 0


def run_of(screen: str) -> str:
    """Return the id of the run in the header."""
    found = re.search(r"r-\d{4}-\w{4}", screen)
    assert found is not None
    return found[0]


def attention(screen: str) -> str:
    """Return the lines of the screen from the heading of Attention on."""
    return screen.partition("Attention")[2]


def test_a_session(fleet: ForkedProcesses, tmp_path: Path) -> None:
    """A run is paused, stepped, resumed, loses coordinator and device, is aborted; then again."""
    work, replay = tmp_path / "work", tmp_path / "replay"
    work.mkdir()
    replay.mkdir()
    (work / "night.toml").write_text(NIGHT)
    environment = {"EDGEFED_BROKER": str(fleet.address), "EDGEFED_FLEET": FLEET}
    state = ("--no-config", "--state", str(tmp_path / "state"))
    with terminal(work, edgefed(*state, "ui"), environment) as shown:
        shown.shows("No run yet")
        shown.press("n")
        shown.shows("night.toml")
        shown.press("Enter")
        shown.shows("can be started", "run start night.toml")
        shown.press("C-j")
        run = run_of(shown.shows("● RUNNING"))

        shown.press("p")
        before = round_of(shown.shows("◌ PAUSED"))
        shown.press(".")
        shown.until(lambda text: round_of(text) > before and "◌ PAUSED" in text)
        device = open_first_device(shown, fleet.agents)
        shown.press("q", "p")
        shown.until(lambda text: round_of(text) > before + 1 and "● RUNNING" in text)
        outlive_the_coordinator(shown, fleet, run)

        os.kill(fleet.agents[device].pid, signal.SIGKILL)
        shown.until(lambda text: device in attention(text) and "lost" in attention(text))
        shown.resize(80, 24)
        shown.until(lambda text: "✗" in text and device in text)
        shown.resize(120, 36)

        shown.press("A")
        shown.shows("to confirm:")
        shown.write(run)
        shown.press("Enter")
        last = round_of(shown.shows("■ ABORTED"))
        shown.press("C-q")
        assert shown.ended() == 0

    (events,) = tmp_path.glob(f"coordinator/**/{run}/events.jsonl")
    with terminal(replay, edgefed(*state, "ui", "--replay", str(events)), {}) as shown:
        shown.press("p")
        shown.shows("REPLAY", "paused")
        shown.press("(", ".")
        shown.until(lambda text: round_of(text) == 1)
        shown.press(".")
        shown.until(lambda text: round_of(text) == 2)
        shown.press(",")
        shown.until(lambda text: round_of(text) == 1)
        open_first_device(shown, fleet.agents)
        shown.press("q", ")")
        ended = shown.shows("■ ABORTED", "over")
        assert round_of(ended) == last
        assert device in attention(ended)
        shown.press("C-q")
        assert shown.ended() == 0


def open_first_device(shown: Terminal, devices: Collection[str]) -> str:
    """Open a device, go back to the table, and return its id."""
    shown.press("2")
    shown.shows("Devices 4")
    shown.press("Enter")
    opened = shown.shows("samples", "Hardware", "accepted")
    shown.press("q")
    shown.shows("Devices 4")
    return next(name for name in devices if name in opened)


def outlive_the_coordinator(shown: Terminal, fleet: ForkedProcesses, run: str) -> None:
    """Rounds and sums are there again, and no screen says that there is no run."""
    before = round_of(shown.screen())
    seen: list[str] = []
    assert fleet.coordinator is not None
    os.kill(fleet.coordinator.pid, signal.SIGKILL)
    shown.shows("coord ✗")
    fleet.start_coordinator()

    def back(text: str) -> bool:
        seen.append(text)
        return "coord ✓" in text and round_of(text) > before

    assert run in shown.until(back)
    assert not any("No run yet" in text for text in seen)
    axis = re.search(r"^│ +1 [\d ]*?(\d+) +│", shown.screen(), re.MULTILINE)
    assert axis is not None
    assert int(axis[1]) >= before - 1
