"""The page about the command line tells of every command, setting, exit code and error code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import typer

from device_agent.commands.cli import app as agent_app
from edgefed import errors
from edgefed.cli.main import app as edgefed_app
from edgefed.config.fleet.settings import AgentSettings, Settings
from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.files.user_code import Kind

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ")
]
FIRST = {row[0] for row in ROWS}
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]


def commands(app: typer.Typer, words: str) -> Iterator[str]:
    for command in app.registered_commands:
        function = command.callback
        assert function is not None
        if not command.hidden:
            yield f"{words} {command.name or function.__name__.strip('_')}"
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, f"{words} {group.name}")


def calls() -> Iterator[tuple[str, str]]:
    """Each code with the class of the errors that have it, or the class that this one extends."""
    for package in ("edgefed", "device_agent", "broker"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    yield from ((node.func.id, code) for code in given(node))
                elif isinstance(node, ast.ClassDef) and path.name != "errors.py":
                    yield from ((ast.unparse(node.bases[0]), code) for code in default(node))


def given(call: ast.Call) -> Iterator[str]:
    """The code that a call is given."""
    for keyword in call.keywords:
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
            yield str(keyword.value.value)


def default(kind: ast.ClassDef) -> Iterator[str]:
    """The code of a class of errors."""
    for line in kind.body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "default_code":
            yield str(ast.literal_eval(line.value))


def codes() -> set[str]:
    found = {kind.default_code for kind in KINDS if issubclass(kind, errors.EdgeFedError)}
    for package in ("edgefed", "device_agent", "broker"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            found |= set(re.findall(r'code="([a-z_.]+)"', text))
            of_kinds = re.findall(r'code=f"\{kind\}\.([a-z_]+)"', text)
            found |= {f"{kind}.{code}" for kind in get_args(Kind) for code in of_kinds}
            found |= set(re.findall(r'^ *default_code = "([a-z_.]+)"', text, re.MULTILINE))
            found |= set(re.findall(r'"(recipe\.(?!toml)[a-z_]+)"', text))
    return found


@pytest.mark.parametrize(
    "command", [*commands(edgefed_app, "edgefed"), *commands(agent_app, "edgefed-agent")]
)
def test_every_command_is_told(command: str) -> None:
    assert f"`{command}`" in FIRST


@pytest.mark.parametrize("key", sorted({*Settings.model_fields, *AgentSettings.model_fields}))
def test_every_setting_is_told(key: str) -> None:
    assert f"`{key}`" in FIRST


def test_every_field_of_a_device_is_told_and_no_other() -> None:
    part = PAGE.partition("`edgefed device list --json` prints")[2].partition("\n\nA run ")[0]
    rows = [line.split(" | ")[0] for line in part.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == set(DeviceSnapshot.model_fields)


def test_every_exit_code_is_told() -> None:
    kinds = [kind for kind in KINDS if issubclass(kind, errors.EdgeFedError)]
    assert {str(kind.exit_code) for kind in kinds} <= FIRST


def test_every_error_code_is_told_and_no_other() -> None:
    told = {row[0].strip("`") for row in ROWS if len(row) == 3 and row[1].isdigit()}
    ends = {"run.aborted", "run.failed"}  # made of a run's status
    assert told - ends == codes() - ends


def test_each_error_code_has_an_exit_code_that_it_is_raised_with() -> None:
    told = {row[0].strip("`"): row[1] for row in ROWS if len(row) == 3 and row[1].isdigit()}
    raised: dict[str, set[str]] = {}
    for name, code in calls():
        kind = getattr(errors, name, None)
        if kind is not None:
            raised.setdefault(code, set()).add(str(kind.exit_code))
    assert {code for code, exits in raised.items() if told[code] not in exits} == set()


def test_nothing_is_told_twice() -> None:
    named = [row[0] for row in ROWS if row[0].startswith("`")]
    assert {name for name in named if named.count(name) > 1} == set()
