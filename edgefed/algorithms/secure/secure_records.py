"""The coordinator's state of secure aggregation between exchanges, in a run's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Relay
from edgefed.algorithms.secure.secure_keys import CohortKeys
from edgefed.algorithms.secure.secure_phases import FORM, SECURE
from edgefed.learn.base.types import Tensors

KEYS_GROUP, COMMITMENTS_GROUP, SUM_GROUP, LISTS_GROUP = (
    "secure-keys",
    "secure-commitments",
    "secure-sum",
    "secure-lists",
)
"""Groups of the state: the cohort's keys, the commitments to each device's shares, the masked sum,
and signatures of the list of updates in it."""

GROUPS = (KEYS_GROUP, COMMITMENTS_GROUP, SUM_GROUP, LISTS_GROUP)

Next = Literal["shares", "fit", "lists", "unmask"]


@dataclass(frozen=True)
class Session:
    """One attempt at a round, with keys of its own.

    Attributes:
        number: counts the sessions of a run.
        round: that it belongs to.
        limits: the largest weight of each device that was drawn for the round.
        threshold: how many devices uncover a secret.
        quorum: how many must take part to the end.
        next: the next exchange.
        signed: whether devices signed their keys.
        keyed, shared, masked, listed: devices that advertised keys, shared their secrets, sent a
            masked update, and signed the list; each sorted, and part of the one before.
        task_digest: of the task that they masked their updates for, in hexadecimal.
        form: version of the exchanges; 0 in records without it.
    """

    number: int
    round: int
    limits: Mapping[str, int]
    threshold: int
    quorum: int
    next: Next
    signed: bool
    keyed: tuple[str, ...]
    shared: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    task_digest: str = ""
    form: int = 0

    @property
    def awaited(self) -> tuple[str, ...]:
        """The devices that may take part in the next exchange."""
        return {
            "shares": self.keyed,
            "fit": self.shared,
            "lists": self.masked,
            "unmask": self.masked,
        }[self.next]

    @property
    def lost(self) -> tuple[str, ...]:
        """Devices that shared their secrets, and whose update did not arrive."""
        return tuple(sorted(set(self.shared) - set(self.masked)))

    @property
    def total(self) -> int:
        """The most that the weights of all updates together come to, as in the plain merge."""
        return max(1, sum(self.limits.values()))


@dataclass(frozen=True)
class SecureRecords:
    """The records beside arrays.

    Attributes:
        number: of the last session.
        attempt: how often the current round was restarted.
        without: devices that made an attempt at the current round fail, and are not asked again.
        relays: encrypted shares that the coordinator may still hold.
        session: the open one; None between rounds.
        loss: mean loss of the last round's training; None without.
        summary: of the last round, in words.
    """

    number: int = 0
    attempt: int = 0
    without: tuple[str, ...] = ()
    relays: tuple[Relay, ...] = ()
    session: Session | None = None
    loss: float | None = None
    summary: str = ""

    @classmethod
    def of(cls, state: State) -> SecureRecords:
        """Return the records in a state, without a session in another form than today's."""
        known: dict[str, Any] | None = state.params.get(SECURE)
        if known is None:
            return cls()
        session = known["session"]
        if session and session.get("form") != FORM:
            session = None
        return cls(
            **{
                **known,
                "without": tuple(known["without"]),
                "relays": tuple(Relay.from_json(row) for row in known["relays"]),
                "session": session and Session(**{k: _tuple(v) for k, v in session.items()}),
            }
        )

    def kept_in(self, state: State, groups: Mapping[str, Tensors] | None = None) -> State:
        """Return the state with these records, and with these groups beside its other ones."""
        known = asdict(self)
        known["relays"] = [relay.to_json() for relay in self.relays]
        return replace(
            state,
            groups={**state.groups, **(groups or {})},
            params={**state.params, SECURE: known},
        )

    def begun_anew(self, without: tuple[str, ...], attempt: int) -> SecureRecords:
        """Return the records before another attempt at the same round."""
        merged = tuple(sorted({*self.without, *without}))
        return replace(self, session=None, attempt=attempt, without=merged)


def without_groups(state: State) -> State:
    """Return a state without the arrays of a session."""
    kept = {name: group for name, group in state.groups.items() if name not in GROUPS}
    return replace(state, groups=kept)


def keys_of(state: State, session: Session) -> CohortKeys:
    """Return the keys of the devices of a session."""
    group = state.groups[KEYS_GROUP]
    return CohortKeys.from_group(session.number, session.threshold, session.keyed, group)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
