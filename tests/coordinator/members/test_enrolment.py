"""Tokens are traded once, members are removed, certificates renewed: the authority's rules."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from edgefed.config.values.address import Address
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.members.enrolled_parties import UNUSED_FOR
from edgefed.coordinator.members.enrolment import KEPT_FOR
from edgefed.coordinator.members.enrolment_store import hexadecimal
from edgefed.coordinator.members.membership import BURST, REPEAT_EVERY
from edgefed.coordinator.members.membership_messages import MembershipMessages
from edgefed.errors import EdgeFedError, NotAllowedError, StorageError, UnknownNameError
from edgefed.transport.link import Link
from edgefed.trust.authority import renewal_due
from edgefed.trust.certificates import Role, read_certificate
from edgefed.trust.issuing import (
    CertificateRequest,
    issue,
    make_request,
    new_keys,
    read_request,
)
from edgefed.trust.tokens import fingerprint, is_proof
from edgefed.wire.enrolment_messages import EnrolmentRequest, signed_request
from edgefed.wire.topics import Topics
from tests.coordinator.authorities import FLEET, LIFE, Hub, renewal

DEVICE: tuple[Role, ...] = ("device",)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    made = Hub(tmp_path)
    yield made
    made.membership.close()


def states(hub: Hub) -> dict[str, str]:
    return {row["name"]: row["state"] for row in hub.membership.listing() if row["name"]}  # type: ignore[misc]


def revoked_serials(hub: Hub) -> set[int]:
    found = x509.load_pem_x509_crl(hub.access.revoked)
    assert found.is_signature_valid(hub.authority.certificate.x509.public_key())  # type: ignore[arg-type]
    return {each.serial_number for each in found}


def test_a_token_is_traded_for_a_certificate(hub: Hub) -> None:
    token = hub.invite("cam-1")
    keys = new_keys()
    answer = hub.ask(token, keys)
    made = read_certificate(answer.certificate)
    assert (answer.status, answer.name, answer.role) == ("enrolled", "cam-1", "device")
    assert answer.broker == "mqtts://hub.example:8883"
    assert (token.host, token.port, token.fleet) == ("hub.example", 8884, FLEET)
    assert made.signing_key == keys.signing.public_key()
    assert made.encryption_key == keys.encryption.public_key()
    assert made.is_issued_by(hub.authority.certificate)
    assert made.not_after - hub.clock.now() == LIFE
    assert is_proof(answer.proof, token.proof_key, *answer.proven())
    assert hub.membership.parties.accepts(made)
    assert hub.access.users == ["cam-1", "coordinator", "operator.admin"]


def test_a_token_is_for_one_key_and_the_same_key_gets_the_same_answer(hub: Hub) -> None:
    token, keys = hub.invite("cam-1"), new_keys()
    first = hub.ask(token, keys)
    hub.restart()
    hub.clock.passed += 3600  # its expiry does not matter any more
    assert hub.ask(token, keys) == first
    other = hub.ask(token, new_keys())
    assert (other.status, other.code, other.certificate) == ("refused", "enrol.used", b"")


def test_a_token_in_the_wrong_program_is_not_used_up(hub: Hub) -> None:
    token, keys = hub.membership.invite("viewer", "hall", 900)[0], new_keys()
    assert hub.ask(token, new_keys()).code == "enrol.role"
    assert hub.ask(token, keys, roles=("operator", "viewer")).status == "enrolled"


def test_a_token_expires(hub: Hub) -> None:
    token = hub.invite("cam-1", seconds=60)
    hub.clock.passed += 61
    answer = hub.ask(token, new_keys())
    assert (answer.status, answer.code) == ("refused", "enrol.expired")
    assert is_proof(answer.proof, token.proof_key, *answer.proven())
    assert "cam-1" not in hub.access.users


def test_whoever_does_not_know_the_secret_gets_nothing(hub: Hub) -> None:
    token, keys = hub.invite("cam-1"), new_keys()
    request = make_request(keys, "cam-1")
    for asked in (
        EnrolmentRequest(request=request, roles=DEVICE, proof=bytes(32)),
        signed_request("", request, bytes(32), DEVICE),
        signed_request("", request, token.proof_key, DEVICE).model_copy(update={"name": "cam-2"}),
        signed_request("", request, token.proof_key, DEVICE).model_copy(update={"roles": ()}),
    ):
        answer = hub.membership.answer(token.id, asked)
        assert answer is not None
        assert (answer.status, answer.code) == ("refused", "enrol.unknown_token")
    unknown = signed_request("", request, token.proof_key, DEVICE)
    stranger = hub.membership.answer("0" * 20, unknown)
    assert stranger is not None
    assert (stranger.code, stranger.proof) == ("enrol.unknown_token", b"")
    assert hub.ask(token, keys).status == "enrolled"  # it is still unused


def test_the_secret_is_not_stored(hub: Hub, tmp_path: Path) -> None:
    token = hub.invite("cam-1")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(token.id.encode() in path.read_bytes() for path in files)
    assert not any(token.secret in path.read_bytes() for path in files)


def test_a_device_that_names_itself_waits_for_approval(hub: Hub) -> None:
    token, keys = hub.invite(), new_keys()
    assert hub.ask(token, keys, "cam-1").status == "pending"
    assert states(hub)["cam-1"] == "pending"
    hub.restart()
    hub.clock.passed += 3600
    assert hub.ask(token, keys, "cam-1").status == "pending"
    assert hub.ask(token, new_keys(), "cam-1").code == "enrol.used"
    (row,) = (row for row in hub.membership.listing() if row["state"] == "pending")
    assert row["fingerprint"] == fingerprint(keys.signing.public_key().public_bytes_raw())
    made = hub.membership.approve("cam-1")
    assert made.signing_key == keys.signing.public_key()
    assert read_certificate(hub.ask(token, keys, "cam-1").certificate) == made
    with pytest.raises(UnknownNameError) as caught:
        hub.membership.approve("cam-1")
    assert caught.value.code == "enrol.pending"


def test_a_device_that_waits_is_not_forgotten_and_ended_invitations_are(hub: Hub) -> None:
    token, keys = hub.invite(), new_keys()
    hub.ask(token, keys, "cam-1")
    ended = hub.invite("cam-2")
    hub.clock.passed += KEPT_FOR.total_seconds() + 3600
    hub.invite("cam-3")
    assert hub.ask(token, keys, "cam-1").status == "pending"
    assert hub.ask(ended, new_keys()).code == "enrol.unknown_token"


def test_invitations_are_bounded(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgefed.coordinator.members.enrolment.MAX_INVITATIONS", 2)
    hub.invite("cam-1")
    hub.invite("cam-2")
    hub.invite("cam-2")  # takes the place of the one before
    with pytest.raises(NotAllowedError) as caught:
        hub.invite("cam-3")
    assert caught.value.code == "enrol.invitations"


def test_a_rejected_device_is_told(hub: Hub) -> None:
    token, keys = hub.invite(), new_keys()
    hub.ask(token, keys, "cam-1")
    hub.membership.reject("cam-1")
    assert hub.ask(token, keys, "cam-1").code == "enrol.rejected"
    assert hub.ask(token, new_keys(), "cam-1").code == "enrol.rejected"  # it forgets its keys
    assert "cam-1" not in states(hub)
    with pytest.raises(UnknownNameError):
        hub.membership.approve("cam-1")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("cam-1", "enrol.name"),
        ("coordinator", "trust.name"),
        ("authority", "trust.name"),
        ("", "trust.name"),
    ],
)
def test_a_name_that_is_taken_is_refused_and_another_can_be_tried(
    hub: Hub, name: str, code: str
) -> None:
    hub.enrol("cam-1")
    token, keys = hub.invite(), new_keys()
    assert hub.ask(token, keys, name).code == code
    assert hub.ask(token, keys, "cam-2").status == "pending"
    other, others = hub.invite(), new_keys()
    assert hub.ask(other, others, "cam-2").code == "enrol.name"


def test_a_token_for_a_name_takes_no_other(hub: Hub) -> None:
    token, keys = hub.invite("cam-1"), new_keys()
    assert hub.ask(token, keys, "cam-2").code == "enrol.name"
    assert hub.ask(token, keys, "cam-1").status == "enrolled"


def test_who_is_enrolled_is_not_invited_again_and_a_lost_token_is_replaced(hub: Hub) -> None:
    lost, token = hub.invite("cam-1"), hub.invite("cam-1")
    assert hub.ask(lost, new_keys()).code == "enrol.unknown_token"
    hub.ask(token, new_keys())
    with pytest.raises(NotAllowedError) as caught:
        hub.invite("cam-1")
    assert caught.value.code == "enrol.name"


def test_a_removed_device_is_out_at_once_and_may_be_invited_again(hub: Hub) -> None:
    _, answer = hub.enrol("cam-1")
    made = read_certificate(answer.certificate)
    party = hub.membership.parties.revoke("cam-1", "removed")
    assert (party.state, party.reason) == ("revoked", "removed")
    assert not hub.membership.parties.accepts(made)
    assert "cam-1" not in hub.access.users
    assert revoked_serials(hub) == {made.serial}
    assert states(hub)["cam-1"] == "revoked"
    hub.restart()
    assert not hub.membership.parties.accepts(made)
    again = read_certificate(hub.enrol("cam-1")[1].certificate)
    assert hub.membership.parties.accepts(again)
    assert not hub.membership.parties.accepts(made)
    assert revoked_serials(hub) == {made.serial}
    with pytest.raises(UnknownNameError):
        hub.membership.parties.revoke("cam-9", "removed")


def test_a_used_token_of_a_removed_device_says_so(hub: Hub) -> None:
    token, keys = hub.invite("cam-1"), new_keys()
    hub.ask(token, keys)
    hub.membership.parties.revoke("cam-1", "removed")
    assert hub.ask(token, keys).code == "enrol.revoked"


def test_a_certificate_that_was_not_issued_here_does_not_count(hub: Hub) -> None:
    keys = new_keys()
    forged = issue(  # by the authority's key, but not written down: as from an older backup
        hub.authority.certificate,
        hub.authority.key,
        role="device",
        name="cam-1",
        signing_key=keys.signing.public_key(),
        encryption_key=keys.encryption.public_key(),
        now=hub.clock.now(),
        life=LIFE,
    )
    assert not hub.membership.parties.accepts(forged)
    made = read_certificate(hub.enrol("cam-1")[1].certificate)
    assert hub.membership.parties.accepts(made)
    assert not hub.membership.parties.accepts(replace(forged, serial=made.serial))


def test_an_expired_certificate_does_not_count_and_its_device_enrols_again(hub: Hub) -> None:
    made = read_certificate(hub.enrol("cam-1")[1].certificate)
    hub.clock.passed += LIFE.total_seconds() + 1
    assert not hub.membership.parties.accepts(made)
    assert hub.enrol("cam-1")[1].status == "enrolled"


def test_a_certificate_is_renewed_and_the_old_one_revoked_once_the_new_one_is_used(
    hub: Hub,
) -> None:
    parties = hub.membership.parties
    old = read_certificate(hub.enrol("cam-1")[1].certificate)
    parties.note_use(old)
    assert not renewal_due(old, hub.clock.now() + LIFE * 0.6)
    hub.clock.passed += LIFE.total_seconds() * 0.67
    assert renewal_due(old, hub.clock.now())
    keys = new_keys()
    told = hub.membership.renew("cam-1", renewal(keys))
    assert hub.membership.renew("cam-1", renewal(keys)) == told  # the answer was lost
    new = read_certificate(told.certificate)
    assert new.not_after - hub.clock.now() == LIFE
    assert parties.accepts(old)
    assert parties.accepts(new)
    assert revoked_serials(hub) == set()
    hub.restart()
    parties = hub.membership.parties
    parties.note_use(new)
    assert parties.accepts(new)
    assert not parties.accepts(old)
    assert revoked_serials(hub) == {old.serial}
    hub.clock.passed += LIFE.total_seconds() / 2
    hub.membership.publish_access()
    assert revoked_serials(hub) == set()  # it has expired, and nobody needs to know any more


def test_only_one_unused_certificate_at_a_time(hub: Hub) -> None:
    parties = hub.membership.parties
    parties.note_use(read_certificate(hub.enrol("cam-1")[1].certificate))
    first = read_certificate(hub.membership.renew("cam-1", renewal(new_keys())).certificate)
    with pytest.raises(NotAllowedError) as caught:
        hub.membership.renew("cam-1", renewal(new_keys()))
    assert caught.value.code == "enrol.renewal"
    hub.clock.passed += UNUSED_FOR.total_seconds()
    hub.membership.renew("cam-1", renewal(new_keys()))
    assert not parties.accepts(first)
    assert first.serial in revoked_serials(hub)
    parties.revoke("cam-1", "removed")
    with pytest.raises(NotAllowedError) as caught:
        hub.membership.renew("cam-1", renewal(new_keys()))
    assert caught.value.code == "enrol.revoked"


def test_the_certificates_of_this_machine_renew_themselves(hub: Hub) -> None:
    def files() -> dict[str, bytes]:
        return {p.parent.name: p.read_bytes() for p in hub.trust.glob("*/certificate.pem")}

    before = files()
    assert hub.membership.own.renew() == []
    hub.clock.passed += LIFE.total_seconds() * 0.67
    assert hub.membership.own.renew() == ["broker", "coordinator", "operator.admin"]
    after = files()
    assert after.pop("authority") == before.pop("authority")
    for user, pem in after.items():
        old, new = read_certificate(before[user]), read_certificate(pem)
        assert (new.user, new.signing_key) == (old.user, old.signing_key)
        assert new.encryption_key == old.encryption_key
        assert new.not_after > old.not_after
        assert hub.membership.parties.accepts(new)
        assert hub.membership.parties.accepts(old)  # of a process that has it in memory
    names = read_certificate(after["broker"]).x509.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["hub.example", "localhost"]
    assert hub.membership.own.renew() == []


def test_a_machine_that_was_off_until_its_certificates_expired_renews_all_of_them(hub: Hub) -> None:
    hub.clock.passed += 2 * LIFE.total_seconds()
    hub.restart()
    assert hub.membership.own.renew() == ["broker", "coordinator", "operator.admin"]
    hub.restart()
    for folder in ("coordinator", "operator.admin"):
        made = read_certificate((hub.trust / folder / "certificate.pem").read_bytes())
        assert hub.membership.parties.accepts(made)


def test_a_clock_before_the_authority_signs_nothing(hub: Hub) -> None:
    hub.clock.passed -= timedelta(days=365 * 56).total_seconds()
    with pytest.raises(EdgeFedError, match="clock says 1970-") as caught:
        hub.membership.parties.enrol("device", "cam-1", _request(), None)
    assert caught.value.code == "enrol.clock"


def test_strangers_are_answered_at_a_bounded_rate(hub: Hub) -> None:
    token = hub.invite("cam-1")
    asked = EnrolmentRequest(request=b"", roles=DEVICE, proof=bytes(32))
    answers = [hub.membership.answer(token.id, asked) for _ in range(int(BURST) + 50)]
    assert sum(answer is not None for answer in answers) == BURST
    hub.clock.passed += 1.0
    assert hub.membership.answer(token.id, asked) is not None


def test_a_certificate_that_cannot_be_written_down_is_not_issued(hub: Hub) -> None:
    token, keys = hub.invite("cam-1"), new_keys()
    hub.membership._store._db.connection.execute("pragma query_only = 1")
    answer = hub.ask(token, keys)
    assert answer.status == "refused"
    assert "cam-1" not in hub.access.users
    with pytest.raises(StorageError):
        hub.invite("cam-2")
    hub.membership._store._db.connection.execute("pragma query_only = 0")
    assert hub.ask(token, keys).status == "enrolled"


def test_a_certificate_is_not_noted_as_used_while_its_holder_is_removed(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = read_certificate(hub.enrol("cam-1")[1].certificate)
    parties, now = hub.membership.parties, hub.clock.now

    def remove_meanwhile() -> datetime:
        monkeypatch.setattr(hub.clock, "now", now)
        parties.revoke("cam-1", "removed")
        return now()

    monkeypatch.setattr(hub.clock, "now", remove_meanwhile)
    parties.note_use(made)
    assert not parties.accepts(made)
    hub.restart()
    assert not hub.membership.parties.accepts(made)


def test_the_broker_is_told_last_what_holds_last(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.enrol("cam-1")
    write, removals = hub.access.write, list[threading.Thread]()

    def slowly(users: Iterable[str], revoked: bytes) -> None:
        """Let another thread remove the device before this, older, list is written."""
        if not removals:
            parties = hub.membership.parties
            removals.append(threading.Thread(target=parties.revoke, args=("cam-1", "removed")))
            removals[0].start()
            removals[0].join(1.0)  # it ends only where nothing makes it wait
        write(users, revoked)

    monkeypatch.setattr(hub.access, "write", slowly)
    hub.restart()
    hub.membership.publish_access()
    removals[0].join()
    assert "cam-1" not in hub.access.users
    assert len(revoked_serials(hub)) == 1


def fill_disk(hub: Hub, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Have the broker's files refused so many times."""
    write, left = hub.access.write, [times]

    def refuse(users: Iterable[str], revoked: bytes) -> None:
        if left[0]:
            left[0] -= 1
            raise StorageError("The disk is full.", code="storage.full")
        write(users, revoked)

    monkeypatch.setattr(hub.access, "write", refuse)
    hub.restart()


