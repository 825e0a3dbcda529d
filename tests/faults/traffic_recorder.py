"""Watch a fleet's topics and act at a chosen moment of a round."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from edgefed.config.values.address import Address
from edgefed.transport.inbox import Arrival, Incoming
from edgefed.transport.link import Link
from edgefed.wire.envelope import decode
from edgefed.wire.messages import CoordinatorState, Progress, Task
from edgefed.wire.topics import Topics

Moment = Literal["asked", "broadcast", "training", "upload", "answered"]


class Spy:
    """Sets an event the first time that a moment of a round is seen on the wire.

    A device is asked with a task and has answered with a reply; a chunk towards a device is a
    broadcast, a device that says ``train`` is training, and a chunk from a device is an upload.
    """

    def __init__(self, address: Address, fleet: str) -> None:
        self._topics = Topics(fleet)
        self._round = 0
        self._asked: dict[str, Task] = {}
        self._waiting: tuple[int, Moment, str, str, int | None] | None = None
        self._seen = threading.Event()
        self._act: Callable[[], None] = lambda: None
        root = self._topics.root
        self._link = Link(
            address,
            "spy",
            self._take,
            subscriptions=(f"{root}/all/#", f"{root}/up/#", f"{root}/down/#"),
        )
        self._link.start_now(10)

    def close(self) -> None:
        """Stop watching."""
        self._link.stop()

    def at(
        self,
        number: int,
        moment: Moment,
        device: str,
        act: Callable[[], None],
        *,
        question: str = "",
        step: int | None = None,
    ) -> None:
        """Call ``act``, once, at a moment of round ``number``, seen at ``device``; wait for it.

        Where that round passed while the broker was away, the moment is one of a later round.
        With a ``question``, the moment is one after the device was asked it, and with a ``step``,
        after it was asked for that step of an algorithm whose rounds have several.
        """
        self._seen.clear()
        self._act = act
        self._waiting = (number, moment, device, question, step)
        if not self._seen.wait(120):
            raise AssertionError(
                f"round {number} had no {question} {moment} (round {self._round} now)"
            )

    def _take(self, arrival: Arrival) -> None:
        if not isinstance(arrival, Incoming):
            return
        parsed = self._topics.parse(arrival.topic)
        if parsed is None or not arrival.payload:
            return
        if parsed.leaf == "coordinator":
            self._round = decode(arrival.payload, CoordinatorState).round
        if parsed.leaf == "task":  # also between two moments that are waited for
            self._asked[parsed.who] = decode(arrival.payload, Task)
        if self._waiting is None:
            return
        number, moment, device, question, step = self._waiting
        task = self._asked.get(device)
        current, asked_for = (task.round, task.question) if question and task else (self._round, "")
        if current < number or asked_for != question:
            return
        if step is not None and (task is None or task.params.get("step") != step):
            return
        down = parsed.leaf == "c" and parsed.branch in ("all", "down")
        up = parsed.leaf == "c" and parsed.branch == "up" and parsed.who == device
        train = (
            parsed.leaf == "progress"
            and parsed.who == device
            and decode(arrival.payload, Progress).state == "train"
        )
        asked = parsed.leaf == "task" and parsed.who == device
        answered = parsed.leaf == "reply" and parsed.who == device
        seen = {
            "asked": asked,
            "broadcast": down,
            "training": train,
            "upload": up,
            "answered": answered,
        }
        if seen[moment]:
            self._waiting = None
            self._act()
            self._seen.set()
