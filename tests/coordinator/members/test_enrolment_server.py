from __future__ import annotations

import os
import stat
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting
from contextlib import suppress
from pathlib import Path

import pytest

from broker.secured_files import write_enrolment_access
from edgefed.coordinator.members.enrolment_server import EnrolmentServer
from edgefed.files.writing import write_atomic
from edgefed.transport.inbox import Arrival, Incoming, LinkDown, LinkUp
from edgefed.trust import enrolment_login
from edgefed.trust.enrolment_login import ACCESS, PASSWORD, PASSWORDS, ensure_login
from edgefed.wire.topics import Topics
from tests.signed_fleet import FLEET, Trust

TOPICS = Topics(FLEET)


def test_only_requests_of_those_who_enrol_are_passed_on(tmp_path: Path) -> None:
    """The enrolment broker cannot inject messages of the fleet."""
    trust = Trust(tmp_path)
    passed: list[Arrival] = []
    address = trust.address(trust.issue("coordinator"))
    server = EnrolmentServer(address, TOPICS, tmp_path, passed.append)
    asked = Incoming(TOPICS.enrolment_request("t-1"), b"asked", retained=False)
    for arrival in (
        Incoming(TOPICS.birth("cam-1"), b"forged", retained=False),
        Incoming(TOPICS.request("operator.ann/0"), b"forged", retained=False),
        Incoming("nonsense", b"forged", retained=False),
        LinkUp(),
        LinkDown("it ended"),
        asked,
    ):
        server._link._deliver(arrival)
    assert passed == [asked]
    own = server._link.address
    assert (own.port, own.user, own.password) == (
        address.port + 1,
        "coordinator",
        ensure_login(tmp_path),
    )


def test_the_login_is_made_once_and_is_its_owners(tmp_path: Path) -> None:
    password = ensure_login(tmp_path)
    files = [tmp_path / ACCESS / name for name in (PASSWORD, PASSWORDS)]
    before = [path.read_text() for path in files]
    assert ensure_login(tmp_path) == password == before[0]
    assert [path.read_text() for path in files] == before
    assert len(password) == 64
    assert password not in before[1]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_coordinator_and_a_broker_that_start_at_once_make_one_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[Future[str]] = []

    def write(path: Path, data: bytes) -> None:
        if not others:
            others.append(pool.submit(ensure_login, tmp_path))
            with suppress(StillWaiting):
                others[0].result(timeout=0.2)
        write_atomic(path, data)

    monkeypatch.setattr(enrolment_login, "write_atomic", write)
    with ThreadPoolExecutor(1) as pool:
        assert ensure_login(tmp_path) == others[0].result() == ensure_login(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_for_enrolment_is_the_folders_owners(tmp_path: Path) -> None:
    (tmp_path / ACCESS).mkdir()
    os.chown(tmp_path / ACCESS, 12345, 12346)
    write_enrolment_access(tmp_path, "lab")
    names = (PASSWORD, PASSWORDS, "enrolment.acl", ".lock")
    found = [(tmp_path / ACCESS / name).stat() for name in names]
    assert {(each.st_uid, each.st_gid) for each in found} == {(12345, 12346)}
