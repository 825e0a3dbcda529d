"""The options of the command ``predict``, which both programs have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Inputs = Annotated[
    list[Path],
    typer.Argument(
        help="Images, folders of images, or NPZ files with inputs as x.", show_default=False
    ),
]
Top = Annotated[
    int, typer.Option("--top", min=1, metavar="K", help="Show the K most probable classes.")
]
Csv = Annotated[bool, typer.Option("--csv", help="Print a table in CSV.", rich_help_panel="Output")]
ModelName = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Use only this model of a file with several.",
        show_default=False,
    ),
]
Best = Annotated[
    bool, typer.Option("--best", help="Use the weights of the best round instead of the last.")
]
UserModels = Annotated[
    bool,
    typer.Option("--user-models", help="Allow a model that is a user's own code, and import it."),
]
Processor = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="cpu, cuda or cuda:N; by default a GPU if there is one.",
        show_default=False,
    ),
]
