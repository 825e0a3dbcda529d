"""Replace keys in a running fleet: on this machine at once, on devices by an order to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

from edgefed.coordinator.members.enrolled_parties import EnrolledParties
from edgefed.coordinator.members.own_parties import OwnParties
from edgefed.errors import NotAllowedError, UnknownNameError
from edgefed.trust.certificates import REMOTE
from edgefed.trust.tokens import fingerprint
from edgefed.wire.enrolment_messages import RenewalOrder

Outcome = Literal["replaced", "asked", "elsewhere"]


class Rotated(TypedDict):
    """The outcome for one party's keys.

    Keys:
        user: the party.
        outcome: ``replaced``; ``asked`` for a device, which replaces its keys itself once it is
            connected; ``elsewhere`` for an operator on another machine.
        fingerprint: of the new key; empty if it does not exist yet.
    """

    user: str
    outcome: Outcome
    fingerprint: str


class KeyRotation:
    """Replaces keys; owned by the dispatcher's thread.

    Args:
        parties: all enrolled parties.
        own: those on this machine.
        send: sends an order to a device.
        use: takes the users on this machine whose keys were replaced.
    """

    def __init__(
        self,
        parties: EnrolledParties,
        own: OwnParties,
        send: Callable[[str, RenewalOrder], object],
        use: Callable[[str], object],
    ) -> None:
        self._parties = parties
        self._own = own
        self._send = send
        self._use = use

    def rotate(self, users: Sequence[str]) -> list[Rotated]:
        """Replace the keys of some parties, or of all of them.

        Args:
            users: the parties, by the names in their certificates; empty for all.

        Raises:
            UnknownNameError: ``enrol.unknown``: one of them is not enrolled; nothing was done.
            NotAllowedError: ``enrol.elsewhere``: one of them is an operator on another machine;
                nothing was done.
            StorageError: new keys cannot be saved; the keys named before are replaced.
        """
        own = self._own.users()
        everybody = [party for party in self._parties.all() if party.state == "enrolled"]
        roles = {party.user: party.role for party in everybody}
        for user in users:
            _check(user, roles.get(user), own)
        return [self._rotate(user, roles[user], own) for user in users or sorted(roles)]

    def _rotate(self, user: str, role: str, own: list[str]) -> Rotated:
        if user in own:
            made = self._own.rotate(user)
            self._use(user)
            return Rotated(
                user=user, outcome="replaced", fingerprint=fingerprint(made.public_bytes)
            )
        if role in REMOTE:
            self._send(user, RenewalOrder(key=self._parties.order_rotation(user)))
            return Rotated(user=user, outcome="asked", fingerprint="")
        return Rotated(user=user, outcome="elsewhere", fingerprint="")


def _check(user: str, role: str | None, own: list[str]) -> None:
    """Refuse whose keys cannot be replaced."""
    if role is None:
        raise UnknownNameError(
            f"No party named {user} is enrolled.",
            code="enrol.unknown",
            hint="edgefed device enrolled, edgefed gateway list, edgefed operator list; the others"
            " are coordinator and broker",
        )
    if role not in REMOTE and user not in own:
        raise NotAllowedError(
            f"The keys of {user} are on another machine.",
            code="enrol.elsewhere",
            hint="end the membership with edgefed operator remove, and invite again with edgefed"
            " operator invite",
        )
