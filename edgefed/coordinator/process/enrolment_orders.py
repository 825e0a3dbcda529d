"""Requests of operators about the fleet's members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from edgefed.coordinator.members.enrolment_store import SiteLimits
from edgefed.coordinator.members.key_rotation import Rotated
from edgefed.coordinator.members.membership import Membership
from edgefed.coordinator.members.membership_messages import MembershipMessages
from edgefed.coordinator.process.request_actions import Arguments, Nothing, RequestAction
from edgefed.errors import NotAllowedError
from edgefed.process.clock import timestamp
from edgefed.trust.certificates import REMOTE
from edgefed.trust.tokens import fingerprint

MAX_SECONDS = 30 * 86400.0
"""Longest life of a token."""

MAX_USERS = 10_000
"""Most parties whose keys one order replaces."""


_ANOTHER = "choose another name; to move the device, {}, then here: edgefed device forget"


class _Invite(Arguments):
    role: Literal["device", "gateway", "operator", "viewer"] = "device"
    name: str = ""
    seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)]
    devices: Annotated[int, Field(ge=1, le=2**53)] = 2**53
    samples: Annotated[int, Field(ge=1, le=2**53)] = 2**53


class _Name(Arguments):
    name: str


class _User(Arguments):
    user: str
    role: str = ""
    """Of the party that is meant; empty for any."""


class _Users(Arguments):
    users: Annotated[list[str], Field(default_factory=list, max_length=MAX_USERS)]


def enrolment_actions(
    members: MembershipMessages | None, site_of: Callable[[str], str] = lambda device: ""
) -> Mapping[str, RequestAction]:
    """Return the actions about membership, by name.

    Args:
        members: of the fleet; None without an authority.
        site_of: returns the gateway that speaks for a device; empty for one without.
    """
    orders = _Orders(members, site_of)
    return {
        "member.list": RequestAction(Nothing, orders.list_all),
        "member.invite": RequestAction(_Invite, orders.invite, order=True),
        "member.approve": RequestAction(_Name, orders.approve, order=True),
        "member.reject": RequestAction(_Name, orders.reject, order=True),
        "member.remove": RequestAction(_User, orders.remove, order=True),
        "member.rotate": RequestAction(_Users, orders.rotate, order=True),
    }


class _Orders:
    def __init__(self, members: MembershipMessages | None, site_of: Callable[[str], str]) -> None:
        self._members = members
        self._site_of = site_of

    def list_all(self, arguments: Nothing) -> list[dict[str, object]]:
        del arguments
        return self._membership().listing()

    def invite(self, arguments: _Invite) -> dict[str, Any]:
        if arguments.role != "device" and not arguments.name:
            raise NotAllowedError(f"The {arguments.role} needs a name.", code="trust.name")
        if arguments.role in REMOTE:
            self._refuse_at_site(arguments.name, _ANOTHER)
        membership = self._membership()
        limits = SiteLimits("", arguments.devices, arguments.samples)
        token, expires = membership.invite(
            arguments.role, arguments.name, arguments.seconds, limits
        )
        return {
            "token": token.text(),
            "role": arguments.role,
            "name": token.name,
            "fleet": token.fleet,
            "expires": expires,
            "authority": fingerprint(token.authority_key),
        }

    def approve(self, arguments: _Name) -> dict[str, Any]:
        self._refuse_at_site(arguments.name, _ANOTHER)
        made = self._membership().approve(arguments.name)
        return {
            "name": made.name,
            "fingerprint": fingerprint(made.public_bytes),
            "expires": timestamp(made.not_after),
        }

    def reject(self, arguments: _Name) -> dict[str, Any]:
        self._membership().reject(arguments.name)
        return {"name": arguments.name}

    def remove(self, arguments: _User) -> dict[str, Any]:
        members, user = self._known(), arguments.user
        self._refuse_at_site(user, "{}")
        known = members.membership.parties.party(user)
        if known is not None and arguments.role not in ("", known.role):
            group = known.role if known.role in REMOTE else "operator"
            raise NotAllowedError(
                f"{known.name} is a {known.role}, not a {arguments.role}.",
                code="enrol.role",
                hint=f"edgefed {group} remove {known.name}",
            )
        party = members.remove(user, "removed")
        return {"name": party.name, "role": party.role, "ended": party.ended}

    def rotate(self, arguments: _Users) -> list[Rotated]:
        return self._known().rotation.rotate(arguments.users)

    def _refuse_at_site(self, name: str, hint: str) -> None:
        """Refuse an order about a device of a site; ``hint`` gets the command that removes it."""
        gateway = self._site_of(name)
        if gateway:
            remove = f"on the machine of that gateway: edgefed --fleet SITE device remove {name}"
            raise NotAllowedError(
                f"Device {name} is at the site of gateway {gateway}.",
                code="site.device",
                hint=hint.format(remove),
            )

    def _membership(self) -> Membership:
        return self._known().membership

    def _known(self) -> MembershipMessages:
        if self._members is None:
            raise NotAllowedError(
                "This fleet has no certificate authority.",
                code="enrol.no_authority",
                hint="on the coordinator's machine: edgefed init, then restart the coordinator",
            )
        return self._members
