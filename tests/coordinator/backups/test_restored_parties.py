"""Who belongs to a restored fleet: what was revoked by either side, or on the broker's list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from edgefed.coordinator.backups.parties import (
    REVOCATIONS,
    LaterState,
    later_state,
    merge_later,
    to_confirm,
)
from edgefed.coordinator.members.enrolment_store import EnrolmentStore, Invitation, Issued, Party
from edgefed.errors import NotAllowedError
from edgefed.trust.authority import AUTHORITY_FOLDER, Authority, new_authority, save_authority

NOW = "2026-05-05T00:00:00.000Z"
T = [f"2026-05-0{day}T00:00:00.000Z" for day in range(5)]


Row = Party | Issued | Invitation


def party(name: str = "cam-1", enrolled: str = T[0], ended: str = "") -> Party:
    state = "revoked" if ended else "enrolled"
    return Party(name, "device", name, state, enrolled, ended, "removed" if ended else "")  # type: ignore[arg-type]


def issued(serial: str, name: str = "cam-1", revoked: str = "", used: int = 1) -> Issued:
    return Issued(serial, name, "aa", b"der", T[0], T[4], used, revoked)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EnrolmentStore]:
    with closing(EnrolmentStore(tmp_path)) as made:
        yield made


def merged(
    store: EnrolmentStore, backup: Sequence[Row], *later: LaterState
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the states of parties, and the times at which certificates were revoked."""
    store.write(backup)
    merge_later(store, later, NOW)
    return (
        {each.user: each.state for each in store.parties()},
        {each.serial: each.revoked for each in store.issued()},
    )


ENROLLED: list[Row] = [party(), issued("01")]
REMOVED = LaterState((party(ended=T[2]),), (issued("01", revoked=T[2]),))


def test_who_was_removed_after_the_backup_stays_removed(store: EnrolmentStore) -> None:
    assert merged(store, [*ENROLLED], REMOVED) == ({"cam-1": "revoked"}, {"01": T[2]})


def test_an_older_state_brings_nobody_back(store: EnrolmentStore) -> None:
    backup: list[Row] = [party(ended=T[2]), issued("01", revoked=T[2])]
    older = LaterState((party(),), (issued("01"),))
    assert merged(store, backup, older) == ({"cam-1": "revoked"}, {"01": T[2]})


def test_who_was_invited_again_after_a_removal_is_enrolled(store: EnrolmentStore) -> None:
    backup: list[Row] = [party(ended=T[1]), issued("01", revoked=T[1])]
    later = LaterState((party(enrolled=T[2]),), (issued("01", revoked=T[1]), issued("02")))
    assert merged(store, backup, later) == ({"cam-1": "enrolled"}, {"01": T[1], "02": ""})


def test_who_was_enrolled_after_the_backup_is_enrolled(store: EnrolmentStore) -> None:
    later = LaterState((party("cam-2", T[1]),), (issued("02", "cam-2"),))
    states, _ = merged(store, [*ENROLLED], later)
    assert states == {"cam-1": "enrolled", "cam-2": "enrolled"}


def test_the_brokers_list_alone_ends_a_membership(store: EnrolmentStore) -> None:
    backup = [*ENROLLED, party("cam-2"), issued("02", "cam-2"), issued("03", "cam-2")]
    states, revoked = merged(store, backup, LaterState(revoked=frozenset({"01", "02", "99"})))
    assert states == {"cam-1": "revoked", "cam-2": "enrolled"}  # cam-2 has another certificate
    assert revoked == {"01": NOW, "02": NOW, "03": ""}


def test_of_several_states_any_can_revoke(store: EnrolmentStore) -> None:
    fine = LaterState((party(),), (issued("01"),))
    assert merged(store, [*ENROLLED], fine, REMOVED, fine)[0] == {"cam-1": "revoked"}


def test_a_removed_party_keeps_no_certificate(store: EnrolmentStore) -> None:
    later = LaterState((party(ended=T[2]),), ())
    assert merged(store, [*ENROLLED], later)[1] == {"01": NOW}


def test_tokens_are_void(store: EnrolmentStore) -> None:
    token = Invitation("a", "device", "cam-9", 1, b"key", T[0], T[4])
    kept = replace(token, id="b", state="rejected")
    merged(store, [token, replace(token, id="c", state="pending"), kept])
    assert store.invitations() == [kept]


def test_parties_on_this_machine_need_no_confirmation(tmp_path: Path) -> None:
    own = [
        replace(party("coordinator"), role="coordinator"),
        replace(party("operator.admin"), role="operator"),
    ]
    far = [party(), replace(party("operator.maria"), role="operator")]
    (tmp_path / "operator.admin").mkdir()
    (tmp_path / "cam-1").mkdir()  # a device is confirmed wherever it is
    gone = party("cam-3", ended=T[1])
    assert to_confirm(tmp_path, [*own, *far, gone]) == far


# -- what a folder tells --------------------------------------------------------------------------


def authority(folder: Path | None = None) -> Authority:
    made = new_authority("plant-a", "mqtts://h:1", ("h",), datetime.now(timezone.utc))
    if folder is not None:
        folder.mkdir(parents=True)
        save_authority(made, folder)
    return made


def told(trust: Path, own: Authority) -> tuple[LaterState, list[str]]:
    warnings: list[str] = []
    return later_state(trust, own, warnings.append), warnings


def test_a_folder_of_another_authority_is_refused(tmp_path: Path) -> None:
    authority(tmp_path / AUTHORITY_FOLDER)
    with pytest.raises(NotAllowedError) as caught:
        told(tmp_path, authority())
    assert caught.value.code == "restore.authority"


def test_only_the_authoritys_own_list_of_revocations_counts(tmp_path: Path) -> None:
    own, now = authority(), datetime.now(timezone.utc)
    path = tmp_path / REVOCATIONS
    path.parent.mkdir()
    path.write_bytes(own.revocations([7, 255], now))
    assert told(tmp_path, own) == (LaterState(revoked=frozenset({f"{7:040x}", f"{255:040x}"})), [])
    path.write_bytes(authority().revocations([7], now))
    found, warnings = told(tmp_path, own)
    assert found == LaterState()
    assert "another authority signed it" in warnings[0]
    path.write_bytes(b"no list")
    assert len(told(tmp_path, own)[1]) == 1


def test_a_damaged_present_list_is_said(tmp_path: Path) -> None:
    own = authority(tmp_path / AUTHORITY_FOLDER)
    with closing(EnrolmentStore(tmp_path / AUTHORITY_FOLDER)) as store:
        store.write([*ENROLLED])
    assert told(tmp_path, own)[0].parties == (party(),)
    (tmp_path / AUTHORITY_FOLDER / "enrolment.db").write_bytes(b"x" * 5000)
    found, warnings = told(tmp_path, own)
    assert found == LaterState()
    assert "the present list of devices cannot be read" in warnings[0]
