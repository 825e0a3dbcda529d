"""Command lines of both programs: common options everywhere, and errors as messages and exit codes.

``CommandLine`` replaces ``typer.Typer``; ``program`` creates the top-level one, with ``--version``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.models import CommandFunctionType, CommandInfo

from edgefed.errors import InterruptedRunError, UsageError
from edgefed.terminal.common_options import common_options, common_parameters, json_parameter
from edgefed.terminal.console import data, fail, json_out, reported
from edgefed.version import VERSION

_VALUE_NAMES = {int: "N", float: "NUMBER", Path: "PATH"}
"""The names of types of values in help."""


class Command(TyperCommand):
    """A command that accepts the common options too, and reports its errors.

    Attributes:
        prints_json: whether ``--json`` is shown among its own options.
    """

    prints_json = False

    def get_params(self, ctx: Any) -> list[Any]:
        """Return its parameters, and the common ones that it does not define itself."""
        own = super().get_params(ctx)
        return _with_common([*own, json_parameter()] if self.prints_json else own)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error or Ctrl-C ends it with a message and an exit code."""
        with reported(common_options(ctx).json):
            return super().invoke(ctx)


class JsonCommand(Command):
    """A command with ``--json`` among its own options; ``CommonOptions.json`` has the value."""

    prints_json = True


class CommandGroup(TyperGroup):
    """A group of commands that accepts the common options too."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return its parameters, and the common ones that it does not define itself."""
        return _with_common(super().get_params(ctx))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the program; wrong usage is reported like every other error."""
        words = sys.argv[1:] if args is None else list(args)
        settings = (prog_name, complete_var, False, windows_expand_args)
        if not standalone_mode:
            return super().main(words, *settings, **extra)
        try:
            try:
                ended = super().main(words, *settings, **extra)
            except typer.TyperException as error:
                fail(_usage_error(error), as_json="--json" in words)
            except typer.Abort:  # Ctrl-C or the end of stdin, where a question was asked
                fail(InterruptedRunError("Interrupted."), as_json="--json" in words)
        except typer.Exit as left:
            ended = left.exit_code
        sys.exit(ended if isinstance(ended, int) else 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; the program itself refuses an empty one."""
        empty = _empty_word(args) if ctx.parent is None else ""
        if empty and not ctx.resilient_parsing:
            ctx.fail(f"{empty} is empty.")
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            if common_options(ctx).json:
                ctx.fail("Missing command.")  # and not with the help, which is no JSON
            text = ctx.get_help()
            if text:  # else Rich has printed it
                data(text)
            ctx.exit(UsageError.exit_code)
        return super().parse_args(ctx, args)


class CommandLine(typer.Typer):
    """A ``typer.Typer`` whose group and commands accept the common options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": CommandGroup, "no_args_is_help": True, **settings})

    def command(
        self, name: str | None = None, *, json: bool = False, **settings: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Return the decorator that adds a command.

        Args:
            name: of the command; by default the function's.
            json: show ``--json`` among its own options.
            settings: further ones of ``typer.Typer.command``.
        """
        kind = JsonCommand if json else Command
        return super().command(name, **{"cls": kind, **settings})

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        """Run the program for the words that it was started with."""
        if not any(name.endswith("_COMPLETE") for name in os.environ):
            self._leave_out_others(_first_word(sys.argv[1:]))
        return super().__call__(*arguments, **settings)

    def _leave_out_others(self, name: str) -> None:
        """Keep the command or group of a name alone, where there is one.

        The parsers of all commands take longer to make than most commands to run.
        """
        commands = [command for command in self.registered_commands if _name_of(command) == name]
        groups = [group for group in self.registered_groups if group.name == name]
        # Without a callback of its own, Typer takes a single command for the whole program
        if self.registered_callback is not None and (commands or groups):
            self.registered_commands, self.registered_groups = commands, groups


def program(name: str, help: str, epilog: str = "") -> CommandLine:  # noqa: A002 - Typer's word
    """Return the command line at the top of a program.

    Args:
        name: the program's name.
        help: its purpose.
        epilog: examples.
    """
    app = CommandLine(pretty_exceptions_show_locals=False)

    def options(
        context: typer.Context,
        version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    ) -> None:
        if version:
            _print_version(name, common_options(context).json)
            raise typer.Exit
        if context.invoked_subcommand is None:
            context.fail("Missing command.")

    app.callback(invoke_without_command=True, help=help, epilog=epilog or None)(options)
    return app


def _name_of(command: CommandInfo) -> str:
    assert command.callback is not None
    return command.name or typer.main.get_command_name(command.callback.__name__)


def _first_word(words: Sequence[str]) -> str:
    """Return the first word that is neither an option nor its value; or ""."""
    shared = common_parameters()
    with_value = {word for option in shared if not option.is_flag for word in option.opts}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return word
        if word in with_value:
            next(rest, "")
    return ""


def _print_version(name: str, as_json: bool) -> None:
    if as_json:
        json_out({name: VERSION})
    else:
        data(f"{name} {VERSION}")


def _with_common(own: list[Any]) -> list[Any]:
    """Return a parser's parameters with the common ones; their help shows words, no types."""
    taken = {word for parameter in own for word in parameter.opts}
    added = [parameter for parameter in common_parameters() if not taken & set(parameter.opts)]
    parameters = [*own, *added]
    for parameter in parameters:
        if isinstance(parameter, TyperArgument):
            parameter.display_type_rich = _no_type  # type: ignore[method-assign]
        elif isinstance(parameter, TyperOption) and parameter.metavar is None:
            parameter.metavar = _value_name(parameter)
    return parameters


def _no_type(ctx: Any) -> None:
    """Let the help of an argument show no type: its description names it."""
    del ctx


def _value_name(option: TyperOption) -> str:
    """Return the placeholder of an option's value in help; nothing for a switch."""
    described = option.type_descriptor
    if option.is_flag:
        return ""
    if described.choices is not None:
        return "|".join(str(getattr(choice, "value", choice)) for choice in described.choices)
    return _VALUE_NAMES.get(described.annotation, "TEXT")


def _empty_word(words: Sequence[str]) -> str:
    """Return the option with an empty text, such as ``--name ""`` or ``--name=``; or ""."""
    for before, word in zip(["", *words], words, strict=False):
        if not word:
            return f"The value of {before}" if before.startswith("-") else "An argument"
        if word.startswith("--") and word.endswith("=") and word.count("=") == 1:
            return f"The value of {word[:-1]}"
    return ""


def _usage_error(error: typer.TyperException) -> UsageError:
    """Return Typer's error as an EdgeFed error."""
    context = getattr(error, "ctx", None)
    hint = f"{context.command_path} --help" if context is not None else ""
    return UsageError(error.format_message().replace("Value error, ", ""), hint=hint)
