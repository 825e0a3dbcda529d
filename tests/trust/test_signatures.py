"""Who signed a message, where it may be sent, and what happens to one that was changed or moved."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgpack
import pytest

from device_agent.identity.identity import agent_verifier
from edgefed.config.values.address import Address
from edgefed.errors import WireError
from edgefed.process.clock import SystemClock
from edgefed.transport.inbox import Incoming, Received, read_arrival
from edgefed.trust import signatures
from edgefed.trust.certificates import Certificate
from edgefed.trust.credentials import Credentials
from edgefed.trust.signatures import Signer, Verifier, signed_bytes
from edgefed.trust.superseded_certificate import NewestCertificate
from edgefed.wire.envelope import encode, open_envelope
from edgefed.wire.messages import (
    Cancel,
    Chunk,
    CoordinatorState,
    EventMessage,
    Message,
    Progress,
    Request,
)
from edgefed.wire.topics import Topics
from tests.signed_fleet import Trust

TOPICS = Topics("signed")
PROGRESS = Progress(session="0123456789abcdef", state="idle")
ORDER = Request(nonce="0123456789abcdef", action="run.order")


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return Trust(tmp_path_factory.mktemp("trust"))


@pytest.fixture(scope="module")
def parties(trust: Trust) -> dict[str, Credentials]:
    made = {name: trust.issue("device", name) for name in ("cam-1", "cam-2")}
    made["coordinator"] = trust.issue("coordinator")
    return made | {role: trust.issue(role, "ann") for role in ("operator", "viewer")}


def received(
    verifier: Verifier, topic: str, payload: bytes, reasons: list[str] | None = None
) -> Received | None:
    told = [] if reasons is None else reasons
    return read_arrival(
        TOPICS, Incoming(topic, payload, False), lambda _, reason: told.append(reason), verifier
    )


def introduced(trust: Trust, *known: Credentials) -> Verifier:
    """Return a verifier that has met these parties."""
    verifier = Verifier(trust.authority)
    for each in known:
        verifier._known[each.certificate.key_id] = each.certificate
    return verifier


def test_a_signed_message_is_read_with_its_signer(
    trust: Trust, parties: dict[str, Credentials]
) -> None:
    topic = TOPICS.progress("cam-1")
    payload = encode(PROGRESS, topic, Signer(parties["cam-1"]))
    read = received(introduced(trust, parties["cam-1"]), topic, payload)
    assert read is not None
    assert (read.message, read.signer) == (PROGRESS, parties["cam-1"].certificate)


@pytest.mark.parametrize(
    ("signer", "signed_for", "sent_to"),
    [
        ("cam-2", "cam-1", "cam-1"),  # somebody else's topic
        ("cam-2", "cam-2", "cam-1"),  # moved there
        ("coordinator", "cam-1", "cam-1"),  # a role that does not send there
        ("operator", "cam-1", "cam-1"),
    ],
)
def test_only_the_device_itself_is_heard_on_its_topics(
    trust: Trust, parties: dict[str, Credentials], signer: str, signed_for: str, sent_to: str
) -> None:
    payload = encode(PROGRESS, TOPICS.progress(signed_for), Signer(parties[signer]))
    verifier, reasons = introduced(trust, *parties.values()), list[str]()
    assert received(verifier, TOPICS.progress(sent_to), payload, reasons) is None
    assert (verifier.refused, len(reasons)) == (1, 1)


@pytest.mark.parametrize(
    ("message", "topic", "heard"),
    [
        (Cancel(exchange="e"), TOPICS.cancel("cam-1"), {"coordinator"}),
        (ORDER, TOPICS.request("operator.ann/1"), {"operator"}),
        (ORDER, TOPICS.request("viewer.ann/1"), {"viewer"}),
        (ORDER, TOPICS.request("cam-1/1"), set()),
        (PROGRESS, TOPICS.progress("coordinator"), set()),
        (EventMessage(session="0123abcd", number=1, event={}), TOPICS.events(), {"coordinator"}),
    ],
    ids=["down", "operator", "viewer", "order of a device", "up", "events"],
)
def test_who_may_send_where(
    trust: Trust, parties: dict[str, Credentials], message: Message, topic: str, heard: set[str]
) -> None:
    verifier = introduced(trust, *parties.values())
    found = {
        name
        for name, own in parties.items()
        if received(verifier, topic, encode(message, topic, Signer(own)))
    }
    assert found == heard


def test_any_changed_bit_is_refused(trust: Trust, parties: dict[str, Credentials]) -> None:
    topic = TOPICS.progress("cam-1")
    payload = encode(PROGRESS, topic, Signer(parties["cam-1"]))
    verifier = introduced(trust, parties["cam-1"])
    version = range(8, 16)  # not signed: another number is refused, or says nothing else
    for bit in {*range(8 * len(payload))} - {*version}:
        changed = bytearray(payload)
        changed[bit // 8] ^= 1 << bit % 8
        assert received(verifier, topic, bytes(changed)) is None
    assert received(verifier, topic, payload) is not None


def test_what_nobody_signed_is_refused_but_chunks(
    trust: Trust, parties: dict[str, Credentials]
) -> None:
    verifier, reasons = introduced(trust, *parties.values()), list[str]()
    assert received(verifier, TOPICS.progress("cam-1"), encode(PROGRESS), reasons) is None
    assert reasons == ["A progress message is not signed."]
    chunk = TOPICS.up_chunk("cam-1")
    assert received(verifier, chunk, encode(Chunk(digest="0" * 64, index=0, data=b"x"))) is not None


def test_a_certificate_of_another_authority_is_refused(
    trust: Trust, parties: dict[str, Credentials], tmp_path: Path
) -> None:
    stranger = Trust(tmp_path).issue("operator", "ann")
    topic, reasons = TOPICS.request("operator.ann/1"), list[str]()
    verifier = Verifier(trust.authority)
    assert received(verifier, topic, encode(ORDER, topic, Signer(stranger)), reasons) is None
    assert reasons == ["A message was signed with a certificate of another fleet."]
    payload = encode(ORDER, topic, Signer(parties["operator"]))
    assert received(verifier, topic, payload) is not None  # the request introduces its signer


def test_a_message_names_the_key_of_the_certificate_that_it_carries(
    trust: Trust, parties: dict[str, Credentials]
) -> None:
    topic, reasons = TOPICS.request("operator.ann/1"), list[str]()
    version, kind, body, key, *rest = msgpack.unpackb(
        encode(ORDER, topic, Signer(parties["operator"]))
    )
    for other in (parties["viewer"].certificate.key_id, bytes(8)):
        payload = msgpack.packb((version, kind, body, other, *rest))
        assert received(Verifier(trust.authority), topic, payload, reasons) is None
    assert set(reasons) == {"A message names another key than that of its certificate."}
    whole = msgpack.packb((version, kind, body, key, *rest))
    assert received(Verifier(trust.authority), topic, whole) is not None


def test_a_signer_that_was_not_introduced_is_not_counted_as_refused(
    trust: Trust, parties: dict[str, Credentials]
) -> None:
    topic = TOPICS.progress("cam-1")
    payload = encode(PROGRESS, topic, Signer(parties["cam-1"]))
    verifier, reasons = Verifier(trust.authority), list[str]()
    assert received(verifier, topic, payload, reasons) is None
    assert (verifier.refused, verifier.unintroduced, reasons) == (0, 1, [])


def test_of_too_many_signers_the_one_heard_longest_ago_is_forgotten(
    trust: Trust, parties: dict[str, Credentials], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signatures, "MAX_KNOWN", 2)
    verifier = Verifier(trust.authority)
    bob, ann, viewer = trust.issue("operator", "bob"), parties["operator"], parties["viewer"]
    for own in (ann, viewer, ann, bob):
        topic = TOPICS.request(f"{own.certificate.user}/1")
        assert received(verifier, topic, encode(ORDER, topic, Signer(own))) is not None
    assert verifier._known.keys() == {ann.certificate.key_id, bob.certificate.key_id}


def test_a_message_cannot_be_moved_to_another_device(
    trust: Trust, parties: dict[str, Credentials]
) -> None:
    own = parties["coordinator"]
    payload = encode(Cancel(exchange="e"), TOPICS.cancel("cam-1"), Signer(own))
    verifier, reasons = introduced(trust, own), list[str]()
    assert received(verifier, TOPICS.cancel("cam-1"), payload, reasons) is not None
    assert received(verifier, TOPICS.cancel("cam-2"), payload, reasons) is None
    assert reasons == ["The signature of a cancel message is wrong."]


def test_a_revoked_certificate_is_refused(trust: Trust, parties: dict[str, Credentials]) -> None:
    topic = TOPICS.request("operator.ann/1")
    gone = parties["operator"].certificate
    verifier = Verifier(trust.authority, lambda certificate: certificate.serial == gone.serial)
    envelope = open_envelope(encode(ORDER, topic, Signer(parties["operator"])))
    with pytest.raises(WireError, match="revoked") as caught:
        verifier.verify(topic, envelope.kind, envelope.body, envelope.seal, ("operator",))
    assert caught.value.code == "wire.signer"


def test_parts_of_what_is_signed_cannot_run_into_each_other() -> None:
    assert signed_bytes("ab", "c", b"d") != signed_bytes("a", "bc", b"d")
    assert signed_bytes("a", "b", b"cd") != signed_bytes("a", "bc", b"d")


def test_an_older_certificate_of_the_coordinator_is_superseded(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust")

    def issued(hours: int) -> Certificate:
        moment = trust.now + timedelta(hours=hours)
        return trust.issue("coordinator", now=moment).certificate

    first, second = issued(-1), issued(0)
    newest = NewestCertificate(tmp_path / "since", SystemClock())
    assert [newest.is_superseded(each) for each in (first, first, second, first)] == [
        False,
        False,
        False,
        True,
    ]
    assert NewestCertificate(tmp_path / "since", SystemClock()).is_superseded(first)


def test_a_certificate_of_the_future_supersedes_none(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust")
    now = trust.issue("coordinator").certificate
    ahead = trust.issue("coordinator", now=trust.now + timedelta(days=40)).certificate
    newest = NewestCertificate(tmp_path / "since", SystemClock())
    assert [newest.is_superseded(each) for each in (ahead, now)] == [False, False]


def test_what_cannot_be_written_down_counts_until_the_process_ends(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust")
    first = trust.issue("coordinator", now=trust.now - timedelta(hours=1)).certificate
    second = trust.issue("coordinator").certificate
    place = tmp_path / "gone" / "since"
    newest = NewestCertificate(place, SystemClock())
    (tmp_path / "gone").write_text("a file where a folder should be")
    assert [newest.is_superseded(each) for each in (first, second, first)] == [False, False, True]
    (tmp_path / "gone").unlink()
    assert not newest.is_superseded(second)
    assert NewestCertificate(place, SystemClock()).is_superseded(first)


def test_an_agent_no_longer_accepts_the_coordinators_old_keys(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust")
    own = trust.issue("device", "cam-1")
    old = trust.issue("coordinator", now=trust.now - timedelta(hours=1))
    new = trust.issue("coordinator")
    topic, message = (
        TOPICS.coordinator(),
        CoordinatorState(session="0123456789abcdef", owner="me", status="online"),
    )
    verifier = agent_verifier(trust.address(own), tmp_path, SystemClock())
    assert verifier is not None
    heard = [
        received(verifier, topic, encode(message, topic, Signer(each))) is not None
        for each in (old, new, old, new)
    ]
    assert heard == [True, True, False, True]
    assert agent_verifier(Address("127.0.0.1"), tmp_path, SystemClock()) is None


def test_what_is_not_proven_is_not_noted(trust: Trust, parties: dict[str, Credentials]) -> None:
    asked: list[Certificate] = []

    def is_revoked(certificate: Certificate) -> bool:
        asked.append(certificate)
        return False

    own, topic = parties["coordinator"], TOPICS.cancel("cam-1")
    verifier = Verifier(trust.authority, is_revoked)
    verifier._known[own.certificate.key_id] = own.certificate
    payload = encode(Cancel(exchange="e"), TOPICS.cancel("cam-2"), Signer(own))
    assert received(verifier, topic, payload) is None
    assert (asked, verifier.refused) == ([], 1)
