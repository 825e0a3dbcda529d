"""Slots: a virtual environment for each release, above the packages that the board has.

A slot sees the packages of the base environment after its own, so that torch is the board's.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from device_agent.updater.disk import keep, remove, rename, write_text
from device_agent.updater.state import BASE

COMPLETE = "complete"
"""File of a slot that was installed to its end: the digests of its wheels."""


class Slots:
    """The slots of an updater.

    Args:
        home: its folder.
    """

    def __init__(self, home: Path) -> None:
        self._folder = home / "slots"
        self._store = home / "store"
        self._sites = site.getsitepackages()
        base = {path: path for path in (sys.executable, *self._sites)}
        if not self.is_complete(BASE, base):  # or the board's environment has moved
            self._create(BASE)
            self.complete(BASE, base)

    def is_complete(self, slot: str, wheels: Mapping[str, str] | None = None) -> bool:
        """Whether a slot can be started, and was made of these wheels where some are named."""
        mark = self._folder / slot / COMPLETE
        if not slot or not mark.is_file():
            return False
        return wheels is None or mark.read_text(encoding="utf-8") == _mark(wheels)

    def python(self, slot: str) -> Path:
        """Return the interpreter of a slot."""
        return self._folder / slot / "bin" / "python"

    def install(self, slot: str, wheels: Mapping[str, str]) -> subprocess.Popen[str]:
        """Begin to install verified wheels into a fresh slot; return pip.

        Args:
            slot: its name.
            wheels: digests of the stored files, by name, with that of the lock, ``lock.txt``.
        """
        self._create(slot)
        folder = self._folder / slot / "wheels"
        for name, digest in wheels.items():
            keep(self._store / digest, folder / name)
        lines = (folder / "lock.txt").read_text(encoding="utf-8").splitlines(keepends=True)
        wanted = {digest for name, digest in wheels.items() if name != "lock.txt"}
        chosen = [line for line in lines if any(digest in line for digest in wanted)]
        requirements = folder / "requirements.txt"
        write_text(requirements, "".join(chosen))
        # fmt: off
        words = [
            str(self.python(slot)), "-I", "-m", "pip", "--isolated", "--disable-pip-version-check",
            "install", "--quiet", "--no-input", "--no-index", "--no-deps", "--no-cache-dir",
            "--require-hashes", "--only-binary=:all:", "--ignore-installed",
            "--no-warn-script-location", "--find-links", str(folder),
            "--requirement", str(requirements),
        ]
        # fmt: on
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=2, stderr=subprocess.PIPE, text=True
        )

    def complete(self, slot: str, wheels: Mapping[str, str]) -> None:
        """Note that a slot is installed to its end."""
        remove(self._folder / slot / "wheels")
        os.sync()  # pip does not wait for the disk
        write_text(self._folder / slot / COMPLETE, _mark(wheels))

    def stored(self, digest: str) -> bool:
        """Whether a verified file is here, of this release or another one."""
        return (self._store / digest).is_file()

    def store(self, path: Path, digest: str) -> None:
        """Keep a verified file."""
        keep(path, self._store / digest)

    def prune(self, slots: Collection[str]) -> None:
        """Delete the other slots, and the wheels that none of these has."""
        digests: set[str] = set()
        for folder in self._folder.iterdir():
            if folder.name in (BASE, *slots) and self.is_complete(folder.name):
                digests.update((folder / COMPLETE).read_text(encoding="utf-8").split())
            else:
                self._drop(folder)
        for path in self._store.iterdir() if self._store.is_dir() else ():
            if path.name not in digests:
                remove(path)

    def _create(self, slot: str) -> None:
        """Make an empty virtual environment that also sees the packages of this one."""
        folder = self._folder / slot
        self._drop(folder)
        venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
        (packages,) = folder.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({path!r})" for path in self._sites]
        (packages / "base.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _drop(self, folder: Path) -> None:
        """Delete a slot, and first that it is complete: this may be interrupted."""
        if (folder / COMPLETE).exists():
            rename(folder / COMPLETE, folder / "incomplete")
        remove(folder)


def _mark(wheels: Mapping[str, str]) -> str:
    return "\n".join(sorted(wheels.values()))


def base_has(wheel: str, release_version: str) -> bool:
    """Whether the board has the very version of a wheel's distribution; never said of EdgeFed."""
    name = wheel.partition("-")[0]
    try:
        return name != "edgefed" and version(name) == release_version
    except PackageNotFoundError:
        return False
