"""``edgefed run means``: the averaged data that a run's devices train with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Local, RunOrFolder
from edgefed.terminal.console import columns

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
) -> None:
    """Show the labels of a run's averaged data, or draw the averaged images.

    The command reads the run's folder, so it runs on the coordinator's machine. An entry does not
    record its device or its number of samples; `edgefed device list` shows the shared data of each
    device.
    """
    from edgefed.cli.common.run_folders import folder_of
    from edgefed.files.writing import write_output
    from edgefed.report.means import means_of_folder

    options = globals_of(context)
    shared_means = means_of_folder(folder_of(options, run, local, "edgefed run means"))
    file = png.expanduser().absolute() if png is not None else None
    if file is not None:
        from edgefed.report.contact_sheet import sheet

        write_output(file, sheet(shared_means))
    options.answer(_plain(shared_means), _table(shared_means), file=file)


def _plain(shared_means: Means) -> dict[str, object]:
    entries = shared_means.entries
    return {
        "run": shared_means.run,
        "entries": len(entries),
        "shape": list(entries.inputs.shape[1:]),
        "labels" if shared_means.has_shares else "targets": [
            [round(float(share), 6) for share in target] for target in entries.targets
        ],
    }


def _table(shared_means: Means) -> str:
    from edgefed.report.means import labels_in_words, numbers_in_words

    in_words = labels_in_words if shared_means.has_shares else numbers_in_words
    rows = [
        (str(number), in_words(target, _LABELS))
        for number, target in enumerate(shared_means.entries.targets)
    ]
    return columns([("ENTRY", "LABELS" if shared_means.has_shares else "TARGET"), *rows])
