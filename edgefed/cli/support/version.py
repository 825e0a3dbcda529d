"""``edgefed version``: the versions for a bug report."""

from __future__ import annotations

import platform

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.console import columns
from edgefed.version import PROTOCOL, VERSION

EPILOG = examples("edgefed version", "edgefed version --json")
PACKAGES = ("torch", "torchvision", "paho-mqtt", "textual", "typer", "pydantic", "msgpack", "numpy")


def version(context: typer.Context) -> None:
    """Print the versions of edgefed, its protocol, Python and its main libraries."""
    answer = versions()
    globals_of(context).answer(answer, columns(list(answer.items())))


def versions() -> dict[str, str]:
    """Return the versions by name of the program or package."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    by_package = {
        "edgefed": VERSION,
        "protocol": str(PROTOCOL),
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            by_package[package] = installed(package)
        except PackageNotFoundError:
            by_package[package] = "not installed"
    return by_package
