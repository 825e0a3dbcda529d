"""A device's credentials in its tasks: they sign, and seal data for other devices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from edgefed.errors import NotAllowedError, WireError
from edgefed.trust.certificates import read_certificate
from edgefed.trust.credentials import Credentials
from edgefed.trust.known_device_keys import KnownKeys
from edgefed.trust.sealed_data import SealContext, open_data, seal_data
from edgefed.trust.signatures import is_signed
from edgefed.trust.succession import joined, parted, succession_of
from edgefed.wire.message_parts import DeliveredRelay
from edgefed.wire.messages import Task
from edgefed.worker.outcomes import Outcome

log = logging.getLogger(__name__)

LABEL = b"edgefed statement of a device 3\0"
"""Keeps signatures of algorithms from being taken for those of messages."""


@dataclass(frozen=True)
class DeviceCredentials:
    """Signs and seals for one device; implements ``DeviceTrust``.

    Args:
        current: returns the credentials, which may be renewed at any time.
        known: the keys of other devices; None to believe the authority alone.
    """

    current: Callable[[], Credentials]
    known: KnownKeys | None = None

    @property
    def certificate(self) -> bytes:
        """The device's own certificate, with the keys that it had before."""
        own = self.current()
        return joined(own.certificate.der, succession_of(own.folder, own.certificate.public_bytes))

    def sign(self, data: bytes) -> bytes:
        """Return the device's signature of some bytes."""
        return self.current().keys.signing.sign(LABEL + data)

    def verify(self, device: str, certificate: bytes, data: bytes, signature: bytes) -> None:
        """Check that a device of this fleet signed some bytes.

        Raises:
            NotAllowedError: it did not, or the certificate is not that device's, or it has another
                key than before.
            StorageError: its key cannot be stored.
        """
        encoded, succession = parted(certificate)
        signer = read_certificate(encoded)
        known = signer.is_issued_by(self.current().authority)
        named = (signer.role, signer.name) == ("device", device)
        if not (known and named and is_signed(signer, LABEL + data, signature)):
            raise NotAllowedError(
                f"A statement of {device} is not signed by that device.", code="trust.signature"
            )
        if self.known is not None:
            self.known.check(device, signer.public_bytes, succession)

    def sealed(self, task: Task, outcome: Outcome) -> Outcome:
        """Return an outcome whose data for other devices only these can read.

        Without a receiver's certificate no part of the outcome leaves the device.
        """
        if not outcome.relays:
            return outcome
        own = self.current()
        relays: dict[str, bytes] = {}
        try:
            for receiver, data in outcome.relays.items():
                encoded = task.certificates.get(receiver, b"")
                context = SealContext(task.run, task.exchange, task.device, receiver)
                relays[receiver] = seal_data(own, read_certificate(encoded), context, data)
        except NotAllowedError as error:
            return Outcome(status="refused", reason=error.as_line())
        return replace(outcome, relays=relays)

    def opened(self, task: Task, read: Callable[[str], bytes]) -> Mapping[str, bytes]:
        """Return the data that other devices sealed for this one, by digest, if it can be opened.

        A device that got other keys meanwhile cannot open data that was sealed before. The data is
        then missing, as when the coordinator no longer has it.
        """
        own = self.current()
        opened: dict[str, bytes] = {}
        for relay in task.relays:
            try:
                context = _context(task, relay)
                opened[relay.digest] = open_data(own, context, read(relay.digest))
            except WireError as error:
                log.warning("%s", error.message)
        return opened


def _context(task: Task, relay: DeliveredRelay) -> SealContext:
    return SealContext(task.run, relay.exchange, relay.sender, task.device)
