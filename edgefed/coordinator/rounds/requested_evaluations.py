"""The evaluations that operators asked for: those of ended runs are carried out here."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.rounds.engine_deps import EngineDeps
from edgefed.coordinator.rounds.evaluation_request import EvaluationRequest
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.rounds.saved_evaluation import SavedRun, ended_run, evaluate
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.errors import NotAllowedError, UnknownNameError

log = logging.getLogger(__name__)

MOST = 32
"""Evaluations that are remembered; the oldest is forgotten for a new one."""


class Evaluations:
    """Requests and their results, by id; safe from any thread.

    Args:
        make_deps: returns the dependencies of a recipe's run, under given controls.
        wake: makes threads that wait for devices look at the controls.
    """

    def __init__(
        self, make_deps: Callable[[Recipe, RunControls], EngineDeps], wake: Callable[[], None]
    ) -> None:
        self._make_deps = make_deps
        self._wake = wake
        self._lock = threading.Lock()
        self._known: OrderedDict[str, EvaluationRequest] = OrderedDict()
        self._at_work: dict[str, RunControls] = {}

    def add(self, request: EvaluationRequest) -> str:
        """Remember a request and return its id."""
        name = f"e-{secrets.token_hex(6)}"
        with self._lock:
            self._known[name] = request
            # Results are polled soon after they are there, so old ones are of no use
            while len(self._known) > MOST:
                self._known.popitem(last=False)
        return name

    def result(self, name: str) -> dict[str, Any] | None:
        """Return the result of an evaluation; None while it goes on.

        Raises:
            UnknownNameError: there is none of this id.
            EdgeFedError: it failed.
        """
        with self._lock:
            request = self._known.get(name)
        if request is None:
            raise UnknownNameError(
                f"The coordinator knows no evaluation {name}.",
                code="evaluate.unknown",
                hint="it may have been restarted; run edgefed run evaluate again",
            )
        return request.result()

    def controls(self) -> list[RunControls]:
        """Return the controls that end the evaluations of ended runs."""
        with self._lock:
            return list(self._at_work.values())

    def check_free(self) -> None:
        """Check that no ended run is being evaluated.

        Raises:
            NotAllowedError: one is.
        """
        with self._lock:
            for run in self._at_work:
                raise NotAllowedError(
                    f"Run {run} is being evaluated.", code="run.busy", hint="try again in a moment"
                )

    def of_ended_run(self, record: RunRecord, request: EvaluationRequest) -> Callable[[], None]:
        """Return the work of testing an ended run's model; the run is busy until it is done."""
        controls = RunControls()
        controls.on_change = self._wake
        with self._lock:
            self._at_work[record.run] = controls

        def read() -> SavedRun:
            recipe = Recipe.model_validate_json(record.recipe)
            return ended_run(self._make_deps(recipe, controls), record, log.warning)

        def work() -> None:
            try:
                request.carry_out(lambda: evaluate(read, request))
            finally:
                # Whatever happens, the run is free again
                with self._lock:
                    self._at_work.pop(record.run, None)

        return work
