"""The parties of a fleet, invitations, and issued certificates, in a SQLite file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from edgefed.database.database import Database, DatabaseTable, Schema
from edgefed.trust.certificates import Certificate, Role

FILE = "enrolment.db"

InvitationState = Literal["open", "pending", "approved", "used", "rejected"]


@dataclass(frozen=True)
class Party:
    """A party that is or was enrolled.

    Attributes:
        user: common name of its certificates.
        role, name: its rights, and its name.
        state: whether its certificates count.
        enrolled, ended: timestamps; ``ended`` is empty while it is enrolled.
        reason: why it ended: ``removed`` by an operator, or ``left``.
        replaces: serial of the certificate whose keys an operator has ordered it to replace.
    """

    user: str
    role: Role
    name: str
    state: Literal["enrolled", "revoked"]
    enrolled: str
    ended: str = ""
    reason: str = ""
    replaces: str = ""


@dataclass(frozen=True)
class Issued:
    """A certificate that was issued.

    Attributes:
        serial: hexadecimal.
        user: whose it is.
        key: its public signing key, hexadecimal.
        der: the certificate.
        not_after: timestamp after which it counts for nobody.
        used: whether its holder has shown it.
        revoked: timestamp; empty while it counts.
    """

    serial: str
    user: str
    key: str
    der: bytes
    issued: str
    not_after: str
    used: int = 0
    revoked: str = ""


@dataclass(frozen=True)
class Invitation:
    """One token.

    Attributes:
        id: of the token.
        role, name: of its holder; the name is empty until the holder names itself.
        named: whether the token names its holder, so that no approval is needed.
        proof_key: checks that a request comes from its holder.
        created, expires: timestamps; it must be used in between.
        state: ``pending`` from the first request to the approval, ``used`` with a certificate.
        request: the certificate signing request; one with another key is refused.
        key: that request's public key, hexadecimal.
        serial: of the certificate issued for it.
    """

    id: str
    role: Role
    name: str
    named: int
    proof_key: bytes
    created: str
    expires: str
    state: InvitationState = "open"
    request: bytes = b""
    key: str = ""
    serial: str = ""


@dataclass(frozen=True)
class SiteLimits:
    """The limits in the invitation of a gateway.

    Attributes:
        user: the gateway.
        devices, samples: most of its site.
    """

    user: str
    devices: int = 0
    samples: int = 0


NO_LIMITS = SiteLimits("", 2**53, 2**53)
"""Of a fleet without an authority."""

Row = Party | Issued | Invitation | SiteLimits
RowT = TypeVar("RowT", Party, Issued, Invitation, SiteLimits)

_TABLES: dict[type[Row], str] = {
    Party: "parties",
    Issued: "issued",
    Invitation: "invitations",
    SiteLimits: "sites",
}
_KEYS = {"parties": "user", "issued": "serial", "invitations": "id", "sites": "user"}
_SQL = {"int": "integer", "bytes": "blob"}


def _table(kind: type[Row]) -> DatabaseTable:
    columns = {
        field.name: f"{_SQL.get(str(field.type), 'text')} not null" for field in fields(kind)
    }
    return DatabaseTable(columns, (_KEYS[_TABLES[kind]],))


class EnrolmentStore:
    """The file; safe from any thread.

    Args:
        folder: of the authority.

    Raises:
        StorageError: it cannot be used, or is damaged.
    """

    def __init__(self, folder: Path) -> None:
        tables = {name: _table(kind) for kind, name in _TABLES.items()}
        self._db = Database(folder / FILE, Schema(2, tables, "the list of enrolled devices", 1))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def parties(self) -> list[Party]:
        """Return all parties that are or were enrolled."""
        return self._rows(Party)

    def issued(self) -> list[Issued]:
        """Return the certificates that were issued."""
        return self._rows(Issued)

    def invitations(self) -> list[Invitation]:
        """Return the tokens, used ones among them."""
        return self._rows(Invitation)

    def site_limits(self, gateway: str) -> SiteLimits | None:
        """Return the limits in a gateway's invitation; None without one."""
        return next((row for row in self._rows(SiteLimits) if row.user == gateway), None)

    def write(self, rows: Iterable[Row], delete: Iterable[Row] = ()) -> None:
        """Write rows, and delete others, in one transaction.

        Raises:
            StorageError: the disk does not take it; nothing was changed.
        """
        with self._db.transaction():
            for row in delete:
                table = _TABLES[type(row)]
                self._db.delete(table, **{_KEYS[table]: getattr(row, _KEYS[table])})
            for row in rows:
                self._db.put(_TABLES[type(row)], *astuple(row))

    def _rows(self, kind: type[RowT]) -> list[RowT]:
        rows: list[Any] = self._db.rows(_TABLES[kind])
        return [kind(*row) for row in rows]


def hexadecimal(serial: int) -> str:
    """Return a serial number as it is stored and shown."""
    return f"{serial:040x}"


def key_of(certificate: Certificate) -> str:
    """Return a certificate's public signing key in hexadecimal."""
    return certificate.public_bytes.hex()
