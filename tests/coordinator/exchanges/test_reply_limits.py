"""How large an answer may be, and what of it the algorithm's own check sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.exchange import ReplyRole
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.exchanges.reply_checks import (
    LEAST_ROOM,
    MAX_COUNT,
    MAX_METRIC,
    Rejection,
    check,
    fetch_problem,
)
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.evaluation.confusion import MAX_SAMPLES
from edgefed.learn.base.types import Tensors
from edgefed.wire.messages import BlobRef, Reply
from edgefed.wire.tensors import digest
from tests.coordinator.fleets import exact
from tests.worker.tasks import task

MIB = 1 << 20
NAME = "0" * 64


def exchange(name: str = "count", sent: int = 9, room: int = 0, *roles: str) -> OpenExchange:
    """Return an exchange whose task came with ``sent`` bytes."""
    given = task(blobs={"weights": BlobRef(digest=NAME, size=sent)})
    wanted = {role: ReplyRole(None, 3.0) for role in roles}
    return OpenExchange(
        given.exchange, 0, name, 1, (given,), 1, 1, 60.0, max_reply_bytes=room, reply_roles=wanted
    )


def reply(
    blobs: dict[str, BlobRef], samples: int = 3, metrics: dict[str, float] | None = None
) -> Reply:
    given = task()
    return Reply(
        run=given.run,
        exchange=given.exchange,
        index=0,
        device=given.device,
        session="0" * 16,
        bases={"weights": NAME},
        status="ok",
        samples=samples,
        metrics=metrics or {},
        blobs=blobs,
    )


SCORES = {"loss": 1.0, "accuracy": 0.5}


def checked(
    asked: OpenExchange,
    groups: Mapping[str, Tensors] | None = None,
    samples: int = 3,
    metrics: dict[str, float] | None = None,
    reason: Callable[[Answer], str] = lambda _: "",
) -> Answer:
    blobs = {role: exact(arrays) for role, arrays in (groups or {}).items()}
    refs = {role: BlobRef(digest=digest(blob), size=len(blob)) for role, blob in blobs.items()}
    by_name = {refs[role].digest: blob for role, blob in blobs.items()}
    delivered = Delivered(reply(refs, samples, metrics), by_name.__getitem__, 0.0, 1)
    return check(delivered, asked, reason)


def zeros(size: int) -> Tensors:
    """Return float32 numbers that take so many bytes, and few once they are compressed."""
    return {"w": np.zeros(size // 4, np.float32)}


@pytest.mark.parametrize(
    ("sent", "room", "most"),
    [
        (9, 0, 2 * MIB),
        (MIB - 1, 0, 2 * MIB),
        (3 * MIB, 0, 6 * MIB),
        (9, 7 * MIB, 7 * MIB),
        (3 * MIB, 5 * MIB, 6 * MIB),
    ],
)
def test_an_answer_takes_twice_what_its_task_took_or_what_the_algorithm_says(
    sent: int, room: int, most: int
) -> None:
    asked = exchange("count", sent, room, "delta", "mask")
    refs = [BlobRef(digest=NAME, size=size) for size in (most - 5, 5, 6)]
    assert LEAST_ROOM == MIB
    assert not fetch_problem(reply({"delta": refs[0], "mask": refs[1]}), asked)
    too_many = fetch_problem(reply({"delta": refs[0], "mask": refs[2]}), asked)
    assert "larger than any valid answer" in too_many
    assert checked(asked, {"delta": zeros(most - 8), "mask": zeros(8)}).groups.keys() == {
        "delta",
        "mask",
    }
    for large in (
        {"delta": zeros(most + 4), "mask": zeros(4)},
        {"delta": zeros(most), "mask": zeros(4)},
    ):
        with pytest.raises(Rejection, match="are allowed"):
            checked(asked, large)


def test_roles_share_the_room_of_one_answer() -> None:
    asked = exchange("count", 9, 0, "a", "b", "c")
    third = 2 * MIB // 3 // 4 * 4
    assert len(checked(asked, dict.fromkeys("abc", zeros(third))).groups) == 3
    with pytest.raises(Rejection, match=r"^c: .*are allowed"):
        checked(asked, dict.fromkeys("abc", zeros(third + 4)))


def test_blobs_that_are_too_large_are_not_even_read() -> None:
    ref = BlobRef(digest=NAME, size=2 * MIB + 1)

    def unread(name: str) -> bytes:
        raise AssertionError(f"{name} was read")

    with pytest.raises(Rejection, match="larger than"):
        check(
            Delivered(reply({"delta": ref}), unread, 0.0, 1), exchange("count", 9, 0, "delta"), str
        )


@pytest.mark.parametrize("value", [MAX_METRIC, -MAX_METRIC, 0.0])
def test_a_metric_may_be_as_large_as_the_limit(value: float) -> None:
    assert checked(exchange(), metrics={"loss": value}).metrics == {"loss": value}
    for beyond in (np.nextafter(MAX_METRIC, np.inf), -np.nextafter(MAX_METRIC, np.inf)):
        with pytest.raises(Rejection, match="its metric loss is"):
            checked(exchange(), metrics={"loss": float(beyond)})


@pytest.mark.parametrize("name", ["count", "evaluate"])
def test_an_answer_rests_on_a_sample(name: str) -> None:
    assert checked(exchange(name), samples=1, metrics=SCORES).samples == 1
    with pytest.raises(Rejection, match="no samples"):
        checked(exchange(name), samples=0)


def test_a_test_of_more_samples_than_sums_can_hold_is_rejected() -> None:
    tested = checked(exchange("evaluate"), samples=MAX_SAMPLES, metrics=SCORES)
    assert tested.samples == MAX_SAMPLES
    with pytest.raises(Rejection, match="it tested 1099511627777 samples"):
        checked(exchange("evaluate"), samples=MAX_SAMPLES + 1)


def test_the_limits_of_values_are_themselves_allowed() -> None:
    floats = {"w": np.array([3, -3], np.float32)}
    counts = {"n": np.array([MAX_COUNT, -MAX_COUNT], np.int64)}
    asked = exchange("count", 9, 0, "floats", "counts")
    assert len(checked(asked, {"floats": floats, "counts": counts}).groups) == 2
    for beyond in (3.000001, -3.000001):
        with pytest.raises(Rejection, match=r"^floats w holds 3, more than 3$"):
            checked(asked, {"floats": {"w": np.array([beyond], np.float32)}, "counts": counts})
    for beyond in (MAX_COUNT + 1, -MAX_COUNT - 1):
        with pytest.raises(Rejection, match=r"^counts n holds"):
            checked(asked, {"floats": floats, "counts": {"n": np.array([beyond], np.int64)}})


def test_the_algorithm_sees_the_whole_answer_and_its_reason_is_told() -> None:
    seen: list[Answer] = []

    def why(answer: Answer) -> str:
        seen.append(answer)
        return "it is of another run"

    groups = {"delta": {"w": np.array([1, 2], np.float32)}}
    with pytest.raises(Rejection, match=r"^it is of another run$"):
        checked(exchange("count", 9, 0, "delta"), groups, 5, {"loss": 0.25}, why)
    (answer,) = seen
    assert (answer.device, answer.samples, answer.metrics) == ("device-00", 5, {"loss": 0.25})
    assert answer.groups["delta"].arrays["w"].tolist() == [1, 2]


def test_a_device_that_was_not_asked_has_no_answer() -> None:
    asked = replace(exchange(), tasks=())
    with pytest.raises(Rejection, match="not asked"):
        checked(asked)
    with pytest.raises(Rejection, match="not asked"):
        fetch_problem(reply({}), asked)
