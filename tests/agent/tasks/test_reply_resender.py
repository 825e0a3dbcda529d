"""A reply is sent again until its receipt, the more seldom the longer receipts take."""

from __future__ import annotations

from edgefed.transport.reply_resender import MAX_REPEAT, REPEAT, ReplyResender
from edgefed.wire.messages import Reply
from tests.agent.replies import reply


class Sent:
    """What was sent, and a box that sends there."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.box = ReplyResender(self.replies.append)

    def take(self) -> list[int]:
        """Return the indices sent since the last call."""
        indices = [each.index for each in self.replies]
        self.replies.clear()
        return indices


def test_it_sends_at_once_and_then_ever_more_seldom_until_heard() -> None:
    sent = Sent()
    sent.box.put(reply(1), 0.0)
    assert sent.take() == [1]
    now, waits = 0.0, []
    for _ in range(6):
        due = sent.box.next_due()
        assert due is not None
        sent.box.due(due - 0.01)
        assert sent.take() == []
        sent.box.due(due)
        assert sent.take() == [1]
        waits.append(due - now)
        now = due
    assert waits == [REPEAT, 2 * REPEAT, 4 * REPEAT, *[MAX_REPEAT] * 3]
    sent.box.heard("r-1-1")
    sent.box.heard("r-1-1")
    assert sent.box.next_due() is None


def test_a_reconnection_sends_everything_again_and_forgets_the_waiting() -> None:
    sent = Sent()
    sent.box.put(reply(1), 0.0)
    sent.box.due(REPEAT)
    sent.box.put(reply(2), REPEAT)
    sent.take()
    sent.box.reconnected(100.0)
    assert sent.take() == [1, 2]
    assert sent.box.next_due() == 100.0 + REPEAT


def test_a_slow_receipt_has_the_next_reply_wait_and_a_fast_one_takes_that_back() -> None:
    sent = Sent()
    for index, receipt, wait in ((1, 12.0, REPEAT), (2, 900.0, 24.0), (3, 1.0, MAX_REPEAT)):
        sent.box.put(reply(index), 0.0)
        assert sent.box.next_due() == wait
        sent.box.due(wait)
        assert sent.box.heard(f"r-1-{index}", receipt)
    sent.box.put(reply(4), 0.0)
    assert sent.box.next_due() == REPEAT
    sent.box.reconnected(50.0)  # what came before it was no fault of the coordinator
    sent.box.heard("r-1-4", 62.0)
    sent.box.put(reply(5), 100.0)
    assert sent.box.next_due() == 124.0
    sent.box.heard("r-1-5")  # no receipt, but the end of its exchange
    sent.box.put(reply(6), 100.0)
    assert sent.box.next_due() == 124.0


def test_the_same_exchange_is_there_once() -> None:
    sent = Sent()
    sent.box.put(reply(1), 0.0)
    sent.box.put(reply(1), 1.0)
    sent.take()
    sent.box.due(1.0 + REPEAT)
    assert sent.take() == [1]
