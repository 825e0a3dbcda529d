"""A request to test a saved run's model, and its result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from edgefed.config.recipes.recipe import EvaluationPlace
from edgefed.errors import EdgeFedError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EvaluationRequest:
    """A test to be made; one thread carries it out, others poll its result.

    Attributes:
        on: owner of the samples; None for the recipe's choice.
        mode: how devices predict, as in ``EvalJob.mode``; empty for each device's best.
        best: whether the model of the best round is tested, and not that of the last.
    """

    on: EvaluationPlace | None = None
    mode: str = ""
    best: bool = False
    _result: Future[dict[str, Any]] = field(default_factory=Future)

    def carry_out(self, evaluate: Callable[[], dict[str, Any]]) -> None:
        """Store the result or the error of ``evaluate``; the thread continues after an error."""
        try:
            self._result.set_result(evaluate())
        except EdgeFedError as error:
            self._result.set_exception(error)
        # Others poll for the result, so every end sets one
        except Exception as error:  # an order to end the run, or a bug
            log.info("an evaluation was not finished", exc_info=True)
            self.give_up(str(error) or f"{type(error).__name__.lower()}")

    def give_up(self, reason: str) -> None:
        """End it without a result, unless it has one."""
        if not self._result.done():
            problem = f"The evaluation was not finished: {reason}."
            hint = "edgefed run evaluate starts it again"
            self._result.set_exception(EdgeFedError(problem, code="evaluate.ended", hint=hint))

    def result(self) -> dict[str, Any] | None:
        """Return the scores, or None while it is being carried out.

        Raises:
            EdgeFedError: it could not be.
        """
        return self._result.result() if self._result.done() else None
