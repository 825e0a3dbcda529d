"""The use of a day outlasts the agent, and a clock that is not set begins no day."""

from __future__ import annotations

import logging
import math
from datetime import datetime, timezone
from pathlib import Path

import pytest

from device_agent.limits.decision import Readings
from device_agent.limits.training_policy import FILE, LOOK_EVERY, WRITE_EVERY, TrainingPolicy
from edgefed.config.fleet.when_settings import WhenSettings

UTC = timezone.utc


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.wall = datetime(2026, 11, 25, 12, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return self.wall

    def look(self, policy: TrainingPolicy, moved: int = 0) -> bool:
        """Have a policy look, when it is time."""
        self.seconds += LOOK_EVERY
        return policy.due(self.seconds, moved)


@pytest.fixture
def clock() -> Time:
    return Time()


def made(when: WhenSettings, folder: Path, clock: Time, readings: Readings) -> TrainingPolicy:
    return TrainingPolicy(when, folder, lambda: readings, clock, UTC)


def test_without_limits_nothing_is_looked_at(tmp_path: Path, clock: Time) -> None:
    policy = made(WhenSettings(nice=19), tmp_path, clock, Readings())
    assert policy.next_due == math.inf
    assert not policy.due(1e9, 1)
    assert not policy.trained("r-1", 1)
    policy.save()
    assert not (tmp_path / FILE).exists()


def test_rounds_of_a_day_are_counted_once_and_kept(tmp_path: Path, clock: Time) -> None:
    when = WhenSettings(rounds_a_day=2)
    policy = made(when, tmp_path, clock, Readings())
    assert not clock.look(policy)
    assert not policy.trained("r-1", 1)
    assert not policy.trained("r-1", 1)  # repeated after a failure
    # No word of an end: the agent was killed.
    policy = made(when, tmp_path, clock, Readings())
    assert not clock.look(policy)
    assert not policy.trained("r-1", 1)
    assert policy.trained("r-1", 2)
    assert policy.pause is not None and policy.pause.limits == {"rounds_a_day"}
    policy = made(when, tmp_path, clock, Readings())
    assert clock.look(policy) and policy.pause is not None
    clock.wall = datetime(1970, 1, 1, tzinfo=UTC)  # a restart without a battery clock
    policy = made(when, tmp_path, clock, Readings())
    clock.look(policy)
    clock.wall = datetime(2026, 11, 25, 23, 59, tzinfo=UTC)
    assert clock.look(policy) and policy.pause is not None
    clock.wall = datetime(2026, 11, 26, tzinfo=UTC)
    assert clock.look(policy) and policy.pause is None


def test_bytes_of_a_day_add_up_over_processes(tmp_path: Path, clock: Time) -> None:
    when = WhenSettings(bytes_a_day=1000)
    policy = made(when, tmp_path, clock, Readings())
    clock.look(policy, 400)
    clock.look(policy, 600)
    policy.save()  # at the end
    policy = made(when, tmp_path, clock, Readings())
    assert not clock.look(policy, 399)
    assert clock.look(policy, 400)
    clock.seconds += WRITE_EVERY
    clock.look(policy, 400)
    assert clock.look(made(when, tmp_path, clock, Readings()))


def test_a_damaged_file_costs_the_use_of_the_day(
    tmp_path: Path, clock: Time, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text('{"day": "yesterday"')
    assert not clock.look(made(WhenSettings(rounds_a_day=1), tmp_path, clock, Readings()))
    assert "begins anew" in caplog.text


def test_a_reading_that_moves_is_no_news_and_a_lacking_one_is_told_once(
    tmp_path: Path, clock: Time, caplog: pytest.LogCaptureFixture
) -> None:
    readings = [Readings(temperature=71.0)]
    when = WhenSettings(highest_temperature=70, least_battery=20)
    policy = TrainingPolicy(when, tmp_path, lambda: readings[0], clock, UTC)
    with caplog.at_level(logging.WARNING):
        assert clock.look(policy)
        readings[0] = Readings(temperature=72.0)
        assert not clock.look(policy)
    assert policy.pause is not None and policy.pause.reason.startswith("71 °C")
    told = [record.message for record in caplog.records]
    assert told == ["when.least_battery does not apply: this device has no sensor for it"]
    assert not policy.due(clock.seconds + 0.1, 0)
    readings[0] = Readings(temperature=60.0)
    assert clock.look(policy) and policy.pause is None
