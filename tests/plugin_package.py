"""Install algorithms as a package, for this process and those that it starts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgefed.algorithms import registry
from edgefed.algorithms.plugins import GROUP

ROOT = Path(__file__).parents[1]


def write_package(site: Path, package: str, points: Mapping[str, str]) -> None:
    """Write what tells Python of a package with algorithms.

    Args:
        site: a folder of ``sys.path``, created when missing.
        package: its name.
        points: ``module:class`` by the algorithm's name.
    """
    folder = site / f"{package}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {place}\n" for name, place in points.items())
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}")


@contextmanager
def importable(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process and those that it starts import from a folder, and find its packages."""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}")
    importlib.invalidate_caches()
    registry.offered.cache_clear()
    try:
        yield
    finally:
        registry.offered.cache_clear()
