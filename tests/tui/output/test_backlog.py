"""Drawings wait while the terminal still has to take the last ones."""

from __future__ import annotations

import pytest

from edgefed.tui.output.backlog import (
    ASK_AFTER,
    FIRST_PATIENCE,
    PATIENCE,
    QUESTION,
    Backlog,
)


class Link:
    """A terminal whose time and buffers the test owns."""

    def __init__(self) -> None:
        self.time = 100.0
        self.writable = True
        self.backlog = Backlog(lambda: self.time, lambda: self.writable)


@pytest.fixture
def link() -> Link:
    return Link()


def test_few_bytes_never_wait(link: Link) -> None:
    assert link.backlog.sent(ASK_AFTER - 1) == ""
    assert not link.backlog.busy()
    assert link.backlog.sent(1) == QUESTION


def test_the_terminal_is_asked_once_and_drawings_wait_for_the_answer(link: Link) -> None:
    assert link.backlog.sent(ASK_AFTER) == QUESTION
    assert link.backlog.busy()
    assert link.backlog.sent(ASK_AFTER) == ""
    link.time += 0.75
    link.backlog.answered()
    assert not link.backlog.busy()
    assert link.backlog.round_trip == 0.75
    assert link.backlog.sent(0) == QUESTION  # what was sent after the question counts


def test_an_answer_that_is_lost_delays_drawings_by_a_while(link: Link) -> None:
    link.backlog.answered()
    link.backlog.sent(ASK_AFTER)
    link.time += PATIENCE - 0.01
    assert link.backlog.busy()
    link.time += 0.02
    assert not link.backlog.busy()
    assert link.backlog.sent(ASK_AFTER) == QUESTION


def test_a_terminal_that_never_answers_is_soon_left_alone(link: Link) -> None:
    for _ in range(2):
        assert link.backlog.sent(ASK_AFTER) == QUESTION
        assert link.backlog.busy()
        link.time += FIRST_PATIENCE
        assert not link.backlog.busy()
    assert link.backlog.sent(100 * ASK_AFTER) == ""
    link.backlog.answered()  # late
    assert link.backlog.sent(ASK_AFTER) == QUESTION


def test_drawings_wait_while_the_system_takes_no_more_bytes(link: Link) -> None:
    link.writable = False
    assert link.backlog.busy()
    assert not link.backlog.asked()
    link.writable = True
    assert not link.backlog.busy()
