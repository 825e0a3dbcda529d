"""Credentials on disk: whole or not at all, and refused with one line when they cannot be used."""

from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from edgefed.config.fleet.broker_errors import silent
from edgefed.errors import NotAllowedError, StorageError
from edgefed.trust import certificates
from edgefed.trust.certificates import ENCRYPTION_KEY, read_certificate, user_of
from edgefed.trust.credentials import load_credentials, save_credentials
from edgefed.trust.issuing import issue, make_request, new_keys, read_request
from edgefed.wire import limits
from tests.signed_fleet import LIFE, Trust
from tests.support.synced import synced_folders

AUTHORITY_KEY, BASIC_CONSTRAINTS = b"\x06\x03\x55\x1d\x23", b"\x06\x03\x55\x1d\x13"
"""Object identifiers of extensions, encoded."""


def code_of(folder: Path, trust: Trust, *, days: float = 0.0) -> str:
    with pytest.raises(NotAllowedError) as caught:
        load_credentials(folder, trust.now + timedelta(days=days))
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value.code


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path / "trust")


def test_they_come_back_as_they_were(trust: Trust) -> None:
    made = trust.issue("device", "cam-1")
    found = load_credentials(made.folder, trust.now)
    assert found.certificate == made.certificate
    assert found.keys.signing.private_bytes_raw() == made.keys.signing.private_bytes_raw()
    assert (found.fleet, found.broker) == (trust.fleet, f"mqtts://127.0.0.1:{trust.port}")
    modes = {path.name: path.stat().st_mode & 0o777 for path in made.folder.iterdir()}
    assert set(modes.values()) == {0o600}
    assert made.folder.stat().st_mode & 0o777 == 0o700


def test_a_key_that_others_can_read_is_refused(trust: Trust) -> None:
    made = trust.issue("device", "cam-1")
    (made.folder / "key.pem").chmod(0o640)
    assert code_of(made.folder, trust) == "trust.permissions"


def test_validity_and_a_wrong_clock_are_told_apart(trust: Trust) -> None:
    folder = trust.issue("device", "cam-1").folder
    assert code_of(folder, trust, days=31) == "trust.expired"
    assert code_of(folder, trust, days=-365 * 50) == "trust.clock"
    with pytest.raises(NotAllowedError, match=r"clock says 19\d\d-"):
        load_credentials(folder, trust.now - timedelta(days=365 * 50))


def test_who_gets_no_answer_from_the_broker_learns_when_its_certificate_ends(trust: Trust) -> None:
    own = trust.issue("device", "cam-1")
    ends = f"its certificate ends {own.certificate.not_after:%Y-%m-%d}"
    assert ends in silent(trust.address(own), "in time").hint


def test_another_authority_is_refused(trust: Trust, tmp_path: Path) -> None:
    made = trust.issue("device", "cam-1")
    other = Trust(tmp_path / "other")
    (made.folder / "authority.pem").write_bytes(other.authority.pem())
    assert code_of(made.folder, trust) == "trust.authority"


@pytest.mark.parametrize("name", ["key.pem", "encryption.pem", "certificate.pem", "fleet.json"])
def test_a_missing_or_damaged_file_is_told(trust: Trust, name: str) -> None:
    folder = trust.issue("device", "cam-1").folder
    (folder / name).write_bytes(b"garbage")
    assert code_of(folder, trust) == "trust.credentials"
    (folder / name).unlink()
    assert code_of(folder, trust) == "trust.credentials"


@pytest.mark.parametrize("name", ["key.pem", "encryption.pem"])
def test_keys_and_certificate_must_belong_together(trust: Trust, name: str) -> None:
    one, two = trust.issue("device", "cam-1"), trust.issue("device", "cam-2")
    (one.folder / name).write_bytes((two.folder / name).read_bytes())
    assert code_of(one.folder, trust) == "trust.credentials"
    assert not two.keys.fit(replace(two.certificate, encryption_key=one.certificate.encryption_key))
    assert two.keys.fit(two.certificate)


def test_a_file_nested_too_deeply_is_told(trust: Trust) -> None:
    folder = trust.issue("device", "cam-1").folder
    (folder / "fleet.json").write_bytes(b'{"fleet":' + b"[" * 100_000)
    assert code_of(folder, trust) == "trust.credentials"


def test_a_write_that_fails_leaves_what_was_there(trust: Trust, tmp_path: Path) -> None:
    made = trust.issue("device", "cam-1")
    (tmp_path / "file").write_text("in the way")
    blocked = replace(made, folder=tmp_path / "file" / "cam-1")
    with pytest.raises(StorageError):
        save_credentials(blocked)
    assert load_credentials(made.folder, trust.now).certificate == made.certificate


