"""Control the current run from any thread: pause, resume, step, finish, abort."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Literal

from edgefed.coordinator.rounds.evaluation_request import EvaluationRequest
from edgefed.errors import UsageError

Action = Literal["pause", "resume", "step", "finish", "abort"]


class Aborted(Exception):  # noqa: N818 - an order, not an error
    """The operator ended the run."""


class Stopping(Exception):  # noqa: N818 - an order, not an error
    """The process ends; the run goes on later."""


class RunControls:
    """Orders that the engine looks at between two exchanges; an abort it sees at once.

    Args:
        paused: whether the run begins paused.
    """

    def __init__(self, *, paused: bool = False) -> None:
        self._changed = threading.Condition()
        self._paused = paused
        self._steps = 0
        self._finishing = False
        self._aborting = False
        self._stopping = False
        self._evaluations: deque[EvaluationRequest] = deque()
        self.on_change: Callable[[], None] = lambda: None

    def order(self, action: str) -> str:
        """Take an order and return its effect, in words.

        Raises:
            UsageError: there is no such order.
        """
        with self._changed:
            match action:
                case "pause":
                    self._paused = True
                    message = "pausing after this exchange"
                case "resume":
                    # Resuming forgets the steps that are left
                    self._paused, self._steps = False, 0
                    message = "running"
                case "step":
                    self._paused = True
                    self._steps += 1
                    message = "one exchange, then paused"
                case "finish":
                    # A paused run goes on, to end with the round that is open
                    self._finishing, self._paused = True, False
                    message = "finishing after this round"
                case "abort":
                    self._aborting = True
                    message = "aborting"
                case _:
                    raise UsageError(f"There is no order '{action}'.", code="run.order")
            self._changed.notify_all()
        # Outside the lock: the callback may take locks of its own
        self.on_change()
        return message

    def stop_process(self) -> None:
        """End the engine's work as a kill would: nothing is decided, and the run resumes later."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self.on_change()

    @property
    def paused(self) -> bool:
        """Whether the next exchange has to wait."""
        return self._paused and not self._steps

    @property
    def finishing(self) -> bool:
        """Whether the run ends with this round."""
        return self._finishing

    @property
    def aborting(self) -> bool:
        """Whether the run ends now."""
        return self._aborting

    @property
    def stopping(self) -> bool:
        """Whether the process ends now."""
        return self._stopping

    def interrupted(self) -> bool:
        """Whether to stop waiting for replies."""
        return self._aborting or self._stopping

    def check(self) -> None:
        """Go on unless an order ends the engine's work.

        Raises:
            Aborted: the run ends now.
            Stopping: the process ends now.
        """
        if self._aborting:
            raise Aborted
        if self._stopping:
            raise Stopping

    def wait(self, seconds: float) -> bool:
        """Wait for so long; return True, at once, if waiting is to stop."""
        with self._changed:
            return self._changed.wait_for(self.interrupted, seconds)

    def evaluate(self, request: EvaluationRequest) -> None:
        """Have the engine test the model while it is paused."""
        with self._changed:
            self._evaluations.append(request)
            self._changed.notify_all()

    def give_up_evaluations(self) -> None:
        """Fail the waiting evaluations, because the engine's work has ended."""
        with self._changed:
            while self._evaluations:
                self._evaluations.popleft().give_up("the run went on")

    def pass_gate(self) -> EvaluationRequest | None:
        """Wait while paused; use up a step.

        Returns:
            An evaluation to carry out before the next call; None to go on.
        """
        with self._changed:
            self._changed.wait_for(
                # Evaluations are made while paused, so one of them opens the gate too
                lambda: not self.paused or self._evaluations or self.interrupted()
            )
            if self._evaluations and not self.interrupted():
                return self._evaluations.popleft()
            # A step is used up when the gate is passed, not when it is ordered
            if self._steps:
                self._steps -= 1
            return None
