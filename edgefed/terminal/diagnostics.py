"""The lines of a ``doctor`` command: subject of each check, result, and advice."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from edgefed.errors import CheckFailedError, EdgeFedError
from edgefed.files.plugins import Listed

MARKS = {"good": "✓", "warning": "!", "bad": "✗"}
LOW_DISK = 1024**3


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        fix: advice; empty for none.
    """

    name: str
    state: Literal["good", "warning", "bad"]
    text: str
    fix: str = ""


def look_at(name: str, check: Callable[[], str]) -> Finding:
    """Return the result of a check; an EdgeFed error is a bad finding with its hint as the fix."""
    try:
        return Finding(name, "good", check())
    except EdgeFedError as error:
        return failed(name, error)


def failed(name: str, error: EdgeFedError) -> Finding:
    """Return an EdgeFed error as a finding: its hint is the fix."""
    return Finding(name, "bad", error.message, error.hint)


def python() -> Finding:
    """Check the interpreter."""
    return Finding("python", "good", ".".join(str(part) for part in sys.version_info[:3]))


def disk(folder: Path) -> Finding:
    """Check the free space of the state folder."""
    from edgefed.terminal.units import size

    there = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    if not os.access(there, os.W_OK):
        return Finding("disk", "bad", f"{there} cannot be written", "choose another --state")
    free = shutil.disk_usage(there).free
    state: Literal["good", "warning"] = "good" if free > LOW_DISK else "warning"
    fix = "" if state == "good" else "free some space"
    return Finding("disk", state, f"{size(free)} free at {there}", fix)


def torch_and_accelerator() -> Finding:
    """Check torch and the accelerators that it can use."""
    try:
        import torch
    except ImportError as error:
        return Finding("torch", "bad", f"does not import: {error}", "pip install torch")
    if torch.cuda.is_available():
        return Finding("torch", "good", f"{torch.__version__} on {torch.cuda.get_device_name(0)}")
    return Finding("torch", "good", f"{torch.__version__} on the CPU; no CUDA device")


def kernels() -> Finding:
    """Check the compiled kernels, which only improve speed."""
    from edgefed.native.library import native

    found = native()
    if found.library is not None:
        return Finding("kernels", "good", f"compiled, {found.lanes} floats at a time")
    fix = "install a C compiler, then EdgeFed again" if found.reason == "not built" else ""
    return Finding("kernels", "warning", f"not in use: {found.reason}", fix)


def plug_ins(listed: Sequence[Listed]) -> list[Finding]:
    """Check the plug-ins of installed packages."""
    usable = [f"{each.kind} {each.name} of {each.package}" for each in listed if not each.problem]
    return [
        Finding("plug-ins", "good", ", ".join(usable) or "none in use"),
        *(
            Finding("plug-in", "bad", each.problem, f"repair or uninstall {each.package}")
            for each in listed
            if each.problem
        ),
    ]


def as_rows(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    """Return the findings as lines of a table."""
    rows: list[tuple[str, ...]] = []
    for each in findings:
        fix = f"  fix: {each.fix}" if each.fix else ""
        rows.append((MARKS[each.state], each.name, each.text + fix))
    return rows


def as_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the findings as JSON values."""
    return [asdict(each) for each in findings]


def verdict(findings: Sequence[Finding]) -> CheckFailedError | None:
    """Return the error to end with if any finding is bad."""
    bad = [each.name for each in findings if each.state == "bad"]
    if not bad:
        return None
    return CheckFailedError(
        f"{len(bad)} of {len(findings)} checks found problems: {', '.join(bad)}.",
        code="doctor",
        hint="see the lines marked ✗",
    )
