"""``edgefed config``: show the effective settings and their origin, check a file, print schemas."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns, data, json_out, talk

if TYPE_CHECKING:
    from edgefed.config.fleet.settings import Settings
    from edgefed.config.fleet.settings_files import Program, Surroundings
    from edgefed.config.loading.check import Checked
    from edgefed.config.loading.load import Effective, Loaded
    from edgefed.config.recipes.recipe import Recipe
    from edgefed.config.values.layers import ValueLayer
    from edgefed.config.values.problems import Problem

app = CommandLine(help="Show and check settings and recipes.")


class FileKind(str, Enum):
    """Which kind of file."""

    recipe = "recipe"
    settings = "settings"
    agent = "agent"


@app.command(
    epilog=examples(
        "edgefed config show",
        "edgefed config show run.toml --set training.epochs=3",
        "EDGEFED_FLEET=lab edgefed config show --json",
    ),
    json=True,
)
def show(
    context: typer.Context,
    recipe: Annotated[
        Path | None, typer.Argument(help="Recipe to show as well.", show_default=False)
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a key of the recipe: KEY=VALUE.", rich_help_panel="Run"),
    ] = None,
) -> None:
    """Show each effective value and its origin.

    Use it if a setting in a file has no effect.
    """
    from edgefed.config.loading.load import parse_sets

    options = globals_of(context)
    loaded: dict[str, Loaded[Settings] | Loaded[Recipe]] = {"settings": options.settings()}
    if recipe is not None or sets:
        loaded["recipe"] = options.recipe(recipe, sets=parse_sets(sets or []))
    parts = {name: part.effective() for name, part in loaded.items()}
    options.answer(
        {name: _by_key(values) for name, values in parts.items()},
        "\n\n".join(_listing(values) for values in parts.values()),
    )


@app.command(
    epilog=examples(
        "edgefed config check run.toml",
        "edgefed config check edgefed.toml --json",
        "edgefed config check device-3.toml --as agent",
    ),
    json=True,
)
def check(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Recipe or settings file.", show_default=False)],
    kind: Annotated[
        FileKind | None,
        typer.Option("--as", help="Kind of file; by default derived from its name and keys."),
    ] = None,
) -> None:
    """Report every problem in a file with its line, key and the nearest known key.

    For a recipe without such problems, report a combination of its tables that a run refuses, such
    as class weights with an algorithm that has its own. Settings that depend on data, devices or
    other files are not checked; see edgefed run check. The exit code is 8 if there are problems.
    """
    from edgefed.config.loading.check import check_file
    from edgefed.errors import CheckFailedError

    options = globals_of(context)
    checked = check_file(file, kind.value if kind else None)
    problems = _problems(checked, file, options.surroundings())
    if options.json:
        listed = [problem.to_json() for problem in problems]
        json_out({"file": str(file), "kind": checked.kind, "problems": listed})
    else:
        for problem in problems:
            data(str(problem))
    if not problems and not options.quiet:
        talk(f"{file}: no problems")
    if problems:
        raise typer.Exit(CheckFailedError.exit_code)


@app.command(
    epilog=examples(
        "edgefed config path",
        "edgefed --config lab.toml config path",
        "edgefed config path --json",
    ),
    json=True,
)
def path(context: typer.Context) -> None:
    """Print the places of settings files, highest precedence first.

    The list shows which files are read and which could be created.
    """
    from edgefed.config.fleet.settings_files import places

    options = globals_of(context)
    files = places("edgefed", options.surroundings())
    if not files:
        options.done([], "no settings file is read")
        return
    answer = [{"level": p.level, "path": p.path, "exists": _exists(p.path)} for p in files]
    rows = [(p.level, str(p.path), "exists" if _exists(p.path) else "absent") for p in files]
    options.answer(answer, columns(rows))


@app.command(
    epilog=examples(
        "edgefed config schema > recipe.schema.json",
        "edgefed config schema settings",
    )
)
def schema(
    context: typer.Context,
    kind: Annotated[FileKind, typer.Argument(help="Kind of file.")] = FileKind.recipe,
) -> None:
    """Print the JSON Schema of a kind of file.

    Editors use the schema to complete and describe keys. A recipe's schema has the keys of each
    algorithm, model and data set, those of installed plug-ins too.
    """
    import json

    from edgefed.cli.common.recipe_schema import full_schema

    options = globals_of(context)
    described = full_schema(kind.value)
    options.answer(described, json.dumps(described, indent=2, ensure_ascii=False))


def _problems(checked: Checked, file: Path, around: Surroundings) -> list[Problem]:
    """Return all that is wrong with a file, in the order of its lines."""
    problems = checked.problems
    program: Program = "edgefed-agent" if checked.kind == "agent" else "edgefed"
    project = around.cwd / f"{program}.toml"
    if (
        checked.kind != "recipe"
        and checked.layer is not None
        and project.resolve() == file.resolve()
    ):
        from edgefed.config.loading.load import project_problems

        problems = [*problems, *project_problems(checked.layer, program, around)]
    if checked.kind == "settings" and checked.layer is not None:
        problems = [*problems, *_key_problems(checked.layer)]
    if checked.kind == "recipe" and checked.layer is not None:
        from edgefed.api.recipe_sections import open_problems

        problems = [*problems, *open_problems(checked.layer)]
        if not problems:
            from edgefed.api.recipe_source import combination_problems

            problems = combination_problems(checked.layer)
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.origin.line)


def _key_problems(layer: ValueLayer) -> list[Problem]:
    """Return the problems of the dashboard's keys that are texts."""
    from edgefed.tui.keys.keymap import read_keymap

    table = layer.values.get("dashboard")
    keys = table.get("keys") if isinstance(table, dict) else None
    texts = keys.items() if isinstance(keys, dict) else ()
    written = {name: text for name, text in texts if isinstance(text, str)}
    return read_keymap(written, layer)[1] if written else []


def _listing(values: list[Effective]) -> str:
    """Return values as columns: key, value, where it was written."""
    from edgefed.config.loading.shown_values import shown_value
    from edgefed.config.loading.write import toml_value

    def shown(one: Effective) -> str:
        return "-" if one.value is None else toml_value(shown_value(one))

    return columns([(one.key, shown(one), str(one.origin)) for one in values])


def _by_key(values: list[Effective]) -> dict[str, Any]:
    """Return values as the object that ``--json`` prints."""
    from edgefed.config.loading.shown_values import shown_value

    return {one.key: {"value": shown_value(one), **one.origin.to_json()} for one in values}


def _exists(file: Path) -> bool:
    """Return whether a file is there; one in a folder that is closed to us is not."""
    try:
        return file.exists()
    except OSError:
        return False
