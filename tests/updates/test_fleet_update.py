"""A real agent is updated through the fleet by a coordinator, which then lies about releases."""

from __future__ import annotations

import json
import shutil
import signal
import site
import subprocess
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.address import LOOPBACK, free_port
from broker.child_process import ending_with_parent
from broker.mosquitto import MosquittoBroker
from edgefed.config.values.address import Address
from tests.agent.agent_harness import write_data
from tests.cli.commands import edgefed
from tests.forked_programs import ForkedProgram
from tests.processes import clean_environment
from tests.updates.wheels import Publisher

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
FLEET, NAME = "updated", "cam"
PATIENCE = 240.0


class Fleet:
    """A broker, a coordinator, and one device under its updater."""

    def __init__(self, folder: Path, publisher: Publisher) -> None:
        self.folder = folder
        self.broker = MosquittoBroker(Address(LOOPBACK, free_port()), folder / "broker")
        self._common = ("--broker", str(self.broker.address), "--fleet", FLEET)
        words = ("edgefed.cli.main", *self._common, "--state", str(folder / "c"), "coordinator")
        self.coordinator = ForkedProgram(words, clean_environment(), folder / "coordinator.log")
        settings = folder / "edgefed-agent.toml"
        settings.write_text(
            f'name = "{NAME}"\ndata = "npz:{write_data(folder / "data.npz")}"\nupdates = "auto"\n'
            f'update_root = "{publisher.root}"\nupdate_trial = 0.5\n'
        )
        common = (*self._common, "--state", str(folder / "d"), "--config", str(settings))
        self.agent = (str(base_python(folder / "base")), "-m", "device_agent.entry", *common)
        self.updater = self._start("update", "run")

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        environment = clean_environment()
        for name in ("PYTHONPATH", "EDGEFED_NO_CONFIG"):
            environment.pop(name, None)
        with (self.folder / "agent.log").open("ab") as log:
            return subprocess.Popen(
                ending_with_parent((*self.agent, *words), signal.SIGKILL),
                stderr=log,
                stdout=log,
                env=environment,
                cwd=self.folder,
            )

    def call(self, *words: str | Path) -> Any:
        """Call a command of ``edgefed agent-update``."""
        told = edgefed(*self._common, "agent-update", *words, "--json")
        assert told.code == 0, told
        return told.json

    def wait(self, **fields: str) -> dict[str, str]:
        """Wait until the coordinator knows of the device what a test wants."""
        end = time.monotonic() + PATIENCE
        row: dict[str, str] = {}
        while not row or any(text not in row[field] for field, text in fields.items()):
            assert time.monotonic() < end, (row, (self.folder / "agent.log").read_text())
            time.sleep(0.1)
            rows = self.call("status") or [{}]
            row = rows[0]
        return row

    def wait_online(self) -> None:
        """Wait until the coordinator knows the device."""
        end = time.monotonic() + PATIENCE
        while NAME not in edgefed(*self._common, "device", "list").out:
            assert time.monotonic() < end, (self.folder / "agent.log").read_text()
            time.sleep(0.1)

    def close(self) -> None:
        self.updater.terminate()
        self.updater.wait()
        self.coordinator.kill()
        self.coordinator.wait()
        self.broker.stop()


def base_python(folder: Path) -> Path:
    """Make an environment that has this tree, and the packages of the one that runs the tests."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    lines = [str(ROOT), *(f"import site; site.addsitedir({p!r})" for p in site.getsitepackages())]
    (packages / "tests.pth").write_text("\n".join(lines) + "\n")
    return folder / "bin" / "python"


def whole_package(version: str) -> dict[str, str]:
    """Return the modules and data of this tree as those of a version."""
    found = {}
    for top in ("edgefed", "device_agent", "broker"):
        for path in (ROOT / top).rglob("*"):
            if path.suffix in (".py", ".toml", ".tcss", ".typed"):
                found[str(path.relative_to(ROOT))] = path.read_text()
    own = found["edgefed/version.py"]
    return {
        **found,
        "edgefed/version.py": own.replace('VERSION = "0.1.0"', f'VERSION = "{version}"'),
    }


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    made = Publisher(tmp_path / "publisher")
    made.publish("0.1.9")
    shutil.copytree(made.folder, tmp_path / "older")
    made.publish("0.2.0", whole_package("0.2.0"), {"small": "1.0"})
    return made


@pytest.fixture
def fleet(tmp_path: Path, publisher: Publisher) -> Iterator[Fleet]:
    made = Fleet(tmp_path, publisher)
    yield made
    made.close()


def test_a_device_is_updated_and_believes_no_lie(
    fleet: Fleet, publisher: Publisher, tmp_path: Path
) -> None:
    fleet.wait_online()
    assert [one["release"] for one in fleet.call("add", publisher.folder)] == ["0.2.0", "0.1.9"]
    fleet.call("offer", "0.2.0", "--devices", NAME)
    row = fleet.wait(release="0.2.0", phase="idle")
    assert row["reason"] == "release 0.2.0 has passed its trial"
    shown = edgefed(*fleet._common, "device", "show", NAME, "--json").json
    assert shown["agent"] == "0.2.0"

    tampered = Path(shutil.copytree(publisher.folder, tmp_path / "tampered"))
    (targets,) = tampered.glob("metadata/3.targets.json")
    read = json.loads(targets.read_text())
    lock = read["signed"]["targets"]["releases/0.1.9.txt"]
    lock["custom"]["number"] = 9
    targets.write_text(json.dumps(read))
    for lie, word in ((tampered, "refused"), (tmp_path / "older", "refused")):
        fleet.call("add", lie)
        fleet.call("offer", "0.1.9", "--devices", NAME)
        row = fleet.wait(phase="idle", reason=word)
        assert row["release"] == "0.2.0"
    fleet.call("add", publisher.folder)
    fleet.call("offer", "0.1.9", "--devices", NAME)
    fleet.wait(reason="its number 1 is lower than 2")
