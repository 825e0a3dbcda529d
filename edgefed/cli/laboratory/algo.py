"""``edgefed algo``: the algorithms and their settings."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from edgefed.cli.common import completion
from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns, json_out, talk

app = CommandLine(help="Show algorithms and their settings.")


@app.command("list", epilog=examples("edgefed algo list", "edgefed algo list --json"), json=True)
def list_(context: typer.Context) -> None:
    """List the algorithms, one per line."""
    from edgefed.algorithms.composed.registry import PLUGINS, algorithms

    options = globals_of(context)
    for problem in PLUGINS.problems().values():
        talk(f"warning: {problem}")
    rows = [
        {"name": name, "summary": kind.summary, "paper": kind.paper}
        for name, kind in algorithms().items()
    ]
    options.answer(rows, columns([(row["name"], row["summary"]) for row in rows]))


app.command("ls", hidden=True, json=True)(list_)


@app.command(
    epilog=examples("edgefed algo show fedprox", "edgefed algo show fedopt --schema"), json=True
)
def show(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(help="Algorithm.", show_default=False, autocompletion=completion.algorithms),
    ],
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of its settings.")
    ] = False,
) -> None:
    """Show an algorithm's paper, settings, ranges and defaults."""
    from edgefed.algorithms.composed.registry import find

    options = globals_of(context)
    kind = find(name)
    described = kind.Settings.model_json_schema()
    if schema:
        json_out(described)
        return
    settings = described["properties"]
    answer = {
        "name": kind.name,
        "summary": kind.summary,
        "paper": kind.paper,
        "simulation_only": getattr(kind, "simulation_only", False),
        "settings": settings,
    }
    rows = columns([_row(key, value) for key, value in settings.items()])
    options.answer(answer, f"{kind.name}: {kind.summary}\n{kind.paper}\n\n{rows}")


def _row(key: str, value: dict[str, Any]) -> tuple[str, ...]:
    default = value.get("default", "")
    text = "unset" if default is None else str(default)
    return key, text, _range(value), value.get("description", "").replace("``", "")


def _range(value: dict[str, Any]) -> str:
    if "anyOf" in value:
        return " or ".join(filter(None, (_range(choice) for choice in value["anyOf"])))
    if "const" in value:
        return str(value["const"])
    if "enum" in value:
        return " | ".join(str(choice) for choice in value["enum"])
    low = value.get("minimum", value.get("exclusiveMinimum"))
    high = value.get("maximum", value.get("exclusiveMaximum"))
    left = "" if low is None else f"{'>' if 'exclusiveMinimum' in value else '≥'} {low}"
    right = "" if high is None else f"{'<' if 'exclusiveMaximum' in value else '≤'} {high}"
    return ", ".join(part for part in (left, right) if part)
