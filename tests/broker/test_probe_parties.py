"""The probes of a check change the broker's files without undoing what the coordinator writes."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

from cryptography import x509

from broker.probe_parties import IssuedProbes
from broker.secured_files import access_lock, secured_files, write_access, write_access_locked
from edgefed.coordinator.members.new_fleet import create_fleet
from edgefed.trust.certificates import Role
from edgefed.trust.credentials import Credentials
from edgefed.trust.issuing import new_keys
from tests.coordinator.authorities import FLEET, HOSTS, LIFE, SetClock

REMOVED = 7
"""Serial number of the certificate that the coordinator revokes."""


def probes(state: Path) -> IssuedProbes:
    """Return probes in a fleet of their own."""
    clock, trust = SetClock(), state / "trust" / FLEET
    authority = create_fleet(
        *(trust, FLEET, "mqtts://hub.example:8883", HOSTS, "admin", clock, LIFE),
        lambda folder, users, revoked: write_access(folder, FLEET, users, revoked),
    )

    def issue(role: Role, name: str) -> Credentials:
        now = clock.now()
        return authority.own_credentials(state, role, name, new_keys(), now, timedelta(hours=1))

    devices = issue("device", "check-1"), issue("device", "check-2")
    return IssuedProbes(authority, trust, devices, issue("viewer", "check"), clock.now())


def users(made: IssuedProbes) -> set[str]:
    lines = secured_files(made.trust).acl.read_text().splitlines()
    return {line.removeprefix("user ") for line in lines if line.startswith("user ")}


def revoked(made: IssuedProbes) -> set[int]:
    listed = x509.load_pem_x509_crl(secured_files(made.trust).revoked.read_bytes())
    return {each.serial_number for each in listed}


def test_probes_are_added_withdrawn_and_leave_nothing(tmp_path: Path) -> None:
    made = probes(tmp_path)
    before = users(made)
    made.admit()
    assert users(made) == before | {"check-1", "check-2", "viewer.check"}
    made.withdraw()
    assert users(made) == before | {"check-2", "viewer.check"}
    assert revoked(made) == {made.devices[0].certificate.serial}
    made.clear()
    assert (users(made), revoked(made)) == (before, set())


def test_a_removal_in_the_middle_of_a_check_is_not_undone(tmp_path: Path) -> None:
    made = probes(tmp_path)
    write_access(
        made.trust, FLEET, ["cam-1", "coordinator"], made.authority.revocations([], made.now)
    )
    made.admit()
    withdrawal = threading.Thread(target=made.withdraw)
    with access_lock(made.trust):
        left = users(made) - {"cam-1"}
        withdrawal.start()
        withdrawal.join(1.0)  # it ends only where nothing makes it wait
        removal = made.authority.revocations([REMOVED], made.now)
        write_access_locked(made.trust, FLEET, left, removal)
    withdrawal.join()
    assert users(made) == {"coordinator", "check-2", "viewer.check"}
    assert revoked(made) == {REMOVED, made.devices[0].certificate.serial}
