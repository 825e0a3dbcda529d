"""``edgefed version``: the versions for a bug report."""

from __future__ import annotations

import platform

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import Json
from edgefed.console import columns, data, json_out
from edgefed.version import PROTOCOL, VERSION

EPILOG = examples("edgefed version", "edgefed version --json")
PACKAGES = ("torch", "torchvision", "paho-mqtt", "textual", "typer", "pydantic", "msgpack", "numpy")


def version(context: typer.Context, as_json: Json = False) -> None:
    """Print the versions of edgefed, its protocol, Python and its main libraries."""
    found = versions()
    if as_json or globals_of(context).json:
        json_out(found)
    else:
        data(columns(list(found.items())))


def versions() -> dict[str, str]:
    """Return the versions by name of the program or package."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    found = {"edgefed": VERSION, "protocol": str(PROTOCOL), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = installed(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
