"""Help and version: quick, complete, and helpful about typos."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from edgefed.cli.main import app
from tests.cli.commands import edgefed
from tests.processes import clean_environment

HEAVY = ("torch", "textual", "paho", "numpy", "sklearn", "amqtt")
GROUPS = sorted(str(group.name) for group in app.registered_groups)
COMMANDS = sorted(
    str(command.name or (command.callback and command.callback.__name__))
    for command in app.registered_commands
)


def test_no_help_imports_anything_heavy() -> None:
    program = (
        "import functools, json, sys, typer.main, typer.testing\n"
        "from edgefed.cli.main import app\n"
        "typer.testing._get_command = functools.cache(typer.main.get_command)\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    told = typer.testing.CliRunner().invoke(app, [*words, '--help'])\n"
        "    assert told.exit_code == 0 and 'Usage: ' in told.stdout, told.output\n"
        "print(json.dumps(sorted(set(json.loads(sys.argv[2])) & set(sys.modules))))"
    )
    words = [[], *([name] for name in (*GROUPS, *COMMANDS))]
    told = subprocess.run(
        [sys.executable, "-c", program, json.dumps(words), json.dumps(HEAVY)],
        capture_output=True,
        text=True,
        check=True,
        env=clean_environment(),
    )
    assert json.loads(told.stdout) == []
    assert told.stderr == ""


@pytest.mark.parametrize("group", [group for group in GROUPS if group != "advise"])
def test_a_group_alone_prints_its_help(group: str) -> None:
    told = edgefed(group)
    assert "Usage: " in told.out + told.err
    assert "Commands" in told.out + told.err


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["stats"], "status"), (["run", "strat"], "start"), (["algo", "lst"], "list")],
)
def test_a_typo_is_met_with_a_suggestion(words: list[str], meant: str) -> None:
    told = edgefed(*words)
    assert (told.code, told.out) == (2, "")
    assert f"Did you mean '{meant}'" in told.err


def test_an_unknown_option_is_wrong_usage() -> None:
    told = edgefed("status", "--jsn")
    assert (told.code, told.out) == (2, "")
    assert "--jsn" in told.err


def test_version_names_what_a_bug_report_needs() -> None:
    told = edgefed("version", "--json")
    assert {"edgefed", "protocol", "python", "torch", "paho-mqtt"} <= set(told.json)
    assert told.json == edgefed("--json", "version").json
