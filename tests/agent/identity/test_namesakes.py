from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from device_agent.identity.duplicate_name_guard import (
    FILE,
    MAX_LIVES,
    NEWCOMER,
    DuplicateNameGuard,
    EarlierLives,
)
from edgefed.wire.messages import Birth

LOW, HIGH = "0" * 8, "f" * 8


def birth(session: str) -> Birth:
    return Birth(session=session, status="online")


def meet(low_is_new: bool, high_is_new: bool) -> tuple[list[str], int]:
    """Let two agents hear each other until nobody says anything; return who yielded."""
    agents = {LOW: DuplicateNameGuard(LOW), HIGH: DuplicateNameGuard(HIGH)}
    now = {LOW: 1.0 if low_is_new else 99.0, HIGH: 1.0 if high_is_new else 99.0}
    for agent in agents.values():
        agent.connected(0.0)
    said, yielded, messages = [LOW, HIGH], [], 0
    while said and messages < 100:
        speaker = said.pop(0)
        hearer = HIGH if speaker == LOW else LOW
        messages += 1
        if hearer in yielded:
            continue
        reaction = agents[hearer].meet(birth(speaker), now[hearer], live=True)
        if reaction == "answer":
            said.append(hearer)
        if reaction == "yield":
            yielded.append(hearer)
    return yielded, messages


@pytest.mark.parametrize(
    ("low_is_new", "high_is_new", "who"),
    [(True, False, LOW), (False, True, HIGH), (True, True, HIGH), (False, False, HIGH)],
)
def test_exactly_one_yields_and_it_is_the_newcomer(
    low_is_new: bool, high_is_new: bool, who: str
) -> None:
    yielded, messages = meet(low_is_new, high_is_new)
    assert yielded == [who]
    assert messages <= 10


def test_our_own_birth_and_retained_ones_of_lives_before_ours_mean_nothing() -> None:
    agent = DuplicateNameGuard(LOW)
    agent.connected(0.0)
    assert agent.meet(birth(HIGH), 1.0, live=False) == "ignore"
    assert agent.meet(birth(LOW), 1.0, live=True) == "ignore"


def test_the_will_of_an_earlier_life_is_answered() -> None:
    agent = DuplicateNameGuard(LOW)
    agent.connected(0.0)
    will = Birth(session=HIGH, status="lost")
    assert [agent.meet(will, 1.0, live=True) for _ in range(9)] == ["answer"] * 9


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("status", ["online", "lost"])
def test_births_of_our_own_earlier_lives_never_make_us_yield(
    status: Literal["online", "lost"], live: bool
) -> None:
    agent = DuplicateNameGuard(HIGH, {LOW})
    agent.connected(0.0)
    assert agent.meet(birth(HIGH), 0.5, live=True) == "ignore"
    again = Birth(session=LOW, status=status)
    assert [agent.meet(again, 1.0, live=live) for _ in range(9)] == ["restore"] * 9


def test_earlier_lives_are_remembered_and_bounded(tmp_path: Path) -> None:
    for number in range(3):
        lives = EarlierLives(tmp_path)
        lives.begin(f"{number:08x}")
        assert f"{number:08x}" not in lives  # the present life is no earlier one
    lives = EarlierLives(tmp_path)
    assert all(f"{number:08x}" in lives for number in range(3))
    (tmp_path / FILE).write_text("".join(f"{number:08x}\n" for number in range(MAX_LIVES)))
    EarlierLives(tmp_path).begin("f" * 8)
    lives = EarlierLives(tmp_path)
    assert "f" * 8 in lives
    assert (f"{0:08x}" in lives, f"{1:08x}" in lives) == (False, True)
    (tmp_path / FILE).write_bytes(b"\xff\x00rubbish")
    assert "f" * 8 not in EarlierLives(tmp_path)


def test_a_reconnection_makes_nobody_a_newcomer() -> None:
    agent = DuplicateNameGuard(HIGH)
    agent.connected(0.0)
    agent.connected(100.0)
    assert agent.meet(birth(LOW), 100.0 + NEWCOMER / 2, live=True) == "answer"


def take_turns(low_since: float, high_since: float, status: Literal["online", "lost"]) -> list[str]:
    """Let a broker with one connection a name end each agent's as the other connects."""
    agents = {LOW: DuplicateNameGuard(LOW), HIGH: DuplicateNameGuard(HIGH)}
    for session, since in ((LOW, low_since), (HIGH, high_since)):
        agents[session].connected(since)
        assert agents[session].meet(birth(session), since, live=True) == "ignore"
    now, yielded = 100.0, []
    for turn in range(20):
        mine, theirs = (LOW, HIGH) if turn % 2 else (HIGH, LOW)
        if mine in yielded:
            continue
        now += 1.0
        agents[mine].connected(now)
        # Who has gone left its will, which is replaced by our birth then.
        left = theirs in yielded
        found = Birth(session=theirs, status="lost" if left else status)
        if agents[mine].meet(found, now, live=False) == "yield":
            yielded.append(mine)
        elif left:
            return yielded
    return yielded


@pytest.mark.parametrize(
    ("low_since", "high_since", "who"),
    [(98.0, 0.0, LOW), (0.0, 98.0, HIGH), (98.0, 98.0, HIGH), (0.0, 0.0, HIGH)],
)
@pytest.mark.parametrize("status", ["online", "lost"])
def test_of_two_that_cannot_be_connected_at_once_one_yields(
    status: Literal["online", "lost"], low_since: float, high_since: float, who: str
) -> None:
    assert take_turns(low_since, high_since, status) == [who]


def test_births_that_a_restarted_broker_had_kept_are_not_another_agent() -> None:
    agent = DuplicateNameGuard(HIGH)
    for moment in (0.0, 100.0, 200.0, 300.0, 400.0):
        agent.connected(moment)
        assert agent.meet(birth(LOW), moment, live=False) in ("ignore", "answer")
        assert agent.meet(birth(HIGH), moment, live=True) == "ignore"
