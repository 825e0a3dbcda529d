"""``edgefed run means``: the averaged data that a run's devices train with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import Json, Local, RunOrFolder
from edgefed.console import columns, data, json_out, reported

if TYPE_CHECKING:
    from edgefed.report.means import Means

EPILOG = examples(
    "edgefed run means",
    "edgefed run means r-0001 --png means.png",
    "edgefed run means --local --json",
    "edgefed run means PATH/TO/RUN/FOLDER --png means.png",
)
_LABELS = 4
"""Labels, or numbers, that the table names of an entry."""


def means(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    png: Annotated[
        Path | None,
        typer.Option("--png", help="Draw the averaged images into this file.", metavar="FILE"),
    ] = None,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Show the labels of a run's averaged data, or draw the averaged images.

    The command reads the run's folder, so it runs on the coordinator's machine. An entry does not
    record its device or its number of samples; `edgefed device list` shows the shared data of each
    device.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.run_folders import folder_of
        from edgefed.files import write_output
        from edgefed.report.means import means_of_folder

        found = means_of_folder(folder_of(options, run, local, "edgefed run means"))
        file = png.expanduser().absolute() if png is not None else None
        if file is not None:
            from edgefed.report.contact_sheet import sheet

            write_output(file, sheet(found))
        if as_json:
            json_out(_told(found, file))
        elif file is not None:
            data(str(file))
        else:
            data(_table(found))


def _told(found: Means, file: Path | None) -> dict[str, object]:
    entries = found.entries
    told: dict[str, object] = {
        "run": found.run,
        "entries": len(entries),
        "shape": list(entries.inputs.shape[1:]),
        "labels" if found.has_shares else "targets": [
            [round(float(share), 6) for share in target] for target in entries.targets
        ],
    }
    return told if file is None else {**told, "file": str(file)}


def _table(found: Means) -> str:
    from edgefed.report.means import labels_in_words, numbers_in_words

    in_words = labels_in_words if found.has_shares else numbers_in_words
    rows = [
        (str(number), in_words(target, _LABELS))
        for number, target in enumerate(found.entries.targets)
    ]
    return columns([("ENTRY", "LABELS" if found.has_shares else "TARGET"), *rows])
