"""Install a package's source with pip into a virtual environment of the test."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path


def install(source: Path, folder: Path, *, editable: bool = False) -> Path:
    """Return the folder of packages of a new virtual environment that a package is installed in.

    Args:
        source: holds the package's ``pyproject.toml``; it is copied, as a build writes beside it.
        folder: of the copy and the environment.
        editable: whether the copy stays the source of the installed package.
    """
    copied, environment = folder / "source", folder / "venv"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(source, copied, ignore=ignored)
    venv.create(environment)
    words = ["install", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    place = ["--prefix", str(environment), *(["--editable"] if editable else []), str(copied)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, *place],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = list(environment.glob("lib/python*/site-packages"))
    assert len(found) == 1, found
    return found[0]
