"""A fleet's authority is created as a whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefed.coordinator.members import new_fleet
from edgefed.errors import EdgeFedError, NotAllowedError, StorageError
from edgefed.trust import credentials
from edgefed.trust.authority import AUTHORITY_FOLDER, load_authority
from edgefed.trust.credentials import load_credentials
from tests.coordinator.authorities import FLEET, HOSTS, LIFE, Hub, SetClock


def create(state: Path) -> None:
    new_fleet.create_fleet(
        state / "trust" / FLEET,
        FLEET,
        "mqtts://hub.example:8883",
        HOSTS,
        "admin",
        SetClock(),
        LIFE,
        lambda folder, users, revoked: (folder / "access").mkdir(),
    )


def in_child(work: Callable[[], None]) -> int:
    """Return how a process ended that does this work: its status as ``os.wait`` has it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def test_a_fleet_has_an_authority_and_three_parties(tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    hub.membership.close()
    assert load_authority(hub.trust / AUTHORITY_FOLDER).certificate == hub.authority.certificate
    for user in ("broker", "coordinator", "operator.admin"):
        own = load_credentials(hub.trust / user, hub.clock.now())
        assert (own.certificate.user, own.broker) == (user, "mqtts://hub.example:8883")
    for key in (*hub.trust.rglob("key.pem"), *hub.trust.rglob("encryption.pem")):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(hub.trust.stat().st_mode) == 0o700
    assert hub.access.users == ["coordinator", "operator.admin"]


def test_a_second_one_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    create(tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(NotAllowedError) as caught:
        create(tmp_path)
    assert caught.value.code == "enrol.exists"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_not_on_a_machine_that_is_enrolled_with_another_authority(tmp_path: Path) -> None:
    (tmp_path / "trust" / FLEET / "cam-1").mkdir(parents=True)
    with pytest.raises(NotAllowedError, match="another machine"):
        create(tmp_path)


@pytest.mark.parametrize("point", ["authority", "coordinator", "end"])
@pytest.mark.parametrize("how", ["kill", "ctrl-c"])
def test_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, how: str
) -> None:
    def happen() -> None:
        if how == "ctrl-c":
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGKILL)

    def write_private(path: Path, data: bytes) -> None:
        if path.name == "fleet.json" and path.parent.name.strip(".").startswith(point):
            happen()
        credentials_write(path, data)

    credentials_write = credentials.write_private
    monkeypatch.setattr(credentials, "write_private", write_private)
    monkeypatch.setattr("edgefed.trust.authority.write_private", write_private)
    if point == "end":
        monkeypatch.setattr(new_fleet, "_put_in_place", lambda beside, trust: happen())
    ended = in_child(lambda: create(tmp_path))
    assert os.WIFSIGNALED(ended) == (how == "kill")
    assert not (tmp_path / "trust" / FLEET).exists()
    left = list((tmp_path / "trust").iterdir())
    assert bool(left) == (how == "kill")
    monkeypatch.undo()
    create(tmp_path)
    assert [each.name for each in (tmp_path / "trust").iterdir()] == [FLEET]


def test_the_disk_does_not_take_it(tmp_path: Path) -> None:
    told = tmp_path / "told"

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))
        try:
            create(tmp_path / "state")
        except EdgeFedError as error:
            told.write_text(f"{type(error).__name__} {error.code}")

    in_child(work)
    assert told.read_text().startswith(StorageError.__name__)
    assert not list((tmp_path / "state" / "trust").iterdir())
