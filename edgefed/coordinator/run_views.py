"""Views of a run for responses and the command line: a summary, and all details."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from edgefed.algorithms.mean_records import SHARED, holders
from edgefed.coordinator.run_records import RunRecord
from edgefed.coordinator.store import Store
from edgefed.events.class_table import confusion_json
from edgefed.events.snapshot import ConfusionView


def run_row(record: RunRecord) -> dict[str, Any]:
    """Return a run's row, as a list of runs has it."""
    hidden = ("recipe", "progress")
    return {key: value for key, value in asdict(record).items() if key not in hidden}


def whole_run(store: Store, name: str) -> dict[str, Any]:
    """Return a run's row with its folder, its recipe and its rounds.

    Raises:
        UnknownNameError: no run, or several, have this id or beginning of one.
    """
    record = store.run(name)
    return {
        **run_row(record),
        "folder": str(store.run_folder(record.run)),
        "recipe": json.loads(record.recipe),
        "sharing": len(holders(store.group(record.run, SHARED))),
        "history": store.rounds(record.run),
        "confusions": [
            confusion_json(ConfusionView.model_validate(each), record.class_names)
            for each in store.confusions(record.run)
        ],
    }
