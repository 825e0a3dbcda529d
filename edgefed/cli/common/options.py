"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from edgefed.cli.common import completion

Json = Annotated[
    bool, typer.Option("--json", help="Print JSON on stdout.", rich_help_panel="Output")
]
RecipeFile = Annotated[
    Path | None,
    typer.Argument(
        help="Recipe file; by default every key has its default value.", show_default=False
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key of the recipe, such as training.epochs=2; may be repeated.",
        rich_help_panel="Run",
    ),
]
AlgorithmName = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        help="Algorithm; see edgefed algo list.",
        rich_help_panel="Run",
        autocompletion=completion.algorithms,
    ),
]
Rounds = Annotated[
    int | None, typer.Option("--rounds", help="Rounds to train.", rich_help_panel="Run")
]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Seed of every random draw.", rich_help_panel="Run")
]
Devices = Annotated[
    int | None,
    typer.Option("--devices", help="Number of virtual or demo devices.", rich_help_panel="Run"),
]

Recompute = Annotated[
    bool,
    typer.Option("--recompute", help="Run again what another version of EdgeFed or torch has run."),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        min=1,
        help="Runs at once, each with its share of this machine's cores.",
        rich_help_panel="Place",
    ),
]
On = Annotated[
    Literal["local", "ray"],
    typer.Option(
        "--on",
        help="Train on this machine or on a Ray cluster; the result is the same.",
        rich_help_panel="Place",
    ),
]
RayAddress = Annotated[
    str,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Ray cluster to join; by default RAY_ADDRESS, or else a new cluster on this machine.",
        rich_help_panel="Place",
    ),
]
Ascii = Annotated[
    bool | None,
    typer.Option(
        "--ascii/--no-ascii",
        help="Use letters instead of symbols.",
        show_default="letters where the locale is not UTF-8",
    ),
]
LATEST = "latest"
"""The word for the newest run, which is also the one that a command takes when none is named."""


def named_run(run: str) -> str:
    """Return the run that was typed, empty for the newest."""
    return "" if run == LATEST else run


RUNS = "run id, its beginning, latest, or a run's folder"
"""The runs that a reading command takes."""

RunOrFolder = Annotated[
    str,
    typer.Argument(
        help=f"{RUNS[0].upper()}{RUNS[1:]}; by default the newest run.",
        autocompletion=completion.runs,
        callback=named_run,
    ),
]
RunIdOrLast = Annotated[
    str,
    typer.Argument(
        help="Run id, its beginning, or latest; by default the newest run.",
        autocompletion=completion.runs,
        callback=named_run,
    ),
]
RunId = Annotated[
    str,
    typer.Argument(
        help="Run id or its beginning.", show_default=False, autocompletion=completion.runs
    ),
]
DeviceId = Annotated[
    str,
    typer.Argument(help="Device id.", show_default=False, autocompletion=completion.devices),
]
Unfinished = Annotated[
    bool,
    typer.Option("--unfinished", help="Let latest be a run that was aborted or has failed."),
]
Local = Annotated[
    bool,
    typer.Option(
        "--local", help="Read this machine's state folder instead of asking the coordinator."
    ),
]

DEFAULT_STAGES = "5,25,100"

Stages = Annotated[
    str, typer.Option("--stages", help="Percent of the devices that each stage asks, in total.")
]

StopAt = Annotated[
    float,
    typer.Option("--stop-at", help="Percent of refusals and failures above which it stops."),
]


def percents(text: str) -> list[float]:
    """Return the numbers of a list such as ``5,25,100``."""
    from edgefed.errors import UsageError

    try:
        return [float(part.strip().rstrip("%")) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(
            f"'{text}' is no list of percentages.", code="usage", hint="--stages 5,25,100"
        ) from error
