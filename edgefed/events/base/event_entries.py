"""Entries of the event log, the filter that selects some of them, and pages of a log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from edgefed.events.base.model import EventKind
from edgefed.events.base.view import View

PAGE = 200
"""Most entries of a page."""

ROUTINE_KINDS = ("reply", "accepted")
"""Kinds whose filter shows accepted replies, too."""

_KEYS = ("device", "kind", "by")

_PROBLEM = '"problem": true'

Words = Annotated[str, Field(max_length=200)]


class EventEntry(View):
    """One line of the event log.

    Attributes:
        position: orders the entries of a log, and names one.
        time: UTC, ISO 8601.
        kind: of the event.
        outcome: the state, outcome or status in which it left its subject, such as ``lost``.
        device: the device that it is about; empty for none.
        by: the user that gave an order; empty for any other event.
        run: the run that it names; empty for none.
        problem: whether it is a warning, an error, a loss or a refusal.
        routine: whether it is an accepted reply, of which every round has many.
        mark: symbol of the outcome, as in ``LineView``.
        since: UTC time at which an outage began that is over at ``time``; empty for other events.
    """

    position: int = 0
    time: str
    kind: EventKind
    outcome: str = ""
    device: str = ""
    by: str = ""
    run: str = ""
    problem: bool = False
    routine: bool = False
    mark: str = "·"
    text: str
    since: str = ""

    @property
    def word(self) -> str:
        """The most specific word for its kind."""
        return self.outcome or self.kind


class EventFilter(View):
    """Selects entries of an event log; case does not matter.

    Attributes:
        device: part of the device's id.
        kind: the kind of the event, or the outcome, such as ``lost``.
        by: part of the user's name.
        words: parts of the text.
        problems: True for problems alone, False for all other entries.
        routine: whether accepted replies are among the entries.
    """

    device: Words = ""
    kind: Words = ""
    by: Words = ""
    words: Annotated[tuple[Words, ...], Field(max_length=16)] = ()
    problems: bool | None = None
    routine: bool = False

    @classmethod
    def parse(cls, text: str) -> EventFilter:
        """Return the filter of a line such as ``device:jetson-03 kind:lost by:anna fan``."""
        keys: dict[str, str] = {}
        words: list[str] = []
        for word in text.split():
            key, colon, value = word.partition(":")
            if colon and value and key.lower() in _KEYS:
                keys[key.lower()] = value[:200]
            else:
                words.append(word[:200])
        return cls(words=tuple(words[:16]), **keys)

    def matches(self, entry: EventEntry) -> bool:
        """Return whether an entry is selected."""
        kind, text = self.kind.lower(), entry.text.lower()
        if entry.routine and not (self.routine or kind in ROUTINE_KINDS):
            return False
        return (
            (self.problems is None or self.problems == entry.problem)
            and kind in ("", entry.kind, entry.outcome)
            and self.device.lower() in entry.device.lower()
            and self.by.lower() in entry.by.lower()
            and all(word.lower() in text for word in self.words)
        )

    def line_filter(self) -> Callable[[str], bool]:
        """Return a quick test of whether a line may hold a selected entry.

        Lines are entries as JSON without their default values, in lower case.
        """
        values = filter(None, (self.device, self.kind, self.by, *self.words))
        parts = [json.dumps(value, ensure_ascii=False)[1:-1].lower() for value in values]
        problems = self.problems

        def may_match(line: str) -> bool:
            if problems is not None and problems != (_PROBLEM in line):
                return False
            return all(part in line for part in parts)

        return may_match


class EventPage(View):
    """A part of an event log.

    Attributes:
        entries: in the order in which they were read.
        next: the position from which to read on; None where the log ends.
        end: the position that the log's next entry will have.
    """

    entries: tuple[EventEntry, ...] = ()
    next: int | None = None
    end: int = 0
