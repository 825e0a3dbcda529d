"""Build the Debian package: EdgeFed's wheel, its services and settings, and scripts for dpkg.

python deploy/debian/make_deb.py [--wheels FOLDER] [--extras agent,coordinator,ui] [--out dist]

The package has no torch and installs none: a board keeps its manufacturer's. Its script postinst
makes the virtual environment /opt/edgefed above the packages of the system. What else the wheel
needs comes from the wheels in the package, or without --wheels from pip's package index.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from edgefed.trust.releases import NEVER

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

PRODUCT = (
    *("edgefed", "device_agent", "broker"),
    *("setup.py", "pyproject.toml", "README.md", "LICENSE"),
)
"""What a wheel is built of; a build in the checkout could find files of an earlier one."""

UNITS = tuple(f"edgefed-{kind}.service" for kind in ("agent", "broker", "coordinator"))

MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "armhf"}
"""Debian's names of what the names of wheels end with."""

CONTROL = """\
Package: edgefed
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {kilobytes}
Depends: {python}, python3-venv, adduser
Recommends: mosquitto
Section: science
Priority: optional
Description: federated learning over a fleet of edge devices
 The agent of a device, and the coordinator and the broker of a fleet, as services of
 systemd. They are to be configured before they are enabled.
 .
 torch is neither in this package nor installed by it: a board keeps its manufacturer's.
"""


def build_wheel(folder: Path) -> Path:
    """Build EdgeFed's wheel with this Python's setuptools, without the package index."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        for part in PRODUCT:
            if (ROOT / part).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so")
                shutil.copytree(ROOT / part, source / part, ignore=ignored)
            else:
                shutil.copy(ROOT / part, source)
        build = "import sys; from setuptools.build_meta import build_wheel as b; b(sys.argv[1])"
        command = [sys.executable, "-c", build, str(folder.absolute())]
        done = subprocess.run(
            command, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if done.returncode:
            raise SystemExit(f"The wheel was not built:\n{done.stdout.decode()}")
    return next(folder.glob("edgefed-*.whl"))


def requirements(wheel: Path, extras: Sequence[str]) -> Iterator[str]:
    """Yield what EdgeFed needs with these extras, torch and its companions excepted.

    Raises:
        SystemExit: there is no such extra.
    """
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    if unknown := set(extras) - set(metadata.get_all("Provides-Extra", [])):
        raise SystemExit(f"EdgeFed has no extra {', '.join(sorted(unknown))}.")
    for text in metadata.get_all("Requires-Dist", []):
        line, _, marker = text.partition(";")
        extra = re.search(r"""(?: and )?\(?extra == ['"]([\w-]+)['"]\)?""", marker)
        if (extra and extra[1] not in extras) or NEVER.match(line):
            continue
        rest = marker.replace(extra[0], "").strip() if extra else marker.strip()
        yield f"{line.strip()}; {rest}" if rest else line.strip()


def unmet(lines: Sequence[str], wheels: Sequence[Path]) -> list[str]:
    """Return the requirements of this Python that no wheel meets; not those of the wheels."""
    versions = defaultdict(list)
    for wheel in wheels:
        name, version, _, _ = parse_wheel_filename(wheel.name)
        versions[name].append(version)
    asked = [Requirement(line) for line in lines]
    return [
        f"{each.name}{each.specifier}"
        for each in asked
        if (each.marker is None or each.marker.evaluate())
        and not any(each.specifier.filter(versions[canonicalize_name(each.name)]))
    ]


def debian_version(version: Version) -> str:
    """Return a version that dpkg orders as pip does: ``1.0rc1`` is before ``1.0``."""
    public, plus, local = str(version).partition("+")
    return re.sub(r"(a|b|rc)(\d)", r"~\1\2", public.replace(".dev", "~~dev")) + plus + local


def needed_machine(wheels: Sequence[Path]) -> tuple[str, str]:
    """Return the package's architecture and its dependency on Python.

    Raises:
        SystemExit: no machine can use all of the wheels.
    """
    architectures: set[str] = set()
    pythons: dict[str, set[int]] = defaultdict(set)
    for wheel in wheels:
        name, _, _, tags = parse_wheel_filename(wheel.name)
        for tag in tags:
            if tag.platform != "any":
                known = (MACHINES[each] for each in MACHINES if tag.platform.endswith(each))
                architectures.add(next(known, tag.platform))
            if tag.interpreter == tag.abi:  # of this version of Python alone
                pythons[name].add(int(tag.interpreter.removeprefix("cp3")))
    if len(architectures) > 1 or architectures - set(MACHINES.values()):
        raise SystemExit(f"One package cannot be for {' and '.join(sorted(architectures))}.")
    minors = set.intersection(*pythons.values()) if pythons else set()
    if pythons and not minors:
        raise SystemExit(f"No version of Python suits all of {', '.join(sorted(pythons))}.")
    bound = f", python3 (<< 3.{max(minors) + 1})" if minors else ""
    return next(iter(architectures), "all"), f"python3 (>= 3.{min(minors, default=10)}){bound}"


def fill(tree: Path, wheels: Sequence[Path], lines: Sequence[str]) -> None:
    """Write the files that the package installs, with Debian's modes."""
    home = tree / "opt" / "edgefed"
    files = dict.fromkeys(wheels, home / "wheels")
    files |= {HERE.parent / unit: tree / "lib" / "systemd" / "system" for unit in UNITS}
    files |= dict.fromkeys((HERE / "etc").iterdir(), tree / "etc" / "edgefed")
    files[ROOT / "LICENSE"] = tree / "usr" / "share" / "doc" / "edgefed"
    for path, folder in files.items():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / ("copyright" if path.name == "LICENSE" else path.name))
    (home / "requirements.txt").write_text("".join(f"{line}\n" for line in lines))
    for name in ("edgefed", "edgefed-agent"):  # the default state folders of the services
        (tree / "var" / "lib" / name).mkdir(parents=True)
    for path in (tree, *tree.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o600 if path.suffix == ".env" else 0o644)


