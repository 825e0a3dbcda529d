"""Shells complete ids of runs and devices: at once, silently, with or without a coordinator."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from broker.address import LOOPBACK, free_port
from edgefed.algorithms.composed.registry import built_in
from edgefed.cli.common import completion
from edgefed.cli.common.completion import _safe, algorithm_names
from edgefed.cli.main import app
from tests.cli.commands import only
from tests.cli.conftest import FLEET, SmallFleet
from tests.cli.test_help_width import commands
from tests.processes import clean_environment

EDGEFED = Path(sys.executable).with_name("edgefed")
BASH = shutil.which("bash")
NOWHERE = f"mqtt://{LOOPBACK}:{free_port()}"


def completed(words: str, state: Path, broker: str = NOWHERE) -> list[str]:
    """Return what a shell is told about the last of some words."""
    environment = asked(words, state, broker=broker)
    done = subprocess.run([EDGEFED], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip().splitlines()


def completed_here(environment: dict[str, str]) -> list[str]:
    """Return the same of a program that runs in this process."""
    with only(environment):
        told = CliRunner().invoke(app, prog_name="edgefed")
    assert told.stderr == ""
    return told.stdout.split()


def asked(
    words: str, state: Path, shell: str = "bash", broker: str = NOWHERE, fleet: str = "default"
) -> dict[str, str]:
    """Return the environment in which a shell starts the program."""
    parts = words.split(" ")
    return {
        **clean_environment(),
        "EDGEFED_STATE": str(state),
        "EDGEFED_BROKER": broker,
        "EDGEFED_FLEET": fleet,
        "_EDGEFED_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(parts) - 1),
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with the events of one simulated run."""
    folder = tmp_path / "simulations" / "runs" / "r-0001-abcd"
    folder.mkdir(parents=True)
    events = [
        {"time": "", "kind": "roster", "devices": ["cam-1", "cam-2"]},
        {"time": "", "kind": "device", "device": "late-3", "state": "train"},
        {"time": "", "kind": "run", "run": folder.name, "class_names": ["cat", "T-shirt/top"]},
    ]
    lines = (json.dumps(event) for event in events)
    (folder / "events.jsonl").write_text("\n".join(lines))
    return tmp_path


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the coordinator of a busy machine more time than a shell does."""
    monkeypatch.setattr(completion, "PATIENCE", 60.0)


@pytest.mark.mosquitto
@pytest.mark.usefixtures("patient")
def test_ids_come_from_the_running_coordinator(fleet: SmallFleet, tmp_path: Path) -> None:
    run = fleet.begin("--paused")
    try:
        for shell in ("bash", "zsh", "fish"):
            shown = " ".join(of_fleet(fleet, "edgefed device show ", tmp_path, shell))
            assert "device-00" in shown and "device-01" in shown
        assert run in " ".join(of_fleet(fleet, "edgefed run watch r-", tmp_path))
    finally:  # another run could not begin before
        fleet("run", "abort", run, "--yes")


def of_fleet(fleet: SmallFleet, words: str, state: Path, shell: str = "bash") -> list[str]:
    """Return what a shell is told of a fleet."""
    return completed_here(asked(words, state, shell, fleet.url, FLEET))


@pytest.mark.mosquitto
@pytest.mark.usefixtures("patient")
def test_typed_options_choose_the_coordinator(fleet: SmallFleet, tmp_path: Path) -> None:
    words = f"edgefed --broker {fleet.url} device show --fleet {FLEET} device-00"
    assert completed_here(asked(words, tmp_path)) == ["device-00"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("edgefed run show ", ["r-0001-abcd"]),
        ("edgefed run show x", []),
        ("edgefed predict r", ["r-0001-abcd"]),
        ("edgefed device show ", ["cam-1", "cam-2", "late-3"]),
        ("edgefed label skew --device cam", ["cam-1", "cam-2"]),
        ("edgefed label open --label ", ["cat", "1"]),
        ("edgefed run start --algorithm fedp", ["fedprox"]),
        ("edgefed algo show fedm", ["fedma", "fedmix", "fedmoe"]),
        ("edgefed run start rec", []),  # the shell then completes files
        ("edgefed run sh", ["show"]),
        ("edgefed device approve ", []),
    ],
)
def test_without_a_coordinator_names_come_from_the_state_folder(
    words: str, expected: list[str], state: Path
) -> None:
    assert completed_here(asked(words, state)) == expected


def test_a_broker_that_accepts_and_says_nothing_costs_a_second(state: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        broker = f"mqtt://{LOOPBACK}:{server.getsockname()[1]}"
        began = time.monotonic()
        assert completed("edgefed run show ", state, broker=broker) == ["r-0001-abcd"]
        assert time.monotonic() - began < 5.0


def test_broken_settings_complete_nothing_and_say_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("fleet = [")
    assert completed(f"edgefed --config {broken} run show ", tmp_path) == []


IDS = ("run", "runs", "device", "devices", "label", "algorithm")
NOT_KNOWN = {("edgefed", "device", "invite")}
"""Commands whose device has still to get its name."""


def is_id(parameter: Any) -> bool:
    """Whether a parameter takes an id, and not a number of devices or a processor."""
    is_number = parameter.type_descriptor.annotation is int
    return parameter.name in IDS and not is_number and "cuda" not in (parameter.help or "")


@pytest.mark.parametrize(
    ("words", "command"),
    [each for each in commands(get_command(app), ("edgefed",)) if each[0] not in NOT_KNOWN],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_every_id_of_a_command_is_completed(words: tuple[str, ...], command: Any) -> None:
    takes_ids = [each for each in command.params if is_id(each)]
    lacking = [each.name for each in takes_ids if each._custom_shell_complete is None]
    assert lacking == [], "give it a function of edgefed.cli.common.completion as autocompletion"


def test_names_that_a_shell_would_evaluate_are_left_out() -> None:
    told = [("cam-1", 'ready")); $(reboot)'), ("$(reboot)", ""), ("a b", ""), ("`id`", "")]
    assert _safe(told) == [("cam-1", "ready       reboot ")]


def test_every_algorithm_is_completed() -> None:
    assert algorithm_names() == sorted(built_in())


def test_completion_imports_no_torch() -> None:
    program = (
        "import sys\n"
        "from edgefed.cli.common import completion\n"
        "from edgefed.cli.common.context import Globals\n"
        "from edgefed.cli.common.completion import KnownNames\n"
        "known = KnownNames(Globals(no_config=True, broker=sys.argv[1]))\n"
        "assert completion.algorithms()\n"
        "known.runs(), known.devices(), known.labels(), known.members('enrolled')\n"
        "print(sorted({'torch', 'textual'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, NOWHERE]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=clean_environment()
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_bash_completes_with_the_installed_function(state: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        **clean_environment(),
        "HOME": str(home),
        "PATH": f"{EDGEFED.parent}:{clean_environment()['PATH']}",
        "EDGEFED_STATE": str(state),
        "EDGEFED_BROKER": NOWHERE,
    }
    script = (
        "edgefed --install-completion\n"
        "source ~/.bashrc\n"
        "COMP_WORDS=(edgefed device show cam)\n"
        "COMP_CWORD=3\n"
        "function=$(complete -p edgefed | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
        '$function edgefed\necho "completed: ${COMPREPLY[*]}"\n'
    )
    done = subprocess.run(
        [str(BASH), "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "completed: cam-1 cam-2", done
    assert done.stderr == ""
