"""``edgefed run audit``: the disclosure of the devices' labels by a run's answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Local, RunOrFolder
from edgefed.terminal.console import columns

if TYPE_CHECKING:
    from edgefed.report.label_audit import Audit, AuditRow

EPILOG = examples(
    "edgefed sim run --audit",
    "edgefed run audit --local --svg audit.svg",
    "edgefed run audit r-0001 --round 20 --json",
    "edgefed run audit PATH/TO/RUN/FOLDER",
)
_MOST = 3
"""Labels that the table names of a device."""


def audit(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", help="Draw true and computed frequencies into this file.",
                     metavar="FILE"),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option("--round", help="Answers of this round; by default the first of each device.",
                     min=1),
    ] = None,
    local: Local = False
) -> None:  # fmt: skip
    """Show the label frequencies of each device that the coordinator could compute from answers.

    A simulation records them with `edgefed sim run --audit`, for any algorithm. For a run with
    experts the coordinator's state discloses them too. DISTANCE is the total variation from the
    true frequencies, 0 to 1. The command reads the run's folder, on the coordinator's machine.
    """
    from edgefed.cli.common.run_folders import folder_of
    from edgefed.files.writing import write_output
    from edgefed.report.label_audit import audit_of_folder, audit_picture
    from edgefed.report.run_data import run_data_of_folder

    options = globals_of(context)
    folder = folder_of(options, run, local, "edgefed run audit")
    label_audit = audit_of_folder(folder, run_data_of_folder(folder)).of_round(number)
    file = svg.expanduser().absolute() if svg is not None else None
    if file is not None:
        write_output(file, audit_picture(label_audit).encode())
    options.answer(_plain(label_audit), columns(list(_table(label_audit))), file=file)


def _plain(label_audit: Audit) -> dict[str, Any]:
    return {
        "run": label_audit.run,
        "labels": list(label_audit.labels),
        "mean_distance": label_audit.mean_distance(),
        "answers": [_answer(row) for row in label_audit.rows],
    }


def _answer(row: AuditRow) -> dict[str, Any]:
    return {
        "device": row.device,
        "round": row.round,
        "samples": row.samples,
        "source": row.source,
        "role": row.role,
        "determined": row.determined,
        "shares": list(row.shares),
        "true": None if row.true is None else list(row.true),
        "distance": row.distance,
    }


def _table(label_audit: Audit) -> Iterator[tuple[str, ...]]:
    yield ("DEVICE", "ROUND", "SOURCE", "UNIQUE", "COMPUTED", "TRUE", "DISTANCE")
    for row in label_audit.rows:
        unique = "yes" if row.determined else "no"
        shares = (
            _largest(row.shares, label_audit),
            "" if row.true is None else _largest(row.true, label_audit),
        )
        far = "" if row.distance is None else f"{row.distance:.3f}"
        yield (row.device, str(row.round), row.part, unique, *shares, far)
    mean = label_audit.mean_distance()
    if mean is not None and len(label_audit.rows) > 1:
        yield ("mean", "", "", "", "", "", f"{mean:.3f}")


def _largest(shares: tuple[float, ...], label_audit: Audit) -> str:
    """Return the most frequent labels with their shares."""
    order = sorted(range(len(shares)), key=lambda label: (-shares[label], label))
    named = [label for label in order[:_MOST] if shares[label] >= 0.005]
    return ", ".join(f"{label_audit.labels[label]} {shares[label]:.0%}" for label in named)
