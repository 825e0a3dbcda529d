"""A real agent is updated through the fleet by a coordinator, which then lies about releases."""

from __future__ import annotations

import json
import shutil
import signal
import site
import subprocess
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from broker.address import LOOPBACK, free_port
from broker.child_process import ending_with_parent
from broker.mosquitto import MosquittoBroker
from edgefed.config.values.address import Address
from edgefed.version import VERSION
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Birth, Progress
from edgefed.wire.topics import Topics
from tests.agent.agent_harness import write_data
from tests.cli.commands import edgefed
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram
from tests.transport.listening import wait_until
from tests.updates.wheels import Publisher

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
FLEET, NAME = "updated", "cam"
PATIENCE = 240.0
POLL = 0.5
"""Seconds between two looks; each connects anew."""
WAYS = {
    "exits": "it ended with exit code 1: cannot start",
    "hangs": "it did not start within",
    "unconnected": "did not connect",
    "probe": "the probe task failed",
    "damages": "it ended with exit code",
}
"""Ways in which a version fails on the device of this name, with the reason that is given."""


class Fleet:
    """A broker, a coordinator, and devices under their updaters."""

    def __init__(
        self,
        folder: Path,
        publisher: Publisher,
        names: Sequence[str],
        agent: str = "device_agent.entry",
    ) -> None:
        self.folder, self._agent = folder, agent
        self.broker = MosquittoBroker(Address(LOOPBACK, free_port()), folder / "broker")
        self._common = ("--broker", str(self.broker.address), "--fleet", FLEET)
        words = ("edgefed.cli.main", *self._common, "--state", str(folder / "c"), "coordinator")
        self.coordinator = ForkedProgram(words, clean_environment(), folder / "coordinator.log")
        self._python = str(base_python(folder / "base"))
        self._data, self._root = write_data(folder / "data.npz"), publisher.root
        self.updaters = [self._start(name) for name in names]

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        settings = self.folder / f"{name}.toml"
        settings.write_text(
            f'name = "{name}"\ndata = "npz:{self._data}"\nupdates = "auto"\n'
            f'update_root = "{self._root}"\nupdate_trial = 0.5\n'
        )
        common = (*self._common, "--state", str(self.folder / name), "--config", str(settings))
        words = (self._python, "-m", self._agent, *common, "update", "run")
        environment = clean_environment()
        for variable in ("PYTHONPATH", "EDGEFED_NO_CONFIG"):
            environment.pop(variable, None)
        with (self.folder / "agent.log").open("ab") as log:
            return subprocess.Popen(
                ending_with_parent(words, signal.SIGKILL),
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
            time.sleep(POLL)
            rows = self.call("status") or [{}]
            row = rows[0]
        return row

    def wait_online(self, *names: str) -> None:
        """Wait until the coordinator knows devices."""
        end = time.monotonic() + PATIENCE
        while not all(name in edgefed(*self._common, "device", "list").out for name in names):
            assert time.monotonic() < end, (self.folder / "agent.log").read_text()
            time.sleep(POLL)

    def close(self) -> None:
        for updater in self.updaters:
            updater.terminate()
        for updater in self.updaters:
            updater.wait(PATIENCE)
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
        "edgefed/version.py": own.replace(f'VERSION = "{VERSION}"', f'VERSION = "{version}"'),
    }


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    made = Publisher(tmp_path / "publisher")
    made.publish("0.1.9")
    shutil.copytree(made.folder, tmp_path / "older")
    made.publish("0.2.0", whole_package("0.2.0"), {"small": "1.0"})
    return made


def test_a_device_is_updated_and_believes_no_lie(publisher: Publisher, tmp_path: Path) -> None:
    with closing(Fleet(tmp_path, publisher, [NAME])) as fleet:
        update_and_lie(fleet, publisher, tmp_path)


def update_and_lie(fleet: Fleet, publisher: Publisher, tmp_path: Path) -> None:
    fleet.wait_online(NAME)
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


def test_a_rollout_over_20_devices_stops_at_the_first_5(tmp_path: Path) -> None:
    """Each of these fails in a way of its own; the others are connections of one client."""
    publisher = Publisher(tmp_path / "publisher")
    entry = (Path(__file__).parent / "broken_agent.py").read_text()
    beside = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n"
    wheel = {"device_agent/__init__.py": beside, "device_agent/entry.py": entry}
    publisher.publish("0.3.0", wheel)
    others = [f"other-{number}" for number in range(15)]
    fleet = Fleet(tmp_path, publisher, list(WAYS), "tests.updates.short_trials")
    fleet.wait_online(*WAYS)
    with closing(fleet), births(fleet, others) as offered:
        fleet.wait_online(*others)
        fleet.call("add", publisher.folder)
        plan = ("--first", ",".join(WAYS), "--stages", "50,100", "--stop-at", "90")
        begun = fleet.call("rollout", "0.3.0", *plan)
        assert (begun["asked"], begun["devices"]) == (5, 20)
        end = time.monotonic() + PATIENCE
        while (shown := fleet.call("progress"))["status"] == "active":
            assert time.monotonic() < end, (shown, fleet.call("status"))
            time.sleep(0.5)
        assert (shown["status"], shown["refused"], shown["asked"]) == ("stopped", 5, 5)
        for row in fleet.call("status"):
            assert row["release"] == "base", row
            assert "failed its trial, and base is back" in row["reason"], row
            assert WAYS[row["device"]] in row["reason"], row
        assert {*offered} == {*WAYS}
        fleet.wait_online(*WAYS)


@contextmanager
def births(fleet: Fleet, names: Sequence[str]) -> Iterator[list[str]]:
    """Connect devices; yield those that are offered a release, as it happens."""
    offered, topics = list[str](), Topics(FLEET)
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_message = lambda _, __, message: offered.append(message.topic.split("/")[3])
    client.connect(fleet.broker.address.host, fleet.broker.address.port)
    client.loop_start()
    wait_until(client.is_connected, "the connection")
    client.subscribe(f"{topics.root}/down/+/update", qos=1)
    for number, name in enumerate(names):
        session = f"{number:016x}"
        birth = Birth(session=session, status="online", samples=5)
        client.publish(topics.birth(name), encode(birth), qos=1, retain=True)
        at_rest = Progress(session=session, state="idle")
        client.publish(topics.progress(name), encode(at_rest), qos=1)
    yield offered
    client.disconnect()
    client.loop_stop()
