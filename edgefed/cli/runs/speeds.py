"""``edgefed run speeds``: the measured speeds of a run's devices, as a file for ``[speeds]``."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Local, RunOrFolder
from edgefed.terminal.units import counted

if TYPE_CHECKING:
    from edgefed.report.speeds import MeasuredSpeed

EPILOG = examples(
    "edgefed run speeds > speeds.csv",
    "edgefed sim run --set speeds.file=speeds.csv",
    "edgefed run speeds r-0001 --local --json",
)
_MOST = 5
"""Devices without a speed that are named."""


def speeds(context: typer.Context, run: RunOrFolder = "", *, local: Local = False) -> None:
    """Print the measured speeds of a run's devices as CSV, for speeds.file of a recipe.

    The values are medians over each device's merged answers: the seconds of training by samples
    and epochs, and the bytes of an answer by the seconds of its upload. An unknown value is empty.
    The command reads the run's folder, so it runs on the coordinator's machine.
    """
    from edgefed.cli.common.run_folders import folder_of
    from edgefed.report.speeds import speeds_of_folder

    options = globals_of(context)
    measured, others = speeds_of_folder(folder_of(options, run, local, "edgefed run speeds"))
    options.answer([asdict(speed) for speed in measured], _csv(measured))
    if others:
        left_out = f"{', '.join(others[:_MOST])}{', …' if len(others) > _MOST else ''}"
        options.note(f"  {counted(len(others), 'device')} without a measured answer: {left_out}")


# Those that ``speeds.file`` of a recipe takes.
_COLUMNS = ("device", "seconds_per_sample", "uplink", "downlink")


def _csv(measured: Sequence[MeasuredSpeed]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_COLUMNS)
    rows.writerows([getattr(speed, name) for name in _COLUMNS] for speed in measured)
    return text.getvalue().removesuffix("\n")