def test_a_rename_that_fails_after_the_first_one_leaves_what_was_there(
    trust: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, rename = trust.issue("device", "cam-1"), Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path.suffix == ".part":
            raise OSError("the disk is gone")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(StorageError):
        trust.issue("device", "cam-1")
    monkeypatch.undo()
    assert [path.name for path in trust.folder.iterdir()] == ["cam-1"]
    assert load_credentials(made.folder, trust.now).certificate == made.certificate


def test_a_process_killed_between_the_renames_loses_nothing(trust: Trust) -> None:
    made = trust.issue("device", "cam-1")
    made.folder.rename(made.folder.with_name(".cam-1.old"))
    assert load_credentials(made.folder, trust.now).certificate == made.certificate


def test_renewed_credentials_replace_the_old(trust: Trust) -> None:
    first, second = trust.issue("device", "cam-1"), trust.issue("device", "cam-1")
    assert first.folder == second.folder
    assert load_credentials(second.folder, trust.now).certificate == second.certificate
    assert [path.name for path in trust.folder.iterdir()] == ["cam-1"]


def test_new_credentials_are_on_the_disk_under_their_name(
    trust: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trust.issue("device", "cam-1")
    synced = synced_folders(monkeypatch)
    save_credentials(made)
    contents, folder = synced[-1]
    assert folder == made.folder.parent
    assert contents == [".cam-1.old", "cam-1"]  # after the last rename


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_broker_that_speaks_no_tls_1_3_is_refused(trust: Trust, newest: ssl.TLSVersion) -> None:
    broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    broker.maximum_version = newest
    trust.issue("broker").load_into(broker)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = trust.issue("device", "cam-1").tls_context()
    device = context.wrap_bio(back, there, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        device.do_handshake()
    try:
        broker.wrap_bio(there, back, server_side=True).do_handshake()
        refused = False
    except ssl.SSLWantReadError:
        refused = False
    except ssl.SSLError:
        refused = True
    assert refused == (newest < ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize("name", ["", "Cam", "a.b", "a/b", "+", "-a", "coordinator", "x" * 65])
def test_a_device_cannot_have_every_name(name: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        user_of("device", name)
    assert caught.value.code == "trust.name"


def test_the_users_of_other_roles_cannot_be_names_of_devices() -> None:
    assert user_of("operator", "ann") == "operator.ann"
    assert user_of("viewer", "ann") == "viewer.ann"
    assert user_of("coordinator") == "coordinator"


def test_certificates_say_who_holds_them(trust: Trust) -> None:
    certificate = trust.issue("operator", "ann").certificate
    assert (certificate.user, certificate.name, certificate.role) == (
        "operator.ann",
        "ann",
        "operator",
    )
    assert certificate.is_issued_by(trust.authority)
    assert not trust.authority.is_issued_by(certificate)
    assert not certificate.is_issued_by(certificate)
    assert certificate.is_valid_at(trust.now + LIFE - timedelta(seconds=1))
    assert not certificate.is_valid_at(trust.now + 2 * LIFE)


def test_a_request_is_proven_by_its_key() -> None:
    keys = new_keys()
    request = make_request(keys, "cam-1")
    found = read_request(request)
    assert (found.name, found.signing_key) == ("cam-1", keys.signing.public_key())
    assert found.encryption_key == keys.encryption.public_key()
    for changed in (request[:-1] + bytes([request[-1] ^ 1]), request[:-5], b"", b"\x30" * 3000):
        with pytest.raises(NotAllowedError) as caught:
            read_request(changed)
        assert caught.value.code == "trust.request"


@pytest.mark.parametrize("encoded", [b"", b"-----BEGIN", b"\x30\x82" + bytes(100), bytes(9000)])
def test_what_is_no_certificate_is_refused(encoded: bytes) -> None:
    with pytest.raises(NotAllowedError) as caught:
        read_certificate(encoded)
    assert caught.value.code == "trust.certificate"


def test_a_certificate_that_names_an_extension_twice_is_refused(trust: Trust) -> None:
    made = trust.issue("device", "cam-1").certificate.der
    twice = made.replace(AUTHORITY_KEY, BASIC_CONSTRAINTS)
    assert twice != made
    with pytest.raises(NotAllowedError) as caught:
        read_certificate(twice)
    assert caught.value.code == "trust.certificate"


def test_a_request_that_names_an_extension_twice_is_refused() -> None:
    keys = new_keys()
    raw = keys.encryption.public_key().public_bytes_raw()
    other = x509.ObjectIdentifier(f"{ENCRYPTION_KEY.dotted_string[:-1]}2")
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    for oid in (ENCRYPTION_KEY, other):
        builder = builder.add_extension(x509.UnrecognizedExtension(oid, raw), critical=False)
    signed = builder.sign(keys.signing, None)
    content = signed.tbs_certrequest_bytes
    twice = content.replace(_encoded(other), _encoded(ENCRYPTION_KEY))
    assert twice != content
    made = signed.public_bytes(Encoding.DER).replace(content, twice)
    made = made.replace(signed.signature, keys.signing.sign(twice))
    with pytest.raises(NotAllowedError) as caught:
        read_request(made)
    assert caught.value.code == "trust.request"


def _encoded(oid: x509.ObjectIdentifier) -> bytes:
    """Return the last bytes of an identifier, which tell it from its neighbours."""
    number = int(oid.dotted_string.rpartition(".")[2])
    return bytes([number >> 7 & 0x7F | 0x80, number & 0x7F])


def test_long_certificates_and_requests_are_not_read(trust: Trust) -> None:
    keys = new_keys()
    with pytest.raises(NotAllowedError, match="it is too long"):
        issue(
            trust.authority,
            trust.key,
            role="broker",
            signing_key=keys.signing.public_key(),
            now=trust.now,
            life=LIFE,
            hosts=[f"host-{number}.example" for number in range(400)],
        )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cam-1")])
    raw = x509.UnrecognizedExtension(
        certificates.ENCRYPTION_KEY, keys.encryption.public_key().public_bytes_raw()
    )
    names = x509.SubjectAlternativeName([x509.DNSName(f"host-{n}.example") for n in range(200)])
    builder = x509.CertificateSigningRequestBuilder(subject).add_extension(raw, critical=False)
    long = builder.add_extension(names, critical=False).sign(keys.signing, None)
    with pytest.raises(NotAllowedError, match="it is too long"):
        read_request(long.public_bytes(Encoding.DER))


def test_messages_and_files_bound_certificates_alike() -> None:
    assert certificates.MAX_CERTIFICATE_BYTES == limits.MAX_CERTIFICATE_BYTES
