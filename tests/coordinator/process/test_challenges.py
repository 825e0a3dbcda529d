from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgefed.control import coordinator_client
from edgefed.coordinator.process.challenges import MAX_OUTSTANDING, MAX_TOTAL, MAX_USERS, Challenges
from edgefed.errors import NotAllowedError
from edgefed.process.clock import SystemClock
from edgefed.wire.limits import ANSWER_SECONDS, CHALLENGE_SECONDS

ANN, BOB = "operator.ann", "operator.bob"


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


def reject_reason(challenges: Challenges, token: str, user: str = ANN) -> NotAllowedError:
    with pytest.raises(NotAllowedError) as caught:
        challenges.redeem(token, user)
    assert caught.value.hint
    return caught.value


def test_a_challenge_admits_one_order(challenges: Challenges) -> None:
    first, second = challenges.issue(ANN), challenges.issue(ANN)
    challenges.redeem(second, ANN)
    challenges.redeem(first, ANN)
    assert reject_reason(challenges, first).code == "challenge.expired"


def test_a_challenge_expires(challenges: Challenges, clock: Shifted) -> None:
    early, late = challenges.issue(ANN), challenges.issue(ANN)
    clock.seconds = CHALLENGE_SECONDS
    challenges.redeem(early, ANN)
    clock.seconds = CHALLENGE_SECONDS + 0.001
    assert reject_reason(challenges, late).code == "challenge.expired"


def test_an_unknown_and_a_missing_challenge_are_refused(challenges: Challenges) -> None:
    assert reject_reason(challenges, "f" * 16).code == "challenge.expired"
    assert reject_reason(challenges, "").code == "challenge.missing"


def test_only_the_newest_challenges_are_remembered(challenges: Challenges) -> None:
    oldest, *rest = (challenges.issue(ANN) for _ in range(MAX_OUTSTANDING + 1))
    assert reject_reason(challenges, oldest).code == "challenge.expired"
    for token in rest:
        challenges.redeem(token, ANN)


def test_a_challenge_is_its_users_alone(challenges: Challenges) -> None:
    token = challenges.issue(ANN)
    assert reject_reason(challenges, token, BOB).code == "challenge.expired"
    challenges.redeem(token, ANN)


def test_a_user_who_asks_for_many_takes_no_other_users(challenges: Challenges) -> None:
    token = challenges.issue(ANN)
    for _ in range(100 * MAX_OUTSTANDING):
        challenges.issue("viewer.bob")
    challenges.redeem(token, ANN)


def test_users_whose_challenges_are_remembered_are_bounded(challenges: Challenges) -> None:
    token = challenges.issue(ANN)
    for number in range(MAX_USERS):
        challenges.issue(f"user-{number}")
    assert reject_reason(challenges, token).code == "challenge.expired"
    assert len(challenges._issued) == MAX_USERS


def test_all_challenges_together_are_bounded(challenges: Challenges) -> None:
    """Who holds few keeps them, however many others fill the memory."""
    few = [challenges.issue(ANN) for _ in range(MAX_TOTAL // MAX_USERS)]
    for number in range(MAX_USERS - 1):
        for _ in range(MAX_OUTSTANDING):
            challenges.issue(f"user-{number}")
    assert sum(map(len, challenges._issued.values())) == MAX_TOTAL
    for token in few:
        challenges.redeem(token, ANN)


def test_an_order_expires_before_its_client_gives_up() -> None:
    assert CHALLENGE_SECONDS < ANSWER_SECONDS == coordinator_client.ANSWER_TIMEOUT
