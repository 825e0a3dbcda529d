"""Let the wall clock of single programs jump, by a library that is preloaded into them.

Python before 3.11 waits for locks by the wall clock, and such a wait would not notice a jump that
the kernel knows nothing of; clocks are not shifted there.
"""

from __future__ import annotations

import ctypes
import mmap
import shutil
import struct
import subprocess
import sys
from pathlib import Path

VARIABLE = "SHIFTED_CLOCK"
"""Names a program's file to it."""


def can_shift_clocks() -> bool:
    """Whether clocks can be shifted on this machine."""
    return sys.platform.startswith("linux") and sys.version_info >= (3, 11) and bool(_compiler())


class ShiftedClocks:
    """The wall clocks of some programs, each with an offset of its own.

    Args:
        folder: of the library and a file for each clock; it exists.

    Attributes:
        library: to be preloaded into the programs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clocks: dict[str, mmap.mmap] = {}
        self.library = folder / "shifted_clock.so"
        source = Path(__file__).with_suffix(".c")
        command = [_compiler(), "-shared", "-fPIC", "-O2", "-o", str(self.library), str(source)]
        subprocess.run([*command, "-ldl"], check=True)

    def environment(self, name: str) -> dict[str, str]:
        """Return what a program that is executed needs in its environment."""
        return {"LD_PRELOAD": str(self.library), VARIABLE: str(self._file(name))}

    def jump(self, name: str, seconds: int) -> None:
        """Let a program's clock differ from the machine's by so many seconds from now on."""
        self._file(name)
        self._clocks[name][:8] = struct.pack("=q", seconds)

    def _file(self, name: str) -> Path:
        path = self._folder / f"{name}.clock"
        if name not in self._clocks:
            path.write_bytes(bytes(8))
            with path.open("r+b") as file:
                self._clocks[name] = mmap.mmap(file.fileno(), 8)
        return path


def follow_own_clock(path: str) -> None:
    """Let this process, which was forked with the library loaded, follow a clock of its own."""
    if ctypes.CDLL(None).shifted_clock_open(path.encode()):
        raise OSError(f"cannot follow the clock {path}")


def _compiler() -> str:
    return shutil.which("cc") or ""