def build(tree: Path, control: str, out: Path) -> None:
    """Write what dpkg reads itself, and pack the tree."""
    dpkg = tree / "DEBIAN"
    dpkg.mkdir(mode=0o755)
    settings = sorted((tree / "etc" / "edgefed").iterdir())
    texts = {
        "control": control,
        "conffiles": "".join(f"/{path.relative_to(tree)}\n" for path in settings),
        **{name: (HERE / name).read_text("utf-8") for name in ("postinst", "prerm", "postrm")},
    }
    for name, text in texts.items():
        (dpkg / name).write_text(text, "utf-8")
        (dpkg / name).chmod(0o644 if name in ("control", "conffiles") else 0o755)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Wheels are compressed already, which xz would take minutes to find
    compression = ("-Zgzip", "-z1")
    command = ["dpkg-deb", "--root-owner-group", *compression, "--build", str(tree), str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Build the package, and print its path."""
    parser = argparse.ArgumentParser(description="Build EdgeFed's Debian package.")
    parser.add_argument(
        "--wheels", type=Path, help="wheels to carry; of EdgeFed's too, it is not built"
    )
    parser.add_argument("--extras", default="agent,coordinator,ui", help="roles, with commas")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder of the package")
    parser.add_argument(
        "--requirements", action="store_true", help="only print what the wheels have to meet"
    )
    given = parser.parse_args()
    if given.wheels and not given.wheels.is_dir():
        parser.error(f"there is no folder {given.wheels}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = sorted(given.wheels.glob("*.whl")) if given.wheels else []
        carried = [wheel for wheel in found if not NEVER.match(wheel.name)]
        for wheel in set(found) - set(carried):
            sys.stderr.write(f"left out: {wheel.name}\n")
        own = [wheel for wheel in carried if wheel.name.startswith("edgefed-")]
        if len(own) > 1:
            raise SystemExit(f"{given.wheels} has several wheels of EdgeFed.")
        wheel = own[0] if own else build_wheel(folder)
        lines = list(requirements(wheel, [each for each in given.extras.split(",") if each]))
        if given.requirements:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            return
        offline = ["--no-index"] if given.wheels else []
        wheels = sorted({*carried, wheel})
        if given.wheels and (absent := unmet(lines, wheels)):
            raise SystemExit(f"{given.wheels} has no wheel for {', '.join(absent)}.")
        tree = folder / "tree"
        fill(tree, wheels, [*offline, "--find-links /opt/edgefed/wheels", *lines])
        architecture, python = needed_machine(wheels)
        person = (
            os.environ.get("DEBFULLNAME", "EdgeFed"),
            os.environ.get("DEBEMAIL", "root@localhost"),
        )
        size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())
        version = debian_version(parse_wheel_filename(wheel.name)[1])
        control = CONTROL.format(
            version=version,
            architecture=architecture,
            maintainer="{} <{}>".format(*person),
            kilobytes=size // 1024 + 1,
            python=python,
        )
        out = given.out / f"edgefed_{version}_{architecture}.deb"
        build(tree, control, out)
    sys.stdout.write(f"{out}\n")


if __name__ == "__main__":
    main()
