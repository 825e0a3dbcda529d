"""Try the wheel in a fresh environment for each role, with the packages of that role alone.

The packages come from this environment, by links, so that torch is neither copied nor fetched.

    python -m tests.role_wheels
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

CALLS = {
    "agent": ("edgefed-agent version", "edgefed-agent run --help", "edgefed-agent mixes --help"),
    "coordinator": ("edgefed version", "edgefed coordinator --help", "edgefed broker --help"),
    "ui": ("edgefed version", "edgefed ui --help", "edgefed run --help"),
}
"""Commands of each role; they are to end with exit code 0."""

MODULES = {
    "agent": ("device_agent.daemon.agent", "device_agent.tasks.training_child"),
    "coordinator": ("edgefed.coordinator.process.service", "edgefed.report.html"),
    "ui": ("edgefed.cli.programs.show_dashboard", "edgefed.tui.app"),
}

ABSENT = {
    "agent": ("textual", "segno", "amqtt", "sklearn"),
    "coordinator": ("textual", "amqtt", "sklearn"),
    "ui": ("amqtt", "sklearn"),
}
"""Packages of other roles, which a role's environment is to lack."""


def needed(name: str, extras: frozenset[str], seen: set[str]) -> Iterator[str]:
    """Yield the installed distributions that one needs, with all that these need."""
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            continue
        if requirement.name not in seen:
            seen.add(requirement.name)
            try:
                distribution(requirement.name)
            except PackageNotFoundError:
                continue  # for another platform
            yield requirement.name
            yield from needed(requirement.name, frozenset(requirement.extras), seen)


def link(name: str, packages: Path) -> None:
    """Link the top folders and modules of a distribution."""
    found = distribution(name)
    for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
        target, place = Path(str(found.locate_file(top))), packages / top
        if target.is_dir() and place.is_symlink():  # a namespace of several distributions
            continue
        if top != "__pycache__" and target.exists() and not place.exists():
            place.symlink_to(target)


def try_role(role: str, wheel: Path, folder: Path) -> None:
    """Install the wheel for a role, and run the role's commands.

    Raises:
        CalledProcessError: one failed.
    """
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    install = ("install", "-q", "--no-deps", "--target", str(packages), str(wheel))
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    (installed,) = packages.glob("edgefed-*.dist-info")
    metadata = (installed / "METADATA").read_text().splitlines()
    own = [line.partition(": ")[2] for line in metadata if line.startswith("Requires-Dist: ")]
    seen: set[str] = set()
    for text in own:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": role}):
            seen.add(requirement.name)
            for name in (requirement.name, *needed(requirement.name, frozenset(), seen)):
                link(name, packages)
    script = "import sys; from {} import main; sys.argv = sys.argv[1:]; main()"
    for call in CALLS[role]:
        program, *words = call.split()
        module = "device_agent.entry" if program == "edgefed-agent" else "edgefed.cli.entry"
        command: list[str | Path] = [python, "-I", "-c", script.format(module), program, *words]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    imports = f"import importlib.util as u, {', '.join(MODULES[role])}"
    check = f"assert not [n for n in {ABSENT[role]!r} if u.find_spec(n)]"
    subprocess.run([python, "-I", "-c", f"{imports}; {check}"], check=True, cwd=folder)


def main() -> None:
    """Build the wheel and try each role."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = ("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder))
        subprocess.run([sys.executable, "-m", "pip", *build, str(ROOT)], check=True)
        (wheel,) = folder.glob("edgefed-*.whl")
        for role in CALLS:
            try_role(role, wheel, folder / role)
            sys.stdout.write(f"{role}: works\n")


if __name__ == "__main__":
    main()
