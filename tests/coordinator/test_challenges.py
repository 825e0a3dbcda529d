from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgefed.clock import SystemClock
from edgefed.control import coordinator_client
from edgefed.coordinator.challenges import MAX_OUTSTANDING, Challenges
from edgefed.errors import NotAllowedError
from edgefed.wire.limits import ANSWER_SECONDS, CHALLENGE_SECONDS


class Shifted(SystemClock):
    """The system's clock, set by hand."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def tokens() -> Iterator[str]:
    yield from (f"{number:016x}" for number in range(10**6))


@pytest.fixture
def clock() -> Shifted:
    return Shifted()


@pytest.fixture
def challenges(clock: Shifted) -> Challenges:
    made = tokens()
    return Challenges(clock, lambda: next(made))


def reject_reason(challenges: Challenges, token: str) -> NotAllowedError:
    with pytest.raises(NotAllowedError) as caught:
        challenges.redeem(token)
    assert caught.value.hint
    return caught.value


def test_a_challenge_admits_one_order(challenges: Challenges) -> None:
    first, second = challenges.issue(), challenges.issue()
    challenges.redeem(second)
    challenges.redeem(first)
    assert reject_reason(challenges, first).code == "challenge.expired"


def test_a_challenge_expires(challenges: Challenges, clock: Shifted) -> None:
    early, late = challenges.issue(), challenges.issue()
    clock.seconds = CHALLENGE_SECONDS
    challenges.redeem(early)
    clock.seconds = CHALLENGE_SECONDS + 0.001
    assert reject_reason(challenges, late).code == "challenge.expired"


def test_an_unknown_and_a_missing_challenge_are_refused(challenges: Challenges) -> None:
    assert reject_reason(challenges, "f" * 16).code == "challenge.expired"
    assert reject_reason(challenges, "").code == "challenge.missing"


def test_only_the_newest_challenges_are_remembered(challenges: Challenges) -> None:
    oldest, *rest = (challenges.issue() for _ in range(MAX_OUTSTANDING + 1))
    assert reject_reason(challenges, oldest).code == "challenge.expired"
    for token in rest:
        challenges.redeem(token)


def test_an_order_expires_before_its_client_gives_up() -> None:
    assert CHALLENGE_SECONDS < ANSWER_SECONDS == coordinator_client.ANSWER_TIMEOUT
