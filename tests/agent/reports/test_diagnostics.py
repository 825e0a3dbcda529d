"""What an agent answers to pings and requests for its log."""

from __future__ import annotations

import logging

from device_agent.reports.diagnostics import Diagnostics
from device_agent.reports.log_ring import LogRing
from device_agent.reports.publisher import Publisher
from edgefed.wire.diagnostic_messages import LogRequest, LogTail, Ping, Pong
from edgefed.wire.messages import Cancel, Message
from edgefed.wire.topics import Topics

TOPICS = Topics("fleet")
OURS, OTHER, NONCE = "1" * 16, "2" * 16, "a" * 8


class Sent(Publisher):
    """Keeps what would be published."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Message, int]] = []
        self._topics, self._device = TOPICS, "d-1"

    def _publish(self, topic: str, message: Message, *, qos: int = 1, retain: bool = False) -> None:
        assert not retain
        self.messages.append((topic, message, qos))


def log_of(count: int) -> LogRing:
    ring = LogRing()
    log = logging.Logger("device_agent")
    log.addHandler(ring)
    for number in range(1, count + 1):
        log.warning("line %d", number)
    return ring


def answers(log: LogRing | None, *asked: Message) -> list[tuple[str, Message, int]]:
    sent = Sent()
    diagnostics = Diagnostics(sent, OURS, log)
    for message in asked:
        diagnostics.take(message)
    return sent.messages


def test_a_ping_is_answered_in_the_life_that_it_is_for() -> None:
    pings = Ping(nonce=NONCE, session=OURS), Ping(nonce="b" * 8, session=OTHER)
    pong = Pong(nonce=NONCE, session=OURS)
    assert answers(None, *pings) == [(TOPICS.pong("d-1"), pong, 0)]


def test_lines_of_the_log_are_sent_as_asked() -> None:
    newest = LogRequest(nonce=NONCE, session=OURS, lines=2)
    after = LogRequest(nonce=NONCE, session=OURS, lines=2, after=1)
    other = LogRequest(nonce=NONCE, session=OTHER, lines=2)
    told = answers(log_of(5), newest, after, other)
    assert [(topic, qos) for topic, _, qos in told] == [(TOPICS.log_tail("d-1"), 0)] * 2
    tails = [message for _, message, _ in told if isinstance(message, LogTail)]
    assert [(tail.first, tail.nonce, tail.shared) for tail in tails] == [
        (4, NONCE, True),
        (2, NONCE, True),
    ]
    assert [[line[-6:] for line in tail.lines] for tail in tails] == [
        ["line 4", "line 5"],
        ["line 2", "line 3"],
    ]


def test_an_owner_may_keep_the_log_from_operators() -> None:
    asked = LogRequest(nonce=NONCE, session=OURS, lines=2)
    told = LogTail(nonce=NONCE, session=OURS, shared=False, first=0)
    assert answers(None, asked) == [(TOPICS.log_tail("d-1"), told, 0)]


def test_other_messages_are_none_of_its_business() -> None:
    assert answers(log_of(1), Cancel(exchange="e-1")) == []
