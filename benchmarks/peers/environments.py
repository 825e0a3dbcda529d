"""Virtual environments for the peers, created once and kept; they use the torch of this one.

A peer's own packages take precedence; a ``.pth`` file adds the packages of this environment, so
that all use the same torch and nothing large is installed twice.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

PACKAGES = {
    "pfl": ("pfl==0.6.0",),
    "flower": ("flwr[simulation]==1.41.0", "ray==2.55.1"),
}
"""What each peer needs."""

LENT = "zz_lent.pth"


def python_of(peer: str, cache: Path) -> Path:
    """Return the interpreter of a peer's environment, making it the first time.

    Raises:
        subprocess.CalledProcessError: its packages cannot be installed.
    """
    folder = cache / f"{peer}-{sys.version_info.major}.{sys.version_info.minor}"
    python, done = folder / "bin" / "python", folder / "complete"
    wanted = "\n".join(PACKAGES[peer])
    if not (done.exists() and done.read_text() == wanted):
        print(f"installing {peer} into {folder} (once)", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        _lend(folder)
        _install(python, PACKAGES[peer])
        done.write_text(wanted)
    return python


def _lend(folder: Path) -> None:
    """Let an environment fall back on what is installed here."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    here = sysconfig.get_paths()["purelib"]
    (folder / "lib" / version / "site-packages" / LENT).write_text(f"{here}\n")


def _install(python: Path, packages: Sequence[str]) -> None:
    """Install packages quietly; what pip has to say goes to stderr."""
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
    subprocess.run(command, check=True, stdout=sys.stderr)
