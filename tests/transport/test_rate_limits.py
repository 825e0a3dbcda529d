"""Token buckets: bursts, refills, and memory that does not grow with the number of senders."""

from __future__ import annotations

from edgefed.transport.rate_limits import (
    MAX_COUNTED,
    OTHERS,
    Buckets,
    Rate,
    RefusalCounts,
    TokenBucket,
    cost_of,
)


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(Rate(2, 10), 100.0)
    assert sum(bucket.take(1, 100.0) for _ in range(50)) == 10
    assert [bucket.take(1, 100.4), bucket.take(1, 100.5), bucket.take(1, 100.6)] == [0, 1, 0]
    assert sum(bucket.take(1, 9999.0) for _ in range(50)) == 10, "it never holds more"


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(Rate(1, 1), 100.0)
    assert bucket.take(1, 100.0)
    assert not bucket.take(1, 50.0)
    assert not bucket.take(1, 50.5)


def test_what_costs_more_than_a_full_bucket_takes_all_of_it() -> None:
    bucket = TokenBucket(Rate(1, 4), 0.0)
    assert bucket.take(99, 0.0)
    assert not bucket.take(1, 0.0)


def test_a_charge_may_be_more_than_there_is_and_is_paid_off() -> None:
    bucket = TokenBucket(Rate(1, 2), 0.0)
    bucket.charge(5, 0.0)
    assert [bucket.take(0, at) for at in (0.0, 2.9, 3.0)] == [False, False, True]


def test_one_sender_does_not_take_from_another() -> None:
    buckets = Buckets(Rate(1, 3), 100)
    assert sum(buckets.take("flood", 1, 0.0) for _ in range(1000)) == 3
    assert buckets.take("other", 1, 0.0)


def test_senders_beyond_the_limit_displace_the_one_unused_for_longest() -> None:
    buckets = Buckets(Rate(0, 1), 2)
    for sender in ("a", "b", "a", "c"):
        buckets.take(sender, 1, 0.0)
    assert ("a" in buckets, "b" in buckets, "c" in buckets) == (True, False, True)
    for number in range(10_000):
        buckets.take(f"n-{number}", 1, 0.0)
    assert len(buckets) == 2


def test_refusals_of_many_senders_are_counted_together() -> None:
    counts = RefusalCounts()
    for number in range(3 * MAX_COUNTED):
        counts.add(f"n-{number}")
    for _ in range(5):
        counts.add("n-1")
    most = counts.most()
    assert len(most) == MAX_COUNTED + 1
    assert list(most.items())[:2] == [(OTHERS, 2 * MAX_COUNTED), ("n-1", 6)]
    assert sum(most.values()) == 3 * MAX_COUNTED + 5


def test_large_messages_cost_more() -> None:
    assert [cost_of(bytes(size)) for size in (0, 4095, 4096, 253_952)] == [1, 1, 2, 63]


def test_a_clock_that_goes_back_takes_nothing() -> None:
    bucket = TokenBucket(Rate(1, 10), 100.0)
    assert bucket.take(5, 100.0)
    assert bucket.take(5, 50.0)
    assert not bucket.take(1, 50.0)
