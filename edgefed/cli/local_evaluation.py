"""Test the saved model of a run in this machine's state folder, without a coordinator."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefed.cli.local_runs import as_left
from edgefed.cli.run_folders import found
from edgefed.simulator.work_folder import SIMULATIONS

if TYPE_CHECKING:
    from edgefed.config.settings import Settings
    from edgefed.coordinator.run_records import Checkpoint, RunRecord
    from edgefed.learn.types import Tensors


def evaluate_local(settings: Settings, name: str, *, best: bool = False) -> dict[str, Any]:
    """Return the scores of a run's model on the coordinator's samples.

    Args:
        settings: of the program.
        name: an id or the beginning of one; empty for the newest.
        best: whether to test the model of its best round, and not of the last.

    Raises:
        UnknownNameError: no run, or several, have this name.
        NotAllowedError: it is at work.
        EdgeFedError: it has no model yet, or there are no samples.
    """
    from edgefed.coordinator.frozen_weights import read_frozen
    from edgefed.coordinator.store import Store

    folder = found(settings.state, name)
    place = folder.parent.parent
    with closing(Store(place)) as store:
        record = as_left(store.run(folder.name), store)
        checkpoint = store.checkpoint(folder.name)
    allowed = settings.user_models or place.name == SIMULATIONS
    best_of = folder if best else None
    return _scores(settings, record, checkpoint, read_frozen(folder), allowed, best_of)


def _scores(
    settings: Settings,
    record: RunRecord,
    checkpoint: Checkpoint | None,
    frozen: Tensors,
    user_models: bool,
    best_of: Path | None,
) -> dict[str, Any]:
    """Return the scores; ``best_of`` is the run's folder if its best model is tested."""
    from edgefed.algorithms.registry import make
    from edgefed.config.recipe import Recipe
    from edgefed.coordinator.evaluation import coordinator_scores
    from edgefed.coordinator.run_model import load_dataset, make_run_model
    from edgefed.coordinator.saved_evaluation import (
        best_state,
        evaluation_result,
        no_model,
        no_samples,
    )
    from edgefed.errors import NotAllowedError
    from edgefed.events.model import UNFINISHED

    if record.status in UNFINISHED and record.status != "paused":
        raise NotAllowedError(
            f"Run {record.run} is {record.status}.",
            code="run.busy",
            hint="wait for its end",
        )
    if checkpoint is None or record.spec is None:
        raise no_model(record.run)
    recipe = Recipe.model_validate_json(record.recipe)
    run_model = make_run_model(
        recipe,
        load_dataset(recipe, settings.state / "data"),
        record.spec,
        user_models=user_models,
        memory=settings.memory,
        frozen=frozen,
    )
    if not len(run_model.test):
        raise no_samples("evaluate runs of a fleet without --local, on devices")
    algorithm, state = make(recipe), checkpoint.state
    if best_of is not None:
        state = best_state(algorithm, state, best_of, run_model.model)
    scores = coordinator_scores(recipe, algorithm, state, run_model)
    return evaluation_result(record, state, scores, ())
