"""Views of a run for responses and the command line: a summary, and all details."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from edgefed.algorithms.averaged_data.mean_records import SHARED, holders
from edgefed.config.recipes.recipe import EvaluationSection
from edgefed.coordinator.models.model_file_contents import CHECKPOINTS, file_round
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.events.base.class_table import confusion_json
from edgefed.events.base.evaluation_views import ConfusionView
from edgefed.events.history.early_stopping import history_of
from edgefed.learn.modeling.model_file_reader import BEST_FILE, MODEL_FILE


def run_row(record: RunRecord) -> dict[str, Any]:
    """Return a run's row, as a list of runs has it."""
    hidden = ("recipe", "progress", "silent", "testers", "first_index")
    return {key: value for key, value in asdict(record).items() if key not in hidden}


def whole_run(store: Store, name: str) -> dict[str, Any]:
    """Return a run's row with its folder, its recipe and its rounds.

    Raises:
        UnknownNameError: no run, or several, have this id or beginning of one.
    """
    record = store.run(name)
    history = store.rounds(record.run)
    return {
        **run_row(record),
        "folder": str(store.run_folder(record.run)),
        "recipe": json.loads(record.recipe),
        "sharing": len(holders(store.group(record.run, SHARED))),
        "history": history,
        "confusions": [
            confusion_json(ConfusionView.model_validate(confusion), record.class_names)
            for confusion in store.confusions(record.run)
        ],
        "models": _model_files(store, record, history),
    }


def _model_files(
    store: Store, record: RunRecord, history: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the model files in a run's folder: the last round's, the best one's, checkpoints."""
    folder = store.run_folder(record.run)
    evaluation = EvaluationSection.model_validate(json.loads(record.recipe).get("evaluation", {}))
    best = history_of(evaluation, history).best
    paths = [
        folder / MODEL_FILE,
        folder / BEST_FILE,
        *sorted((folder / CHECKPOINTS).glob("*.safetensors")),
    ]
    rows = []
    for path in paths:
        number = file_round(path)
        if number is None:
            continue
        row: dict[str, Any] = {"file": str(path.relative_to(folder)), "round": number}
        if path.name == BEST_FILE and best is not None and best.round == number:
            row |= {"metric": best.metric, "score": best.score}
        rows.append(row)
    return rows