def test_a_token_goes_on_after_the_broker_could_not_be_told(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(hub, monkeypatch, 2)
    token, keys = hub.invite("cam-1"), new_keys()
    for _ in range(2):
        answer = hub.ask(token, keys)
        assert (answer.status, answer.code) == ("refused", "storage.full")
    assert hub.ask(token, new_keys()).code == "enrol.used"
    assert hub.ask(token, keys).status == "enrolled"
    assert "cam-1" in hub.access.users


def test_a_removal_reaches_the_broker_once_the_disk_has_room(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.enrol("cam-1")
    fill_disk(hub, monkeypatch, 2)
    dropped: list[str] = []
    members = MembershipMessages(
        hub.membership,
        Link(Address("127.0.0.1", 1), "unused", lambda arrival: None),
        None,
        Topics(FLEET),
        EventJournal(FLEET, hub.clock),
        session=lambda device: "",
        drop=dropped.append,
        clock=hub.clock,
    )
    with pytest.raises(StorageError):
        members.remove("cam-1", "removed")
    assert dropped == ["cam-1"]  # the coordinator does not wait for the broker
    with pytest.raises(StorageError):
        members.tick()
    members.tick()  # too soon for another attempt
    assert "cam-1" in hub.access.users
    hub.clock.passed += REPEAT_EVERY
    members.tick()
    assert "cam-1" not in hub.access.users
    times = hub.access.times
    hub.clock.passed += REPEAT_EVERY
    members.tick()
    assert hub.access.times == times
    with pytest.raises(UnknownNameError):
        members.remove("cam-9", "removed")
    assert dropped == ["cam-1"]


def test_the_access_files_follow_a_restart(hub: Hub) -> None:
    made = read_certificate(hub.enrol("cam-1")[1].certificate)
    before = hub.access.times
    hub.restart()
    hub.membership.publish_access()
    assert hub.access.times == before + 1
    assert "cam-1" in hub.access.users
    assert hexadecimal(made.serial) == f"{made.serial:040x}"


def _request() -> CertificateRequest:
    return read_request(make_request(new_keys(), "cam-1"))
