"""Serve the messages about membership: tokens, renewals, leaving, and removals in mid-round."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.members.enrolment_server import EnrolmentServer
from edgefed.coordinator.members.enrolment_store import Party
from edgefed.coordinator.members.key_rotation import KeyRotation
from edgefed.coordinator.members.membership import Membership
from edgefed.errors import EdgeFedError
from edgefed.process.clock import Clock
from edgefed.transport.link import Link
from edgefed.trust.certificates import REMOTE, Certificate
from edgefed.trust.credentials import load_credentials
from edgefed.wire.enrolment_messages import (
    EnrolmentRequest,
    Leave,
    RenewalOrder,
    RenewalRequest,
)
from edgefed.wire.topics import Topics

log = logging.getLogger(__name__)

CLEAR_AGAIN = 5.0
"""Seconds after which a removed party's retained messages are deleted once more: the broker takes
its messages until it has read the new rules."""

FAREWELL = 5.0
"""Seconds within which the broker takes the answer to a device that leaves, before it is cut."""


class MembershipMessages:
    """Handles messages about membership for the dispatcher; owned by its thread.

    Args:
        membership: the members of the fleet.
        link: for answers to members.
        enrolment: for answers to strangers; None in a fleet without TLS.
        topics: of the fleet.
        journal: receives joins and removals.
        session: returns the current life of a device; empty when it is not connected.
        drop: removes a device that is connected, in mid-round too.
        clock: for the validity of certificates.
    """

    def __init__(
        self,
        membership: Membership,
        link: Link,
        enrolment: EnrolmentServer | None,
        topics: Topics,
        journal: EventJournal,
        session: Callable[[str], str],
        drop: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self.membership = membership
        self._link = link
        self._enrolment = enrolment
        self._topics = topics
        self._journal = journal
        self._drop = drop
        self._session = session
        self._clock = clock
        self._stale = False
        self._to_clear: list[tuple[float, Party]] = []
        self.rotation = KeyRotation(
            membership.parties, membership.own, self._order_rotation, self._use_new_keys
        )

    def start(self) -> None:
        """Accept enrolment requests, as soon as their broker is reachable."""
        if self._enrolment is not None:
            self._enrolment.start()

    def stop(self) -> None:
        """Stop accepting enrolment requests."""
        if self._enrolment is not None:
            self._enrolment.stop()

    def take_enrolment(self, token: str, asked: EnrolmentRequest) -> None:
        """Answer the holder of a token."""
        answer = self.membership.answer(token, asked)
        if answer is not None and self._enrolment is not None:
            self._enrolment.answer(token, answer)

    def take(self, device: str, message: RenewalRequest | Leave) -> None:
        """Handle a member's request about its membership."""
        if isinstance(message, Leave):
            self.take_leave(device, message)
        else:
            self.take_renewal(device, message)

    def take_renewal(self, device: str, asked: RenewalRequest) -> None:
        """Answer a device that asks for its next certificate."""
        try:
            issued = self.membership.renew(device, asked)
        except EdgeFedError as error:
            log.warning("%s gets no other certificate: %s", device, error.message)
            return
        self._link.send(self._topics.certificate(device), issued)

    def take_leave(self, device: str, farewell: Leave) -> None:
        """Answer a device that leaves, and then end its membership.

        The answer is sent first, because the broker delivers nothing to the device afterwards.
        """
        sent = self._link.send(self._topics.left(device), farewell)

        def end() -> None:
            try:
                sent.wait_for_publish(FAREWELL)
                self.remove(device, "left")
            except (EdgeFedError, ValueError, RuntimeError) as error:
                log.warning("%s wants to leave and cannot: %s", device, error)

        threading.Thread(target=end, name="farewell", daemon=True).start()

    def remove(self, user: str, reason: str) -> Party:
        """End a membership, and stop asking its device.

        Raises:
            UnknownNameError: no party of that name was enrolled.
            StorageError: it cannot be stored, or the broker's files cannot be written yet.
        """
        self._tell(user)
        parties = self.membership.parties
        try:
            party = parties.revoke(user, reason)
        finally:  # also where it was written down and the broker could not be told
            ended = parties.party(user)
            if ended is not None and ended.state == "revoked":
                if ended.role in REMOTE:
                    self._drop(user)
                self._clear(ended)
                self._to_clear.append((self._clock.monotonic() + CLEAR_AGAIN, ended))
        self._journal.emit("note", text=f"{party.role} {party.name}: {_WORDS[reason]}")
        return party

    def _clear(self, party: Party) -> None:
        """Delete the broker's retained messages of a party."""
        if party.role in REMOTE:
            self._link.clear(*self._topics.written_by_device(party.name))
        else:
            self._link.clear(*self._topics.written_by_client(party.user))

    def _clear_again(self) -> None:
        now = self._clock.monotonic()
        while self._to_clear and self._to_clear[0][0] <= now:
            _, party = self._to_clear.pop(0)
            if not self.membership.parties.is_enrolled(party.user):  # nor invited again meanwhile
                self._clear(party)

    def _tell(self, user: str) -> None:
        """Tell a connected device that it is removed, while the broker still delivers it."""
        session = self._session(user)
        if session and self.membership.parties.is_enrolled(user):
            self._link.send(self._topics.left(user), Leave(session=session))

    def note_use(self, signer: Certificate | None) -> None:
        """Note that a party has shown its certificate; repeat an order to replace its keys."""
        if signer is None:
            return
        parties = self.membership.parties
        try:
            if parties.note_use(signer):
                self._journal.emit("note", text=f"{signer.role} {signer.name}: has new keys")
        except EdgeFedError as error:
            log.warning("the use of %s's certificate was not noted: %s", signer.user, error)
        if parties.rotation_due(signer):
            self._order_rotation(signer.user, RenewalOrder(key=signer.key_id))

    def tick(self) -> None:
        """Renew the certificates of this machine when it is time.

        Raises:
            StorageError: the broker's files still cannot be written.
        """
        self._clear_again()
        if own := self._own_user():
            self._stale |= own in self.membership.own.renew()
        if self._stale:
            self._connect_again()
        self.membership.repeat_access()

    def _use_new_keys(self, user: str) -> None:
        """Note that keys were replaced, and use them if they are the coordinator's."""
        self._journal.emit("note", text=f"{user}: has new keys")
        if user == self._own_user():
            self._stale = True
            self._connect_again()

    def _own_user(self) -> str:
        own = self._link.address.credentials
        return "" if own is None else own.certificate.user

    def _connect_again(self) -> None:
        """Connect with the coordinator's next credentials; repeated until it works."""
        own = self._link.address.credentials
        assert own is not None
        self._link.renew(load_credentials(own.folder, self._clock.now()))
        self._stale = False

    def _order_rotation(self, device: str, order: RenewalOrder) -> None:
        self._link.send(self._topics.renewal_order(device), order)


_WORDS = {
    "removed": "removed from the fleet, its certificate is revoked",
    "left": "has left the fleet, its certificate is revoked",
}
