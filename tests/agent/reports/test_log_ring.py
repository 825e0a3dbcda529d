"""The last lines of the agent's log, in memory."""

from __future__ import annotations

import logging

from device_agent.reports.log_ring import LogRing
from edgefed.wire.limits import MAX_LOG_BYTES, MAX_LOG_LINE


def logger(ring: LogRing, name: str = "device_agent.daemon.agent") -> logging.Logger:
    made = logging.Logger(name, logging.DEBUG)
    made.addHandler(ring)
    return made


def filled(count: int, size: int = 10) -> LogRing:
    ring = LogRing(size)
    log = logger(ring)
    for number in range(1, count + 1):
        log.info("line %d", number)
    return ring


def words(lines: tuple[str, ...]) -> list[str]:
    return [line.partition(" INFO ")[2] for line in lines]


def test_the_newest_lines_are_kept_and_numbered() -> None:
    ring = filled(25)
    first, lines = ring.newest(3)
    assert (first, words(lines)) == (23, ["line 23", "line 24", "line 25"])
    first, lines = ring.newest(100)
    assert (first, len(lines)) == (16, 10)
    assert LogRing().newest(5) == (1, ())


def test_what_came_after_a_line_is_found_oldest_first() -> None:
    ring = filled(25)
    assert words(ring.after(23, 5)[1]) == ["line 24", "line 25"]
    first, lines = ring.after(17, 2)
    assert (first, words(lines)) == (18, ["line 18", "line 19"])
    assert ring.after(25, 5) == (26, ())
    assert ring.after(2, 100)[0] == 16, "what is gone shows in the number"
    assert ring.after(9999, 5) == (26, ()), "of another life"


def test_a_line_is_cut_and_a_message_is_bounded() -> None:
    ring = LogRing(1000)
    log = logger(ring)
    for _ in range(300):
        log.info("é" * 600)
    _, lines = ring.newest(300)
    assert {len(line) for line in lines} == {MAX_LOG_LINE}
    total = sum(len(line.encode()) for line in lines)
    assert MAX_LOG_BYTES - 1000 < total <= MAX_LOG_BYTES
    first, oldest = ring.after(0, 300)
    assert (first, len(oldest)) == (1, len(lines))


def test_control_characters_and_line_ends_do_not_pass() -> None:
    ring = LogRing()
    log = logger(ring)
    log.info("a\x1b[31m\nb\udc80")
    try:
        raise ValueError("one\ntwo\x07")
    except ValueError:
        log.exception("error")
    _, lines = ring.newest(100)
    assert lines[0].endswith("a [31m b ")
    assert lines[-2:] == ("ValueError: one", "two ")
    assert all(line.isprintable() for line in lines)


def test_what_helps_to_find_bugs_is_not_for_operators() -> None:
    ring = LogRing()
    logger(ring).debug("secret")
    logger(ring, "urllib3").info("of others")
    logger(ring, "urllib3").warning("a warning of others")
    _, lines = ring.newest(10)
    assert [line.partition("WARNING ")[2] for line in lines] == ["a warning of others"]


def test_a_record_that_cannot_be_written_ends_nothing() -> None:
    ring = LogRing()
    before, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        logger(ring).info("%d lines", "no number")
        logger(ring).info("goes on")
    finally:
        logging.raiseExceptions = before
    assert len(ring.newest(10)[1]) == 1
