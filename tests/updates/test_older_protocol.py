"""A coordinator that was updated first: devices of the protocol version before go on training."""

from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from broker.child_process import ending_with_parent
from edgefed.config.recipes.recipe import Recipe
from edgefed.report.run_data import EVENTS
from edgefed.simulator.local_fleet import device_names
from edgefed.version import OLDEST_PROTOCOL, PROTOCOL, VERSION
from tests.faults.fleet_processes import fleet
from tests.processes import clean_environment
from tests.programs.older_agent import VARIABLE

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]


ROOT = Path(__file__).parents[2]
RELEASED = "0.1.0"
COMMIT = "248ff46b2d8a778335374e1806700b487577d9a2"
"""The commit of tag v0.1.0, which speaks version 6; a copy of the history may lack the tag."""
PARTS = (
    *("edgefed", "device_agent", "broker"),
    *("setup.py", "pyproject.toml", "README.md", "LICENSE"),
)
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def test_devices_of_the_version_before_train_with_those_of_this_one(tmp_path: Path) -> None:
    """The older one is a wheel of v0.1.0 where git has it, and a stand-in in a copy without."""
    assert OLDEST_PROTOCOL == PROTOCOL - 1
    recipe = Recipe.model_validate(
        {
            "model": {"name": "mlp", "hidden": [4]},
            "rounds": {"count": 2, "min_devices": 2},
            "simulation": {"devices": 2},
            "data": {"limit": 100},
        }
    )
    older, newer = device_names(2)
    stand_in = {"agent": "tests.programs.older_agent", "variables": {older: {VARIABLE: "1"}}}
    with ExitStack() as stack:
        home = stack.enter_context(fleet(tmp_path, recipe, absent=[older], **stand_in))
        site = tmp_path / "site"
        if released := install_release(tmp_path / "tree", site):
            words = home._command(older)[1:]
            stack.enter_context(run_older(site, words, tmp_path / f"{older}.log"))
        else:
            home.start(older)
        home.wait_for_devices(2)
        if released:
            seen = {name: each["agent"] for name, each in home.devices().items()}
            assert seen == {older: RELEASED, newer: VERSION}
        mixed = home.finish(home.begin())
        text = (Path(mixed["folder"]) / EVENTS).read_text()
        replies = [each for each in map(json.loads, text.splitlines()) if each["kind"] == "reply"]
        fits = [each for each in replies if each["question"] == "fit"]
        assert [each["outcome"] for each in fits] == ["accepted"] * 4
        # Replies tell the bytes of downloads since version 7
        assert {each["device"] for each in fits if each.get("download_bytes")} == {newer}
        log = (tmp_path / f"{older}.log").read_text()
        assert "connected" in log and "refused" not in log


def install_release(tree: Path, site: Path) -> bool:
    """Install a wheel of v0.1.0 in a folder, and return whether it is in the history."""
    words = ("git", "archive", COMMIT, *PARTS)
    if shutil.which("git") is None:
        return False
    archive = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        return False
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(tree, filter="data")
    uncompiled = {**clean_environment(), "CC": "false"}  # torch does what its kernels would
    subprocess.run([sys.executable, "-c", BUILD, str(tree)], cwd=tree, env=uncompiled, check=True)
    (wheel,) = tree.glob("*.whl")
    plain = ("--no-index", "--no-deps", "--no-compile")
    install = ("pip", "install", *plain, "--target", str(site), str(wheel))
    subprocess.run([sys.executable, "-m", *install], check=True)
    shutil.rmtree(tree)
    return True


@contextmanager
def run_older(site: Path, words: list[str], log: Path) -> Iterator[None]:
    """Run the agent that is installed in a folder, for the time of the block."""
    command = [sys.executable, str(site / "bin" / "edgefed-agent"), *words]
    environment = {**clean_environment(), "PYTHONPATH": str(site)}
    with log.open("ab") as said:
        agent = subprocess.Popen(
            ending_with_parent(command, signal.SIGKILL),
            cwd=site,
            env=environment,
            stdout=said,
            stderr=said,
        )
        try:
            yield
        finally:
            agent.kill()
            agent.wait(60.0)
