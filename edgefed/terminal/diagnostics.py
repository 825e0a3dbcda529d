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
from edgefed.version import TESTED_TORCH

MARKS = {"good": "✓", "warning": "!", "bad": "✗"}
LOW_DISK = 1024**3


@dataclass(frozen=True)
class Diagnosis:
    """The result of one check.

    Attributes:
        fix: advice; empty for none.
    """

    name: str
    state: Literal["good", "warning", "bad"]
    text: str
    fix: str = ""


def look_at(name: str, check: Callable[[], str]) -> Diagnosis:
    """Return the result of a check; an EdgeFed error is a bad finding with its hint as the fix."""
    try:
        return Diagnosis(name, "good", check())
    except EdgeFedError as error:
        return failed(name, error)


def failed(name: str, error: EdgeFedError) -> Diagnosis:
    """Return an EdgeFed error as a finding: its hint is the fix."""
    return Diagnosis(name, "bad", error.message, error.hint)


def python() -> Diagnosis:
    """Check the interpreter."""
    return Diagnosis("python", "good", ".".join(str(part) for part in sys.version_info[:3]))


def disk(folder: Path) -> Diagnosis:
    """Check the free space of the state folder, and state the size of its folders."""
    from edgefed.files.writing import file_states
    from edgefed.terminal.units import size

    there = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    if not os.access(there, os.W_OK):
        return Diagnosis("disk", "bad", f"{there} cannot be written", "choose another --state")
    free = shutil.disk_usage(there).free
    state: Literal["good", "warning"] = "good" if free > LOW_DISK else "warning"
    fix = "" if state == "good" else "free some space, for example with: edgefed cache prune"
    sizes = {
        path.name: sum(status.st_size for status in file_states(path))
        for path in sorted(folder.glob("*"))
        if path.is_dir()
    }
    used = ", ".join(f"{name} {size(count)}" for name, count in sizes.items() if count)
    return Diagnosis("disk", state, f"{size(free)} free at {there}{used and '; ' + used}", fix)


GPU_FILES = ("/dev/nvidia0", "/dev/nvgpu", "/dev/nvhost-gpu", "/dev/nvmap", "/dev/kfd", "/dev/dxg")
"""Device files of GPUs: NVIDIA's, of boards too, AMD's, and those of Windows' Linux."""


def unused_gpu(gpus: Sequence[str] = GPU_FILES) -> str:
    """Return the device file of a GPU that torch cannot use; empty if there is none."""
    import torch

    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
    return "" if hidden or torch.cuda.is_available() else next(filter(os.path.exists, gpus), "")


def torch_and_accelerator(gpus: Sequence[str] = GPU_FILES) -> Diagnosis:
    """Check torch and the accelerators that it can use.

    A torch that cannot use the GPU of the machine is a warning, and one newer than tested.
    """
    try:
        import torch
    except ImportError as error:
        return Diagnosis("torch", "bad", f"does not import: {error}", "pip install torch")
    has_cuda = torch.cuda.is_available()
    place = torch.cuda.get_device_name(0) if has_cuda else "the CPU; no CUDA device"
    text = f"{torch.__version__} on {place}"
    if gpu := unused_gpu(gpus):
        text += f", although there is {gpu}"
        return Diagnosis("torch", "warning", text, "install the torch that is built for this GPU")
    if _major_and_minor(torch.__version__) <= _major_and_minor(TESTED_TORCH):
        return Diagnosis("torch", "good", text)
    text += f"; newer than {TESTED_TORCH}, the newest version that was tested"
    return Diagnosis("torch", "warning", text, f"if training fails, install torch {TESTED_TORCH}")


def _major_and_minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def kernels() -> Diagnosis:
    """Check the compiled kernels, which only improve speed."""
    from edgefed.native.library import native

    compiled = native()
    if compiled.library is not None:
        return Diagnosis("kernels", "good", f"compiled, {compiled.lanes} floats at a time")
    fix = "install a C compiler, then EdgeFed again" if compiled.reason == "not built" else ""
    return Diagnosis("kernels", "warning", f"not in use: {compiled.reason}", fix)


def plug_ins(listed: Sequence[Listed]) -> list[Diagnosis]:
    """Check the plug-ins of installed packages."""
    usable = [
        f"{plug_in.kind} {plug_in.name} of {plug_in.package}"
        for plug_in in listed
        if not plug_in.problem
    ]
    return [
        Diagnosis("plug-ins", "good", ", ".join(usable) or "none in use"),
        *(
            Diagnosis("plug-in", "bad", plug_in.problem, f"repair or uninstall {plug_in.package}")
            for plug_in in listed
            if plug_in.problem
        ),
    ]


def as_rows(findings: Sequence[Diagnosis]) -> list[tuple[str, ...]]:
    """Return the findings as lines of a table."""
    rows: list[tuple[str, ...]] = []
    for finding in findings:
        fix = f"  fix: {finding.fix}" if finding.fix else ""
        rows.append((MARKS[finding.state], finding.name, finding.text + fix))
    return rows


def as_json(findings: Sequence[Diagnosis]) -> list[dict[str, Any]]:
    """Return the findings as JSON values."""
    return [asdict(finding) for finding in findings]


def verdict(findings: Sequence[Diagnosis]) -> CheckFailedError | None:
    """Return the error to end with if any finding is bad."""
    bad = [finding.name for finding in findings if finding.state == "bad"]
    if not bad:
        return None
    return CheckFailedError(
        f"{len(bad)} of {len(findings)} checks found problems: {', '.join(bad)}.",
        code="doctor",
        hint="see the lines marked ✗",
    )
