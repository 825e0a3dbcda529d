"""An isolated environment for each test: home, system folder, current folder, variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgefed.config.fleet.settings_files import Surroundings

MakeAround = Callable[..., Surroundings]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A folder with ``cwd``, ``home`` and ``etc`` in it."""
    for name in ("cwd", "home/.config/edgefed", "etc"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def around(folders: Path) -> MakeAround:
    """Make the surroundings of a process with the given variables."""

    def make(
        config: Path | None = None, no_config: bool = False, **environment: str
    ) -> Surroundings:
        variables = {"HOME": str(folders / "home"), **environment}
        return Surroundings(variables, folders / "cwd", config, no_config, folders / "etc")

    return make
