"""Record the label frequencies that each answer discloses, for an audit of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from edgefed.algorithms.composed.label_audit import disclosures
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.coordinator.rounds.engine_deps import EngineDeps
from edgefed.coordinator.rounds.run_state import RunState
from edgefed.errors import DataError
from edgefed.files.writing import append_whole, open_private, storage_error
from edgefed.learn.modeling.model import Model

AUDIT = "audit.jsonl"
"""In a run's folder: a line for each answer that tells of labels."""

DIGITS = 7
"""Decimal places of a frequency in the file."""


class LabelAudit:
    """Computes label frequencies from answers while they are merged, and writes them down.

    It uses only data that every coordinator has at that moment.

    Args:
        folder: of the run.
        training: the recipe's section.
        by_label, rounds: see ``disclosures``.
    """

    def __init__(
        self, folder: Path, training: TrainingSection, by_label: bool = True, rounds: int = 0
    ) -> None:
        self._path = folder / AUDIT
        self._training = training
        self._by_label = by_label
        self._rounds = rounds

    def watched(
        self, answers: Iterable[Answer], state: State, exchange: Exchange, model: Model
    ) -> Iterator[Answer]:
        """Yield the answers as they come, each after it was written down.

        Raises:
            StorageError: the disk does not take it.
        """
        # Without an output bias, gradients alone do not disclose the counts of labels
        bias = output_bias(model)
        for answer in answers:
            disclosed = disclosures(
                answer,
                state,
                exchange.round,
                self._training,
                bias,
                self._by_label,
                self._rounds,
            )
            rows = [
                {
                    "round": exchange.round,
                    "device": answer.device,
                    "samples": answer.samples,
                    "source": disclosure.source,
                    "role": disclosure.role,
                    "determined": disclosure.determined,
                    "shares": [round(float(share), DIGITS) for share in disclosure.shares],
                }
                for disclosure in disclosed
            ]
            self._append(rows)
            yield answer

    def _append(self, rows: list[dict[str, Any]]) -> None:
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        # Appended in one write: a kill leaves whole lines
        try:
            with open_private(self._path, "a+b", buffering=0) as file:
                append_whole(file, lines.encode())
        except OSError as error:
            raise storage_error(self._path, error) from error


def audited(
    deps: EngineDeps, run: str, state: RunState, asked: Exchange, answers: Iterator[Answer]
) -> Iterator[Answer]:
    """Return the answers to an exchange, recorded where an audit is wanted."""
    if not deps.audit:
        return answers
    model = state.run_model.trainers.get(asked.model).model
    by_label = not deps.algorithm.needed_columns()
    folder, rounds = deps.store.run_folder(run), deps.recipe.rounds.count
    audit = LabelAudit(folder, deps.recipe.training, by_label, rounds)
    return audit.watched(answers, state.state, asked, model)


def output_bias(model: Model) -> str:
    """Return the name of the output layer's bias; empty for a model without one."""
    try:
        name = f"{model.output_layer.name}.bias"
    except DataError:
        return ""
    return name if name in model.names else ""
