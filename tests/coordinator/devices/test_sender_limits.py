"""What the coordinator reads of a flood: little, whoever sends it, and all of what devices send."""

from __future__ import annotations

import pytest

from edgefed.coordinator.devices.sender_limits import (
    ALL_VIEWERS,
    COORDINATOR,
    COORDINATOR_STATES,
    DEVICE,
    ENROLLING,
    ENROLMENTS,
    FIRST_REQUESTS,
    MAX_EXPECTED,
    NEW,
    NEW_DEVICES,
    NEW_USERS,
    NEWCOMER,
    NOT_ENROLLED,
    UNKNOWN,
    UNKNOWN_DEVICES,
    USER,
    VIEWER_TIME,
    VIEWERS,
    SenderLimits,
    either,
)
from edgefed.transport.inbox import Incoming
from edgefed.wire.topics import CLIENT_SLOTS, Topics
from tests.coordinator.light_devices import HandClock

TOPICS = Topics("limits")
MANY = 5000
"""More than any limit lets through at once."""


class Scene:
    """Limits with one device that has joined."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.joined = {"one"}
        self.enrolled: set[str] | None = None
        self.limits = SenderLimits(
            TOPICS,
            self.clock,
            self.joined.__contains__,
            lambda device: self.enrolled is None or device in self.enrolled,
        )

    def admits(self, topic: str, payload: bytes = b"x") -> bool:
        return self.limits.admit(Incoming(topic, payload, retained=False))

    def flood(self, topics: list[str]) -> int:
        """Return how many were read."""
        return sum(self.admits(topic) for topic in topics)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("leaf", ["need", "reply", "c", "nonsense"])
def test_unknown_devices_are_not_served(scene: Scene, leaf: str) -> None:
    assert scene.flood([f"{TOPICS.root}/up/n-{n}/{leaf}" for n in range(MANY)]) == 0
    assert scene.limits.refused() == {UNKNOWN: MANY}
    assert scene.admits(TOPICS.up_need("one"))


def test_births_of_new_names_share_one_limit(scene: Scene) -> None:
    read = scene.flood([TOPICS.birth(f"n-{n}") for n in range(MANY)])
    assert read == NEW_DEVICES.burst
    assert scene.limits.refused() == {NEW: MANY - read}
    assert scene.admits(TOPICS.birth("one")), "one that takes part is heard all the same"
    scene.clock.seconds += 1
    assert scene.flood([TOPICS.birth(f"m-{n}") for n in range(MANY)]) == NEW_DEVICES.per_second


def test_a_birth_that_was_asked_for_is_heard_once(scene: Scene) -> None:
    scene.flood([TOPICS.birth(f"n-{n}") for n in range(MANY)])
    scene.limits.expect("late")
    assert scene.admits(TOPICS.birth("late"))
    for _ in range(int(NEWCOMER.burst)):
        scene.admits(TOPICS.progress("late"))
    assert not scene.admits(TOPICS.birth("late"))


def test_births_that_were_asked_for_are_few(scene: Scene) -> None:
    scene.flood([TOPICS.birth(f"n-{n}") for n in range(MANY)])
    names = [f"late-{n}" for n in range(MAX_EXPECTED + 100)]
    for name in names:
        scene.limits.expect(name)
    assert [scene.admits(TOPICS.birth(name)) for name in names].count(True) == MAX_EXPECTED


def test_a_new_name_speaks_a_little_after_its_birth(scene: Scene) -> None:
    assert scene.admits(TOPICS.birth("new"))
    heard = scene.flood([TOPICS.progress("new") for _ in range(MANY)])
    assert heard == NEWCOMER.burst - 1


def test_states_of_unknown_names_share_one_limit(scene: Scene) -> None:
    topics = [TOPICS.progress(f"n-{n}") for n in range(MANY)]
    topics += [TOPICS.telemetry(f"n-{n}") for n in range(MANY)]
    assert scene.flood(topics) == UNKNOWN_DEVICES.burst


def test_a_device_that_floods_delays_no_other(scene: Scene) -> None:
    scene.joined.add("two")
    read = scene.flood([TOPICS.reply("one") for _ in range(MANY)])
    assert read == DEVICE.burst
    assert scene.limits.refused() == {"device one": MANY - read}
    assert scene.flood([TOPICS.reply("two") for _ in range(100)]) == 100
    assert scene.admits(TOPICS.up_chunk("one")), "chunks have a limit of their own"
    scene.clock.seconds += 1
    assert scene.flood([TOPICS.reply("one") for _ in range(MANY)]) == DEVICE.per_second


def test_a_device_with_rounds_of_80_ms_is_read_for_minutes(scene: Scene) -> None:
    for _ in range(1200):
        assert scene.flood([TOPICS.progress("one")] * 20) == 20
        scene.clock.seconds += 0.1


def test_large_messages_count_as_several(scene: Scene) -> None:
    large = bytes(200_000)
    read = sum(scene.admits(TOPICS.reply("one"), large) for _ in range(MANY))
    assert read == DEVICE.burst // 49


def requests_of(user: str) -> list[str]:
    """Topics of many requests of a user, from all the clients that it may have."""
    return [TOPICS.request(f"{user}/{n % CLIENT_SLOTS}") for n in range(MANY)]


def test_a_user_has_one_limit_for_all_its_clients(scene: Scene) -> None:
    assert scene.flood(requests_of("operator.bob")) == USER.burst
    assert scene.limits.refused() == {"user operator.bob": MANY - USER.burst}
    assert scene.admits(TOPICS.request("operator.ann/0"))
    scene.clock.seconds += 1
    assert scene.flood(requests_of("operator.bob")) == USER.per_second


def test_new_users_share_a_limit(scene: Scene) -> None:
    assert scene.admits(TOPICS.request("operator.known/0"))
    read = scene.flood([TOPICS.request(f"u-{n}/0") for n in range(MANY)])
    assert read == FIRST_REQUESTS.burst - 1
    assert scene.limits.refused() == {NEW_USERS: MANY - read}
    assert scene.admits(TOPICS.request("operator.known/0"))


def test_all_viewers_share_what_operators_leave(scene: Scene) -> None:
    users = [f"viewer.v-{n}" for n in range(5)]
    assert scene.flood([TOPICS.request(f"{user}/0") for user in users]) == 5
    read = sum(scene.flood(requests_of(user)) for user in users)
    assert read == ALL_VIEWERS.burst - 5
    assert scene.limits.refused()[VIEWERS] > 0
    scene.clock.seconds += 1
    assert scene.flood([TOPICS.request("operator.ann/3")] * 50) == 50
    assert sum(scene.flood(requests_of(user)) for user in users) == ALL_VIEWERS.per_second


def test_a_viewer_pays_for_the_time_of_its_answers_and_an_operator_does_not(scene: Scene) -> None:
    viewer, other = TOPICS.request("viewer.bob/0"), TOPICS.request("viewer.eve/0")
    scene.limits.answered("viewer.bob", VIEWER_TIME.burst + 0.5)
    scene.limits.answered("operator.ann", 100.0)
    assert not scene.admits(viewer)
    assert scene.admits(other)
    assert scene.admits(TOPICS.request("operator.ann/0"))
    scene.clock.seconds += 0.6 / VIEWER_TIME.per_second
    assert scene.admits(viewer), "it is heard again without any order"
    for n in range(3):
        scene.limits.answered(f"viewer.v-{n}", 1.5)
    assert not scene.admits(other), "all viewers together have used their share"
    assert scene.admits(TOPICS.request("operator.ann/0"))


def test_strangers_who_flood_enrolment_delay_no_command(scene: Scene) -> None:
    read = scene.flood([TOPICS.enrolment_request(f"t-{n}") for n in range(MANY)])
    assert read == ENROLMENTS.burst
    assert scene.limits.refused() == {ENROLLING: MANY - read}
    assert scene.admits(TOPICS.request("operator.ann/9"))


def test_the_coordinators_own_topic_is_limited(scene: Scene) -> None:
    assert scene.flood([TOPICS.coordinator()] * MANY) == COORDINATOR_STATES.burst
    assert set(scene.limits.refused()) == {COORDINATOR}


def test_who_is_not_enrolled_is_never_heard(scene: Scene) -> None:
    scene.enrolled = {"one"}
    for topic in (TOPICS.birth("two"), TOPICS.progress("two"), TOPICS.reply("two")):
        assert not scene.admits(topic)
    assert scene.limits.refused() == {NOT_ENROLLED: 3}
    assert scene.admits(TOPICS.birth("one"))
    scene.enrolled = set()
    assert not scene.admits(TOPICS.reply("one")), "it was removed from the fleet"


def test_a_name_that_is_none_is_refused(scene: Scene) -> None:
    assert not scene.admits(f"{TOPICS.root}/up/{'x' * 5000}/birth")
    assert scene.limits.refused() == {UNKNOWN: 1}


def test_either_of_two() -> None:
    both = either(lambda device: device == "a", lambda device: device == "b")
    assert [both(device) for device in "abc"] == [True, True, False]
