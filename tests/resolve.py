"""Check that the requirements resolve for every supported Python; nothing is installed.

Started with ``python -m tests.resolve [3.10 …]``, or with ``make resolve``. It needs the package
registry and takes minutes, so the test suite does not run it.

pip evaluates environment markers for the Python that runs it, not for ``--python-version``. This
program evaluates them for the target: first those in ``pyproject.toml``, then those of every
package that pip chose, until no requirement is missing. torch and torchvision are very large, and
pip may have to download a wheel to read its metadata; for these two it checks only that the
registry has wheels of two versions that fit together, not what torch itself requires.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
LARGE = ("torch", "torchvision")
"""Packages that are not resolved together with the others."""

WHEELS = ("--only-binary=:all:", "--disable-pip-version-check", "--python-version")


def environment(version: str) -> dict[str, str]:
    """Return this machine's marker environment, with another Python version."""
    full = f"{version}.0"
    target = {"python_full_version": full, "implementation_version": full}
    return {**cast("dict[str, str]", default_environment()), "python_version": version, **target}


def required(texts: Iterable[str], version: str, extras: Sequence[str] = ()) -> Iterator[str]:
    """Yield the requirements that apply to a Python version, without their markers."""
    for text in texts:
        requirement = Requirement(text)
        marker, values = requirement.marker, environment(version)
        if marker is None or any(
            marker.evaluate({**values, "extra": extra}) for extra in ("", *extras)
        ):
            requirement.marker = None
            yield str(requirement)


def declared() -> list[str]:
    """Return what ``.[demo,dev]`` requires, as ``pyproject.toml`` says it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *extras["demo"], *extras["dev"]]


def name_of(requirement: str) -> str:
    """Return the normalised name of a requirement's package."""
    return canonicalize_name(Requirement(requirement).name)


def missing(chosen: Sequence[dict[str, Any]], version: str) -> set[str]:
    """Return requirements of chosen packages that apply to a version, but were not chosen.

    Args:
        chosen: the packages, as pip's installation report lists them.
        version: the target's.
    """
    there = {canonicalize_name(each["metadata"]["name"]) for each in chosen}
    return {
        text
        for each in chosen
        for text in required(
            each["metadata"].get("requires_dist", []), version, each.get("requested_extras", [])
        )
        if name_of(text) not in there and name_of(text) not in LARGE
    }


def resolve(version: str, folder: Path) -> list[str]:
    """Return the chosen packages with their versions.

    Raises:
        CalledProcessError: pip finds no solution.
    """
    wanted = {text for text in required(declared(), version) if name_of(text) not in LARGE}
    while True:
        chosen = choose(version, folder, sorted(wanted), "-c", str(ROOT / "constraints.txt"))
        more = missing(chosen, version)
        if not more:
            return [f"{each['metadata']['name']}=={each['metadata']['version']}" for each in chosen]
        wanted |= more


def large(version: str, folder: Path) -> list[str]:
    """Return the newest torchvision for which there is the torch that it requires.

    Raises:
        SystemExit: there is no such pair within the declared bounds.
    """
    bounds = {name_of(text): Requirement(text).specifier for text in required(declared(), version)}
    torch = available("torch", version)
    for vision in bounds["torchvision"].filter(available("torchvision", version)):
        (chosen,) = choose(version, folder, [f"torchvision=={vision}"], "--no-deps")
        needs = required(chosen["metadata"]["requires_dist"], version)
        (specifier,) = (Requirement(text).specifier for text in needs if name_of(text) == "torch")
        for fitting in (specifier & bounds["torch"]).filter(torch):
            return [f"torch=={fitting}", f"torchvision=={vision}"]
    raise SystemExit(f"Python {version}: no torch and torchvision fit together.")


def available(name: str, version: str) -> list[str]:
    """Return the versions of a package that have wheels, newest first."""
    told = pip("index", "versions", *WHEELS, version, name)
    listed = re.search(r"^Available versions: (.*)$", told, re.MULTILINE)
    return listed[1].split(", ") if listed else []


def choose(
    version: str, folder: Path, requirements: Sequence[str], *options: str
) -> list[dict[str, Any]]:
    """Return the packages that pip would install for a version, as its report lists them."""
    report = folder / "report.json"
    command = ["install", "--quiet", "--dry-run", "--ignore-installed", "--target", str(folder)]
    pip(*command, "--report", str(report), *WHEELS, version, *options, *requirements)
    chosen: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
    return chosen


def pip(*arguments: str) -> str:
    """Run pip and return what it prints."""
    return subprocess.run(
        [sys.executable, "-m", "pip", *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main() -> None:
    """Resolve for the versions that the command line names, or for all."""
    for version in sys.argv[1:] or VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            chosen = resolve(version, Path(folder))
            pair = " and ".join(large(version, Path(folder)))
        sys.stdout.write(f"Python {version}: {len(chosen)} packages resolve, beside {pair}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
