"""An agent is installed beside the torch of a board's maker, which pip is not to replace."""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.metadata import distributions, metadata, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.updates.wheels import make_wheel

pytestmark = pytest.mark.slow

MAKERS = {"torch": "2.5.0a0+872d972e41.nv24.8", "torchvision": "0.20.0a0+afc54f7"}
"""Versions as NVIDIA names them: pre-releases with a local part."""


def _pip(python: Path, *words: str) -> str:
    pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check")
    command = [*pip, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_pip_keeps_the_torch_that_is_there(tmp_path: Path) -> None:
    venv.create(tmp_path / "agent")
    python = tmp_path / "agent" / "bin" / "python"
    (packages,) = (tmp_path / "agent").glob("lib/python*/site-packages")
    needs = [Requirement(text) for text in requires("edgefed") or ()]
    wanted = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    shop = tmp_path / "shop"
    for need in wanted:  # of the newest that each allows, here a number that is high enough
        make_wheel(shop, need.name.replace("-", "_"), "2.1" if need.name == "paho-mqtt" else "999")
    lines = "".join(f"Requires-Dist: {need}\n" for need in wanted)
    make_wheel(shop, "edgefed", "0.1.0", metadata=lines)
    maker = [
        str(make_wheel(tmp_path / "maker", name, version, {f"{name}.py": f"'{version}'\n"}))
        for name, version in MAKERS.items()
    ]
    _pip(python, "install", "--no-index", "--no-deps", *maker)

    _pip(python, "install", "--no-index", "--find-links", str(shop), "edgefed")
    for name, version in MAKERS.items():
        assert (packages / f"{name}.py").read_text() == f"'{version}'\n"
        (found,) = distributions(name=name, path=[str(packages)])
        assert found.version == version


def test_an_older_python_is_refused_by_pip() -> None:
    """JetPack 5 has Python 3.8."""
    assert metadata("edgefed")["Requires-Python"] == ">=3.10"
