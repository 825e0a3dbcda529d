"""Every command has the common options, and help that is whole at 80 columns, without types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from device_agent.commands.cli import app as agent_app
from edgefed.cli.main import app as edgefed_app

COMMON = {"--config", "--no-config", "--broker", "--fleet", "--state"}
COMMON |= {"--json", "--quiet", "--verbose"}
PROGRAMS = {"edgefed": edgefed_app, "edgefed-agent": agent_app}


def commands(
    command: Any, words: tuple[str, ...], *, hidden: bool = False
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each group and command with the words that call it."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        if hidden or not inner.hidden:
            yield from commands(inner, (*words, name), hidden=hidden)


ALL = [
    each
    for name, app in PROGRAMS.items()
    for each in commands(get_command(app), (name,), hidden=True)
]


def shown(app: typer.Typer, words: tuple[str, ...]) -> str:
    told = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert told.exit_code == 0
    return told.stdout


def words_of(command: Any) -> set[str]:
    """Return the words that a command's help consists of."""
    texts = [command.help or "", command.epilog or ""]
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            texts += [*parameter.opts, getattr(parameter, "help", "") or ""]
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            texts += [name]
    return {word for text in texts for word in text.split()}


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(words) for words, _ in ALL])
def test_help_and_common_options(words: tuple[str, ...], command: Any) -> None:
    context = typer.Context(command, info_name=" ".join(words))
    options = [word for parameter in command.get_params(context) for word in parameter.opts]
    assert set(options) >= COMMON
    assert len(options) == len(set(options))

    text = shown(PROGRAMS[words[0]], words[1:])
    assert not re.search(r"<\w+>|typing\.|Annotated", text)
    assert "--verbose" in text
    assert "bool" not in text, "a switch is shown without a type"
    assert max(map(len, text.splitlines())) <= 80
    told = set(text.replace("│", " ").split())
    arguments = {
        parameter.name for parameter in command.params if parameter.param_type_name == "argument"
    }
    assert words_of(command) - arguments - told == set()
