"""Install plug-ins as a package, for this process and those that it starts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgefed.algorithms.composed.registry import PLUGINS
from edgefed.files import source_digest
from edgefed.files.plugins import installed
from edgefed.files.source_digest import package_digest

ROOT = Path(__file__).parents[1]


def write_package(
    site: Path, package: str, points: Mapping[str, str], group: str = PLUGINS.group
) -> None:
    """Write what tells Python of a package with plug-ins.

    Args:
        site: a folder of ``sys.path``, created when missing.
        package: its name.
        points: ``module:object`` by the plug-in's name.
        group: of its entry points; algorithms when left out.
    """
    folder = site / f"{package}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {place}\n" for name, place in points.items())
    (folder / "entry_points.txt").write_text(f"[{group}]\n{lines}")


@contextmanager
def importable(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process and those that it starts import from a folder, and find its packages."""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}")
    importlib.invalidate_caches()
    _forget()
    try:
        yield
    finally:
        _forget()


def _forget() -> None:
    """Forget the packages that this process found, and their sources."""
    for known in (installed, package_digest):
        known.cache_clear()
    source_digest._digests.clear()
