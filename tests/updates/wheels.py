"""Tiny real wheels, and repositories of releases made of them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from edgefed.trust import releases
from edgefed.trust.releases import ReleaseRepository

NOW = datetime.now(timezone.utc)


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str] = {},
    metadata: str = "",
) -> Path:
    """Write a pure wheel with some modules, and further lines of metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}"
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    whole = {**files, f"{info}/METADATA": meta, f"{info}/WHEEL": tags}
    record = "".join(f"{each},,\n" for each in (*whole, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in {**whole, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(each), text)
    return path


class Publisher:
    """A release manager with a repository.

    Attributes:
        folder: the repository.
        keys: the offline keys.
        root: what devices pin.
    """

    def __init__(self, folder: Path, now: datetime = NOW, days: float = 30.0) -> None:
        self.folder, self.keys, self._wheels = folder / "repository", folder / "keys", folder
        self.root = releases.create(self.folder, self.keys, now, days)

    def publish(
        self,
        release: str,
        files: Mapping[str, str] = {},
        others: Mapping[str, str] = {},
        *,
        now: datetime = NOW,
        days: float = 30.0,
    ) -> None:
        """Publish a release: a wheel of edgefed with these modules, and wheels of other names."""
        wheels = self._wheels / f"wheels-{release}"
        version = release if release[0].isdigit() else f"9.{len(list(self._wheels.iterdir()))}"
        make_wheel(wheels, "edgefed", version, {"edgefed/__init__.py": "", **files})
        for name, version in others.items():
            make_wheel(wheels, name, version, {f"{name}.py": f"VERSION = '{version}'\n"})
        repository = ReleaseRepository(self.folder, now)
        repository.add(release, wheels, self.keys)
        repository.sign(days)
