"""A device's certificate is renewed with new keys, wherever the agent is killed meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgefed.errors import NotAllowedError
from edgefed.transport.renewal import RENEWALS, Renewal
from edgefed.trust.authority import new_authority
from edgefed.trust.certificates import read_certificate
from edgefed.trust.credentials import (
    ENCRYPTION,
    KEY,
    Credentials,
    load_credentials,
    save_credentials,
)
from edgefed.trust.issuing import issue, new_keys, read_request
from edgefed.trust.known_device_keys import KnownKeys
from edgefed.wire.enrolment_messages import IssuedCertificate, RenewalOrder, RenewalRequest
from edgefed.worker.device_credentials import DeviceCredentials
from tests.coordinator.authorities import FLEET, LIFE, Hub, renewal
from tests.support.synced import synced_folders


class Device:
    """An enrolled device and its hub."""

    def __init__(self, tmp_path: Path) -> None:
        self.hub = Hub(tmp_path / "hub")
        keys, answer = self.hub.enrol("cam-1")
        certificate = read_certificate(answer.certificate)
        authority = read_certificate(answer.authority)
        self.folder = tmp_path / "device" / "trust" / FLEET / "cam-1"
        save_credentials(
            Credentials(self.folder, keys, certificate, authority, FLEET, answer.broker)
        )
        self.hub.membership.parties.note_use(certificate)
        self.asked: list[RenewalRequest] = []
        self.start()

    def start(self) -> None:
        """Begin a life of the agent."""
        own = load_credentials(self.folder, self.hub.clock.now())
        self.renewal = Renewal(own, self.hub.clock)

    def pass_time(self, share: float) -> None:
        self.hub.clock.passed += LIFE.total_seconds() * share

    def due(self) -> None:
        self.renewal.due(self.hub.clock.monotonic(), self.asked.append)

    def answer(self) -> IssuedCertificate:
        return self.hub.membership.renew("cam-1", self.asked[-1])


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    made = Device(tmp_path)
    yield made
    made.hub.membership.close()


def test_nothing_is_asked_before_it_is_time_and_then_not_too_often(device: Device) -> None:
    device.due()
    device.pass_time(0.6)
    device.due()
    assert device.asked == []
    device.pass_time(0.07)
    device.due()
    device.due()
    assert len(device.asked) == 1
    device.hub.clock.passed += 60
    device.due()
    assert device.asked[0].request != b""
    assert len(device.asked) == 2


def test_the_next_credentials_replace_the_old_ones(device: Device) -> None:
    old = device.renewal.current()
    device.pass_time(0.67)
    device.due()
    made = device.renewal.take(device.answer())
    assert made is not None
    assert device.renewal.current() is made
    saved = load_credentials(device.folder, device.hub.clock.now())
    assert saved.certificate == made.certificate
    assert made.certificate.signing_key != old.certificate.signing_key
    assert made.certificate.encryption_key != old.certificate.encryption_key
    assert device.renewal.take(device.answer()) is None  # the answer came twice
    assert not (device.folder.parent / RENEWALS / "cam-1").exists()
    device.hub.membership.parties.note_use(made.certificate)
    assert not device.hub.membership.parties.accepts(old.certificate)


def test_an_agent_killed_meanwhile_asks_with_the_same_keys(device: Device) -> None:
    device.pass_time(0.67)
    device.due()
    first = device.answer()
    device.start()
    device.due()
    assert device.answer() == first
    assert device.renewal.take(first) is not None


def test_a_certificate_for_another_key_is_not_taken(device: Device) -> None:
    device.pass_time(0.67)
    other = device.hub.membership.renew("cam-1", renewal(new_keys()))
    before = load_credentials(device.folder, device.hub.clock.now()).certificate
    assert device.renewal.take(other) is None
    device.due()
    assert device.renewal.take(other) is None
    assert device.renewal.take(IssuedCertificate(certificate=b"rubbish")) is None
    assert load_credentials(device.folder, device.hub.clock.now()).certificate == before


def test_an_order_has_the_keys_replaced_at_once_and_only_once(device: Device) -> None:
    old = device.renewal.current().certificate
    device.due()
    device.renewal.order(RenewalOrder(key=bytes(8)))  # of an older certificate, or made up
    device.due()
    assert device.asked == []
    order = RenewalOrder(key=old.key_id)
    device.renewal.order(order)
    device.due()
    device.renewal.order(order)  # it is repeated when the device comes back
    device.due()
    assert len(device.asked) == 1
    made = device.renewal.take(device.answer())
    assert made is not None
    assert made.certificate.signing_key != old.signing_key
    device.renewal.order(order)  # replayed
    device.hub.clock.passed += 3600
    device.due()
    assert len(device.asked) == 1


@pytest.mark.parametrize("left", [(KEY,), (KEY, ENCRYPTION)], ids=str)
def test_an_agent_killed_while_it_deletes_the_keys_makes_new_ones(
    device: Device, tmp_path: Path, left: tuple[str, ...]
) -> None:
    device.pass_time(0.67)
    device.due()
    waiting = device.folder.parent / RENEWALS / "cam-1"
    shutil.copytree(waiting, tmp_path / "kept")
    made = device.renewal.take(device.answer())
    assert made is not None
    device.hub.membership.parties.note_use(made.certificate)
    for name in left:
        waiting.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tmp_path / "kept" / name, waiting / name)
    device.start()
    device.pass_time(0.67)
    device.due()
    again = device.renewal.take(device.answer())
    assert again is not None
    assert again.certificate.signing_key != made.certificate.signing_key


def test_the_keys_are_on_the_disk_before_they_are_mentioned(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ([ENCRYPTION, KEY], device.folder.parent / RENEWALS / "cam-1")
    synced, found = synced_folders(monkeypatch), list[bool]()
    device.pass_time(0.67)
    device.renewal.due(device.hub.clock.monotonic(), lambda asked: found.append(keys in synced))
    assert found == [True]


def test_a_certificate_of_another_authority_or_for_another_party_is_not_taken(
    device: Device, tmp_path: Path
) -> None:
    device.pass_time(0.67)
    device.due()
    ours = device.hub.membership.parties.authority
    theirs = new_authority(FLEET, ours.broker, (), device.hub.clock.now())
    request, now = read_request(device.asked[-1].request), device.hub.clock.now()
    other_key = replace(request, encryption_key=new_keys().encryption.public_key())
    expired = now - 2 * LIFE
    wrong = (
        theirs.issue("device", "cam-1", request, now, LIFE),
        ours.issue("device", "cam-2", request, now, LIFE),
        ours.issue("operator", "cam-1", request, now, LIFE),
        ours.issue("device", "cam-1", other_key, now, LIFE),
        issue(
            ours.certificate,
            ours.key,
            role="device",
            name="cam-1",
            signing_key=request.signing_key,
            encryption_key=request.encryption_key,
            now=expired,
            life=LIFE,
        ),
    )
    for each in wrong:
        assert device.renewal.take(IssuedCertificate(certificate=each.der)) is None
    right = ours.issue("device", "cam-1", request, now, LIFE)
    assert device.renewal.take(IssuedCertificate(certificate=right.der)) is not None


def test_other_devices_know_a_renewed_device_by_its_signature_of_the_next_key(
    device: Device, tmp_path: Path
) -> None:
    """And take no other key for its name, although the authority has certified it."""
    there = DeviceCredentials(device.renewal.current, KnownKeys(tmp_path / "known"))

    def signed(given: DeviceCredentials) -> None:
        there.verify("cam-1", given.certificate, b"statement", given.sign(b"statement"))

    signed(there)
    for _ in range(2):
        device.pass_time(0.7)
        device.due()
        before = device.renewal.current()
        assert device.renewal.take(device.answer()) is not None
        assert device.renewal.current().certificate.public_bytes != before.certificate.public_bytes
        device.start()  # the agent is killed and started again
        there = DeviceCredentials(device.renewal.current, KnownKeys(tmp_path / "known"))
        signed(there)
    with pytest.raises(NotAllowedError, match="another key than before"):
        signed(DeviceCredentials(lambda: before))
    own = device.renewal.current()
    keys = new_keys()
    made = device.hub.authority.own_credentials(
        tmp_path / "liar", "device", "cam-1", keys, device.hub.clock.now(), LIFE
    )
    with pytest.raises(NotAllowedError, match="another key than before"):
        signed(DeviceCredentials(lambda: made))
    assert made.certificate.is_issued_by(own.authority)
