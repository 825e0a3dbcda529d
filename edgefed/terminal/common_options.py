"""The options that every command of both programs accepts, before its name and after it.

Each parser of a command line adds ``common_parameters`` to its own parameters; a command reads the
values with ``common_options``. If an option is given twice, the value nearest to the end of the
line wins, because the program is parsed before the group and the group before the command.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from edgefed.terminal.console import data, json_out, talk
from edgefed.terminal.terminals import without_colour

Check = Annotated[
    bool, typer.Option("--check", help="Check for monitoring: one line, and an exit code.")
]

_KEY = "edgefed.terminal.common_options"
_PREFIX = "common_"
"""Keeps the parameters' names apart from those of a command's own parameters."""

_option = partial(typer.Option, rich_help_panel="Common options")


@dataclass(frozen=True)
class CommonOptions:
    """The typed options; None for the others.

    Attributes:
        config: the settings file that replaces all others.
        no_config: read no settings file.
        broker: ``mqtts://HOST:PORT`` or ``mqtt://HOST:PORT``.
        insecure: use a broker on another machine without TLS.
        fleet: name of the fleet.
        json: print JSON.
        quiet: print no notes.
        verbose: print more notes.
        state: folder for runs, caches and logs.
        no_color: use no colours, in child processes too.
    """

    config: Path | None = None
    no_config: bool = False
    broker: str | None = None
    insecure: bool = False
    fleet: str | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    state: Path | None = None
    no_color: bool = False

    def words(self) -> tuple[str, ...]:
        """Return the options as they are typed on a command line, those with a value first."""
        typed = {f"--{f.name.replace('_', '-')}": getattr(self, f.name) for f in fields(self)}
        flags = [name for name, value in typed.items() if value is True]
        values = {name: str(value) for name, value in typed.items() if value and value is not True}
        return (*(word for pair in values.items() for word in pair), *flags)

    def command(self, words: str, **changed: Any) -> str:
        """Return a command of ``edgefed`` for the state folder and the fleet of this one.

        Args:
            words: of the command.
            changed: other values of common options.
        """
        kept = replace(self, json=False, quiet=False, verbose=False, no_color=False, **changed)
        return " ".join(("edgefed", *map(shlex.quote, kept.words()), words))

    def answer(
        self,
        value: Any,
        text: Callable[[Any], str] | str,
        *,
        empty: str = "",
        file: Path | None = None,
    ) -> None:
        """Print the answer of a command.

        Args:
            value: printed as JSON with ``--json``.
            text: printed otherwise, or the function that makes it of the value.
            empty: a note in place of the text where ``value`` has nothing.
            file: a file that has the answer; its path is printed in place of the text, and as
                ``file`` of the JSON object.
        """
        if self.json:
            json_out(value if file is None else {**value, "file": str(file)})
        elif empty and not value:
            talk(empty)
        elif file is not None:
            data(str(file))
        else:
            data(text if isinstance(text, str) else text(value))

    def done(self, value: Any, text: str) -> None:
        """Print the result of an order: a value as JSON, or a note unless ``--quiet`` is given."""
        if self.json:
            json_out(value)
        else:
            self.note(text)

    def note(self, text: str) -> None:
        """Print a note for people: nothing with ``--json`` or ``--quiet``."""
        if not self.json and not self.quiet:
            talk(text)


def common_options(context: typer.Context) -> CommonOptions:
    """Return the common options that this command was called with, wherever they were typed."""
    return CommonOptions(**context.meta.get(_KEY, {}))


@cache
def common_parameters() -> tuple[TyperOption, ...]:
    """Return the parameters that read the common options and pass none of them to the command."""
    app = typer.Typer(add_completion=False)
    app.command()(_declared)
    parameters = typer.main.get_command(app).params
    made = tuple(parameter for parameter in parameters if isinstance(parameter, TyperOption))
    for parameter in made:
        parameter.expose_value = False
        parameter.callback = _remember
    return made


@cache
def json_parameter() -> TyperOption:
    """Return ``--json`` as an option of a command of its own."""
    (shared,) = (parameter for parameter in common_parameters() if "--json" in parameter.opts)
    made = copy(shared)
    made.help, made.rich_help_panel = "Print JSON on stdout.", "Output"
    return made


def _remember(context: Any, parameter: Any, value: Any) -> Any:
    """Keep a value that was typed; contexts of one command line share ``meta``."""
    if value is not None and value is not False:
        typed = context.meta.setdefault(_KEY, {})
        typed[parameter.name.removeprefix(_PREFIX)] = value
        if parameter.name == f"{_PREFIX}no_color":
            without_colour()
    return value


def _declared(
    *,
    common_config: Annotated[
        Path | None, _option("--config", help="Use only this settings file.", metavar="FILE")
    ] = None,
    common_no_config: Annotated[
        bool, _option("--no-config", help="Read no settings file.")
    ] = False,
    common_broker: Annotated[
        str | None, _option("--broker", help="mqtts://HOST:PORT", metavar="URL")
    ] = None,
    common_insecure: Annotated[
        bool, _option("--insecure", help="Use a broker on another machine without TLS.")
    ] = False,
    common_fleet: Annotated[
        str | None, _option("--fleet", help="Name of the fleet.", metavar="NAME")
    ] = None,
    common_state: Annotated[
        Path | None, _option("--state", help="Folder for runs, caches and logs.", metavar="FOLDER")
    ] = None,
    common_json: Annotated[bool, _option("--json", help="Print JSON on stdout.")] = False,
    common_quiet: Annotated[bool, _option("--quiet", "-q", help="Print no notes.")] = False,
    common_no_color: Annotated[
        bool, _option("--no-color", help="Use no colours, as with NO_COLOR.")
    ] = False,
    common_verbose: Annotated[bool, _option("--verbose", "-v", help="Print more notes.")] = False,
) -> None:
    """Declare the options; never called."""
