"""Start the broker that is available: Mosquitto, or the demo broker on loopback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

from broker.embedded import EmbeddedBroker
from broker.mosquitto import INSTALL_HINT, MosquittoBroker, find_mosquitto
from edgefed.config.values.address import Address
from edgefed.errors import UsageError

Kind = Literal["auto", "mosquitto", "embedded"]


class RunningBroker(Protocol):
    """A broker that was started here."""

    @property
    def name(self) -> str:
        """``mosquitto`` or ``embedded``."""
        ...

    @property
    def address(self) -> Address:
        """Where it listens."""
        ...

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def log(self) -> Path:
        """The file that it writes its log to."""
        ...

    def is_running(self) -> bool:
        """Whether it has not ended."""
        ...

    def stop(self) -> None:
        """End it; does nothing when it has ended."""
        ...


def start_broker(
    address: Address,
    folder: Path,
    prefer: Kind = "auto",
    *,
    allow_anonymous: bool | None = None,
    find: Callable[[], Path | None] = find_mosquitto,
    tell: Callable[[str], None] = lambda line: None,
) -> RunningBroker:
    """Start a broker and return it once it accepts connections.

    Args:
        address: of its listener.
        folder: for its configuration, log and database; created when absent.
        prefer: ``auto`` takes Mosquitto when it is installed and the demo broker otherwise.
        allow_anonymous: Mosquitto lets clients in without a user name; None for loopback only.
        find: returns the path of Mosquitto.
        tell: takes one line about a start that takes long.

    Raises:
        UsageError: no broker here can serve the address, or the port is taken.
        UnreachableError: the broker did not start.
        StorageError: the folder cannot be written.
    """
    program = None if prefer == "embedded" else find()
    if program is not None:
        _require_decision(address, allow_anonymous)
        return MosquittoBroker(
            address, folder, allow_anonymous=allow_anonymous, program=program, tell=tell
        )
    if prefer == "mosquitto" or (prefer == "auto" and not address.is_loopback):
        raise UsageError(
            f"Mosquitto is not installed; the demo broker cannot serve {address}.",
            code="broker.no_mosquitto",
            hint=INSTALL_HINT,
        )
    return EmbeddedBroker(address, folder)


def _require_decision(address: Address, allow_anonymous: bool | None) -> None:
    """Refuse a broker that other machines reach if no access rules were chosen."""
    if not address.is_loopback and allow_anonymous is None:
        raise UsageError(
            f"Other machines can reach {address.host}, and this broker would have no users.",
            code="broker.anonymous",
            hint="add --allow-anonymous to admit all clients, or see: edgefed broker config --help",
        )
