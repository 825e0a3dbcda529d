"""A fleet's authority with a clock of the test's own, and parties that ask it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from edgefed.coordinator.members.membership import Membership, MembershipSettings
from edgefed.coordinator.members.new_fleet import create_fleet
from edgefed.trust.authority import Authority
from edgefed.trust.certificates import Role
from edgefed.trust.issuing import KeyPair, make_request, new_keys
from edgefed.trust.tokens import Token
from edgefed.wire.enrolment_messages import EnrolmentResponse, RenewalRequest, signed_request

FLEET = "plant-a"
HOSTS = ("hub.example", "localhost", "127.0.0.1")
START = datetime(2026, 5, 4, 12, tzinfo=timezone.utc)
LIFE = timedelta(days=90)


class SetClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return self.passed

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed)


@dataclass
class Access:
    """What the broker was last told."""

    users: list[str] = field(default_factory=list)
    revoked: bytes = b""
    times: int = 0

    def write(self, users: Iterable[str], revoked: bytes) -> None:
        self.users, self.revoked, self.times = list(users), revoked, self.times + 1


class Hub:
    """The coordinator's machine, as far as its authority goes."""

    def __init__(self, state: Path, life: timedelta = LIFE) -> None:
        self.trust = state / "trust" / FLEET
        self.clock = SetClock()
        self.access = Access()
        self.life = life
        self.authority = self.create()
        self.membership = self.open()

    def create(self) -> Authority:
        return create_fleet(
            self.trust,
            FLEET,
            "mqtts://hub.example:8883",
            HOSTS,
            "admin",
            self.clock,
            self.life,
            lambda folder, users, revoked: self.access.write(users, revoked),
        )

    def open(self) -> Membership:
        settings = MembershipSettings(self.trust, self.life, self.access.write)
        return Membership(settings, self.clock)

    def restart(self) -> None:
        self.membership.close()
        self.membership = self.open()

    def invite(self, name: str = "", seconds: float = 900) -> Token:
        return self.membership.invite("device", name, seconds)[0]

    def ask(
        self, token: Token, keys: KeyPair, name: str = "", roles: tuple[Role, ...] = ("device",)
    ) -> EnrolmentResponse:
        made = make_request(keys, name or "device")
        request = signed_request(name, made, token.proof_key, roles)
        answer = self.membership.answer(token.id, request)
        assert answer is not None
        return answer

    def enrol(self, name: str) -> tuple[KeyPair, EnrolmentResponse]:
        keys = new_keys()
        return keys, self.ask(self.invite(name), keys)


def renewal(keys: KeyPair) -> RenewalRequest:
    return RenewalRequest(request=make_request(keys, "d"))
