"""Write the reference in docs/cli.md: every command with its arguments, options and examples.

python docs/make_cli_page.py
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from typer import Context
from typer.core import TyperArgument
from typer.main import get_command

from device_agent.commands.cli import app as agent_app
from edgefed.cli.main import app as edgefed_app

PAGE = Path(__file__).with_name("cli.md")
PROGRAMS = {"edgefed": edgefed_app, "edgefed-agent": agent_app}
BEGIN = "<!-- generated from here by docs/make_cli_page.py -->"
EXAMPLES = "Examples:"

OPENING = """\
## Reference

All commands with their arguments, options and defaults. The [common options](#common-options) and
`--help`, which every command has, are left out. `python docs/make_cli_page.py` writes this part,
and a test checks that it is up to date.
"""


def page(written: str) -> str:
    """Return the whole page: what is written by hand, and the reference.

    Args:
        written: the page as it is.
    """
    by_hand = written.partition(BEGIN)[0]
    found = [each for name, app in PROGRAMS.items() for each in _commands(get_command(app), name)]
    parts = [_command(words, command) for words, command in found]
    return "\n".join([f"{by_hand}{BEGIN}\n", OPENING, *parts])


def _commands(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below a group, with the words that call them."""
    for name, inner in command.commands.items():
        if inner.hidden:
            continue
        if hasattr(inner, "commands"):
            yield from _commands(inner, f"{words} {name}")
        else:
            yield f"{words} {name}", inner


def _command(words: str, command: Any) -> str:
    shown = [each for each in command.get_params(Context(command)) if not _is_common(each)]
    parts = [f"### {words}\n", _text(command.help)]
    described = [_parameter(each) for each in shown]
    if described:
        parts.append("\n".join(described) + "\n")
    examples = [line for line in (command.epilog or "").splitlines() if line.strip()]
    if examples[:1] == [EXAMPLES]:
        parts.append("\n".join(["```text", *examples[1:], "```"]) + "\n")
    return "\n".join(parts)


def _is_common(parameter: Any) -> bool:
    words = {"--json", "--help"} & set(parameter.opts)
    return bool(words) or parameter.hidden or parameter.name.startswith("common_")


def _parameter(parameter: Any) -> str:
    """Return a line about an argument or an option."""
    if isinstance(parameter, TyperArgument):
        name = parameter.metavar or parameter.name
        shown = f"`{name}`" if parameter.required else f"`[{name}]`"
    else:
        value = f" {_value(parameter)}".rstrip()
        words = [*parameter.opts, *parameter.secondary_opts]
        shown = ", ".join(f"`{word}{value if word.startswith('--') else ''}`" for word in words)
    default = _default(parameter)
    told = " ".join((parameter.help or "").split())
    more = "; required" if parameter.required and not isinstance(parameter, TyperArgument) else ""
    return f"- {shown}: {told.rstrip('.')}{more}{f'; by default `{default}`' if default else ''}."


def _value(option: Any) -> str:
    """Return what stands for an option's value, as in its help; nothing for a switch."""
    return str(option.metavar or "")


def _default(parameter: Any) -> str:
    """Return a default that says something: help tells the others in words."""
    value = parameter.default
    if parameter.required or callable(value) or value in (None, False, True, "", ()):
        return ""
    return str(value.value if isinstance(value, Enum) else value)


def _text(docstring: str | None) -> str:
    """Return a docstring as paragraphs."""
    paragraphs = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
