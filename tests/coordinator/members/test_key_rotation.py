"""Keys are replaced: what counts then, and what does not, wherever the coordinator is killed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509

from edgefed.coordinator.members import own_parties
from edgefed.coordinator.members.key_rotation import KeyRotation
from edgefed.errors import EdgeFedError, StorageError
from edgefed.trust.certificates import Certificate, read_certificate
from edgefed.trust.credentials import Credentials, load_credentials
from edgefed.trust.issuing import CLOCK_SKEW, CertificateRequest, new_keys
from edgefed.trust.superseded_certificate import NewestCertificate
from edgefed.wire.enrolment_messages import RenewalOrder
from tests.coordinator.authorities import LIFE, Hub, renewal


@dataclass
class Scene:
    """A hub, and what its rotation sent and used."""

    hub: Hub
    sent: list[tuple[str, RenewalOrder]] = field(default_factory=list)
    used: list[str] = field(default_factory=list)

    def rotate(self, *users: str) -> dict[str, str]:
        """Return the outcomes by user."""
        membership = self.hub.membership
        rotation = KeyRotation(
            membership.parties,
            membership.own,
            lambda user, order: self.sent.append((user, order)),
            self.used.append,
        )
        return {each["user"]: each["outcome"] for each in rotation.rotate(users)}

    def saved(self, user: str) -> Credentials:
        return load_credentials(self.hub.trust / user, self.hub.clock.now())

    def saved_whenever(self, user: str) -> Certificate:
        return read_certificate((self.hub.trust / user / "certificate.pem").read_bytes())

    def revoked(self) -> set[int]:
        return {each.serial_number for each in x509.load_pem_x509_crl(self.hub.access.revoked)}

    def accepts(self, certificate: Certificate) -> bool:
        return self.hub.membership.parties.accepts(certificate)

    def enrol(self, name: str) -> Certificate:
        made = read_certificate(self.hub.enrol(name)[1].certificate)
        self.hub.membership.parties.note_use(made)
        return made


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    hub = Hub(tmp_path)
    yield Scene(hub)
    hub.membership.close()


@pytest.mark.parametrize("user", ["broker", "coordinator", "operator.admin"])
def test_keys_of_this_machine_are_replaced_and_the_old_certificate_is_revoked(
    scene: Scene, user: str, tmp_path: Path
) -> None:
    old = scene.saved(user)
    assert scene.rotate(user) == {user: "replaced"}
    new = scene.saved(user)
    assert new.certificate.signing_key != old.certificate.signing_key
    if user != "broker":
        assert new.certificate.encryption_key != old.certificate.encryption_key
        assert new.keys.encryption.public_key() == new.certificate.encryption_key
    assert (new.certificate.user, new.broker) == (old.certificate.user, old.broker)
    assert new.certificate.not_after - scene.hub.clock.now() <= LIFE + CLOCK_SKEW
    assert (scene.accepts(old.certificate), scene.accepts(new.certificate)) == (False, True)
    assert scene.revoked() == {old.certificate.serial}
    assert scene.used == [user]
    # Also within the second of the old one's issue: its validity begins later.
    newest = NewestCertificate(tmp_path / "since", scene.hub.clock)
    assert newest.is_superseded(new.certificate) is False
    assert newest.is_superseded(old.certificate) is True
    assert new.certificate.is_valid_at(scene.hub.clock.now())


def test_the_broker_keeps_its_hosts(scene: Scene) -> None:
    scene.rotate("broker")
    names = scene.saved("broker").certificate.x509.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["hub.example", "localhost"]


def test_a_device_is_asked_until_it_shows_other_keys(scene: Scene) -> None:
    old = scene.enrol("cam-1")
    other = scene.enrol("cam-2")
    assert scene.rotate("cam-1") == {"cam-1": "asked"}
    assert scene.sent == [("cam-1", RenewalOrder(key=old.key_id))]
    scene.hub.restart()
    parties = scene.hub.membership.parties
    assert (parties.rotation_due(old), parties.rotation_due(other)) == (True, False)
    assert scene.accepts(old)  # until it has the next one
    new = read_certificate(scene.hub.membership.renew("cam-1", renewal(new_keys())).certificate)
    assert parties.note_use(new) is True
    assert parties.note_use(new) is False
    assert (scene.accepts(old), parties.rotation_due(new)) == (False, False)


def test_the_certificate_in_use_is_replaced_and_not_one_that_waits(scene: Scene) -> None:
    old = scene.enrol("cam-1")
    keys = new_keys()
    waiting = read_certificate(scene.hub.membership.renew("cam-1", renewal(keys)).certificate)
    assert scene.rotate("cam-1") == {"cam-1": "asked"}
    assert scene.sent == [("cam-1", RenewalOrder(key=old.key_id))]
    scene.hub.membership.parties.note_use(waiting)
    assert not scene.accepts(old)
    assert not scene.hub.membership.parties.rotation_due(waiting)


def test_everybody_at_once(scene: Scene) -> None:
    scene.enrol("cam-1")
    parties = scene.hub.membership.parties
    scene.hub.membership.parties.enrol("viewer", "hall", _request(), None)
    scene.enrol("gone")
    parties.revoke("gone", "left")
    assert scene.rotate() == {
        "broker": "replaced",
        "cam-1": "asked",
        "coordinator": "replaced",
        "operator.admin": "replaced",
        "viewer.hall": "elsewhere",
    }


def _request() -> CertificateRequest:
    keys = new_keys()
    return CertificateRequest("hall", keys.signing.public_key(), keys.encryption.public_key())


@pytest.mark.parametrize(
    ("user", "code"), [("cam-9", "enrol.unknown"), ("viewer.hall", "enrol.elsewhere")]
)
def test_nothing_is_done_when_one_of_them_cannot_be(scene: Scene, user: str, code: str) -> None:
    scene.hub.membership.parties.enrol("viewer", "hall", _request(), None)
    old = scene.saved("coordinator").certificate
    with pytest.raises(EdgeFedError) as caught:
        scene.rotate("coordinator", user)
    assert caught.value.code == code
    assert scene.saved("coordinator").certificate == old
    assert scene.used == []


def test_a_full_disk_leaves_the_old_keys(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    old = scene.saved("coordinator").certificate

    def full(made: Credentials) -> Credentials:
        raise StorageError("The disk is full.", code="storage.full")

    with monkeypatch.context() as patch:
        patch.setattr(own_parties, "save_credentials", full)
        with pytest.raises(StorageError):
            scene.rotate("coordinator")
    assert scene.saved("coordinator").certificate == old
    assert scene.accepts(old)
    assert scene.rotate("coordinator") == {"coordinator": "replaced"}  # with free space


def test_killed_before_the_old_certificate_is_revoked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = scene.saved("coordinator").certificate
    parties = scene.hub.membership.parties
    with monkeypatch.context() as patch:
        patch.setattr(type(parties), "note_use", lambda self, certificate: False)
        scene.rotate("coordinator")
    assert scene.accepts(old)
    scene.hub.restart()
    scene.hub.membership.own.renew()
    assert not scene.accepts(old)
    assert scene.accepts(scene.saved("coordinator").certificate)


def test_killed_between_the_renames(scene: Scene) -> None:
    folder = scene.hub.trust / "broker"
    old = scene.saved("broker").certificate
    folder.rename(folder.with_name(".broker.old"))
    scene.hub.restart()
    assert read_certificate((folder / "certificate.pem").read_bytes()) == old


def test_a_clock_that_was_ahead_leaves_no_certificate_of_the_future(scene: Scene) -> None:
    scene.hub.clock.passed += 0.7 * LIFE.total_seconds()
    assert "coordinator" in scene.hub.membership.own.renew()
    scene.hub.clock.passed -= 0.7 * LIFE.total_seconds()
    scene.hub.restart()
    assert not scene.accepts(scene.saved_whenever("coordinator"))
    assert "coordinator" in scene.hub.membership.own.renew()
    assert scene.accepts(scene.saved_whenever("coordinator"))


def test_a_clock_that_was_ahead_lets_no_revoked_certificate_come_back(scene: Scene) -> None:
    old = scene.saved("coordinator").certificate
    scene.rotate("coordinator")
    scene.hub.clock.passed += 2 * LIFE.total_seconds()
    scene.enrol("cam-1")  # what has expired is looked through
    scene.hub.clock.passed -= 2 * LIFE.total_seconds()
    scene.hub.restart()
    scene.hub.membership.publish_access()
    assert scene.revoked() == {old.serial}


def test_a_clock_that_is_slow_has_no_certificate_made(scene: Scene) -> None:
    scene.hub.clock.passed += 3 * LIFE.total_seconds()
    scene.hub.restart()
    assert "coordinator" in scene.hub.membership.own.renew()
    now = scene.saved_whenever("coordinator")
    scene.hub.clock.passed -= 1.5 * LIFE.total_seconds()  # after the first one, before this one
    scene.hub.restart()
    assert scene.hub.membership.own.renew() == []
    assert scene.saved_whenever("coordinator") == now
