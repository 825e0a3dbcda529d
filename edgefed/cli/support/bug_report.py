"""``edgefed report``: one file with the data for a bug report, without secrets."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.console import columns
from edgefed.terminal.units import size

if TYPE_CHECKING:
    from edgefed.cli.support.bug_report_parts import ReportPart

EPILOG = examples(
    "edgefed report",
    "edgefed report --output bug.tar.gz --log coordinator.log",
    "edgefed report --with-names --json",
)

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="File to write; by default edgefed-report-TIME.tar.gz in this folder.",
        metavar="FILE",
        show_default=False,
    ),
]
Logs = Annotated[
    list[Path] | None,
    typer.Option(
        "--log",
        help="Log to include, beside those in the state folder; may be repeated.",
        metavar="FILE",
    ),
]
Lines = Annotated[
    int, typer.Option("--lines", min=0, max=10_000, help="Last lines of each log to include.")
]
WithNames = Annotated[
    bool,
    typer.Option(
        "--with-names", help="Leave names of devices, hosts and users, and addresses, as they are."
    ),
]


def report(
    context: typer.Context,
    *,
    output: Output = None,
    logs: Logs = None,
    lines: Lines = 500,
    with_names: WithNames = False,
) -> None:
    """Write one file for a bug report: versions, settings, checks, logs, the newest run.

    Passwords, tokens, keys and certificates are removed, and names of devices, hosts and users
    replaced by pseudonyms. It contains no samples and no weights. Neither broker nor coordinator is
    needed. Look at it before you send it.
    """
    from edgefed.cli.support.bug_report_parts import ReportRequest, collect
    from edgefed.files.writing import write_atomic
    from edgefed.process.clock import SystemClock

    options = globals_of(context)
    file = (output or Path(_name(SystemClock().now()))).expanduser().absolute()
    _refuse_existing(file)
    parts = collect(ReportRequest(options, tuple(logs or ()), lines, with_names))
    packed = _packed(parts, file.name.removesuffix(".tar.gz"))
    _refuse_existing(file)
    write_atomic(file, packed)
    sizes = {part.name: len(part.text.encode()) for part in parts}
    options.note(columns([(name, size(length)) for name, length in sizes.items()]))
    names = "names as they are" if with_names else "names replaced by pseudonyms"
    options.note(f"  secrets removed, {names}; look at it before you send it")
    options.answer({"file": str(file), "bytes": len(packed), "parts": sizes}, str(file))


def _name(now: datetime) -> str:
    return f"edgefed-report-{now:%Y%m%d-%H%M%S}.tar.gz"


def _refuse_existing(file: Path) -> None:
    """Raise if something is there.

    Raises:
        UsageError: ``report.exists``.
    """
    from edgefed.errors import UsageError

    if file.exists() or file.is_symlink():
        raise UsageError(
            f"{file} exists.", code="report.exists", hint="name another file with --output"
        )


def _packed(parts: Sequence[ReportPart], folder: str) -> bytes:
    """Return a compressed archive with the parts in one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for part in parts:
            content = part.text.encode(errors="replace")
            entry = tarfile.TarInfo(f"{folder}/{part.name}")
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
