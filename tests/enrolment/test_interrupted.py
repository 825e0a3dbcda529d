"""Enrolment that is killed, or finds the disk full, goes on later; nothing is half there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefed.control.enrolment_client import ENROLMENTS, enroll
from edgefed.process.clock import SystemClock
from edgefed.trust.credentials import load_credentials
from tests.enrolment.hub import FLEET, Hub, running_hub
from tests.enrolment.killed_enrolment import POINTS
from tests.processes import clean_environment
from tests.programs.forked_programs import run_module
from tests.transport.listening import wait_until

pytestmark = [pytest.mark.mosquitto, pytest.mark.slow]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running_hub(tmp_path_factory.mktemp("fleet")) as made:
        yield made


def key_of_request(hub: Hub, name: str) -> str:
    """Return the key that the coordinator knows of a device."""
    return str(hub.members()[name]["fingerprint"])


@pytest.mark.parametrize("point", POINTS)
def test_an_enrolment_killed_at_any_point_goes_on(hub: Hub, point: str) -> None:
    token = hub.invite(point)
    state = hub.device(point)
    words = (point, "kill", str(state), token)
    code, _, err = run_module("tests.enrolment.killed_enrolment", *words)
    assert code == -signal.SIGKILL, err
    folder = hub.credentials(point)
    assert folder.exists() == (point == "saved")
    known = key_of_request(hub, point)
    assert bool(known) == (point != "keys")  # the token was used up, but for the first point
    made = enroll(hub.applicant(point, token), SystemClock(), print)
    assert made.certificate.name == point
    assert load_credentials(folder, SystemClock().now()).certificate == made.certificate
    assert known in ("", key_of_request(hub, point))  # with the same key
    left = [p for p in state.rglob("*") if p.is_file() and p.parent != folder]
    assert not [p for p in left if p.suffix in (".pem", ".part")], left
    assert {each.name for each in (state / "trust" / FLEET).iterdir()} == {ENROLMENTS, point}


def test_the_coordinator_killed_between_two_requests_gives_the_same_answer(hub: Hub) -> None:
    token = hub.invite("cam-1")
    state = str(hub.device("cam-1"))
    run_module("tests.enrolment.killed_enrolment", "sent", "kill", state, token)
    known = key_of_request(hub, "cam-1")
    hub.kill_coordinator()
    hub.start_coordinator()
    made = enroll(hub.applicant("cam-1", token), SystemClock(), print)
    assert key_of_request(hub, "cam-1") == known
    assert made.certificate.name == "cam-1"


def test_the_fleet_goes_on_and_enrolment_comes_back_when_its_broker_is_killed(hub: Hub) -> None:
    fleet, killed = hub.brokers.fleet.broker.pid, hub.brokers.enrolment.broker.pid
    log = len(hub.said())
    with hub.coordinator() as operator:
        os.kill(killed, signal.SIGKILL)
        token = operator.order("member.invite", role="device", name="late", seconds=900.0)["token"]
        wait_until(lambda: "connected for enrolment" in hub.said()[log:], "the coordinator")
        made = enroll(hub.applicant("late", token), SystemClock(), print)
        assert made.certificate.name == "late"
        assert operator.ask("snapshot")
    assert hub.brokers.enrolment.broker.pid != killed
    assert hub.brokers.fleet.broker.pid == fleet
    assert "connection for enrolment lost" in hub.said()[log:]
    assert "connection to the broker lost" not in hub.said()[log:]


def test_nobody_answers_while_the_coordinator_is_away(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgefed.control import enrolment_client
    from edgefed.errors import UnreachableError

    monkeypatch.setattr(enrolment_client, "FIRST_ANSWER", 1.0)
    monkeypatch.setattr(enrolment_client, "ASK_EVERY", 0.3)
    token = hub.invite("cam-2")
    hub.kill_coordinator()
    with pytest.raises(UnreachableError) as caught:
        enroll(hub.applicant("cam-2", token), SystemClock(), print)
    assert caught.value.code == "enrol.silent"
    assert not hub.credentials("cam-2").exists()
    hub.start_coordinator()
    assert enroll(hub.applicant("cam-2", token), SystemClock(), print).certificate.name == "cam-2"


ALONE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]

SCRIPT = """
mount -t tmpfs -o size=256k tmpfs {disk} || exit 99
{before}
{enroll}; echo "first $?"
find {disk} -name certificate.pem
find {disk} -name '*.part'
rm -f {disk}/ballast
{python} -m device_agent.commands.cli --state {disk}/state enroll {token}; echo "second $?"
find {disk} -name certificate.pem
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare here")
@pytest.mark.parametrize("point", ["half-saved"])
def test_an_enrolment_on_a_full_disk_goes_on_when_there_is_room(
    hub: Hub, tmp_path: Path, point: str
) -> None:
    name = f"full-{point}"
    disk, token = tmp_path / "disk", hub.invite(name)
    disk.mkdir()
    fill = f"dd if=/dev/zero of={disk}/ballast bs=1k 2>/dev/null"
    module = "tests.enrolment.killed_enrolment"
    fills_up = f"{sys.executable} -m {module} {point} {disk}/ballast {disk}/state {token}"
    plain = f"{sys.executable} -m device_agent.commands.cli --state {disk}/state enroll {token}"
    first = point == "before"
    script = SCRIPT.format(
        disk=disk,
        before=fill if first else "",
        enroll=plain if first else fills_up,
        python=sys.executable,
        token=token,
    )
    ran = subprocess.run(
        [*ALONE, script], capture_output=True, text=True, env=clean_environment(), check=False
    )
    if ran.returncode == 99 or "unshare" in ran.stderr:
        pytest.skip("a process may not mount a disk of its own here")
    told = ran.stdout.splitlines()
    middle = told[told.index("first 1") + 1 : told.index("second 0")]
    assert "[storage.full]" in ran.stderr
    saved = [line for line in middle if line.endswith("certificate.pem")]
    assert len(saved) == (1 if point == "saved" else 0), ran.stdout
    assert not [line for line in middle if line.endswith(".part")], ran.stdout
    assert told[-1].endswith(f"{name}/certificate.pem")
    assert hub.members()[name]["state"] == "enrolled"
    assert not list(disk.iterdir())  # it was a disk of its own
