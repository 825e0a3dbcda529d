"""The disclosure of the devices' labels by a run's answers, beside the true labels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.experts.expert_records import PHI, TABLE, mixtures_of
from edgefed.algorithms.interface.base import State
from edgefed.charts.grids import Panel, share_maps
from edgefed.charts.svg import stacked, standalone
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.rounds.label_audit import AUDIT
from edgefed.coordinator.storage.run_store import Store
from edgefed.errors import DataError, UnknownNameError
from edgefed.events.base.class_names import label_names
from edgefed.files.user_code import is_own_class
from edgefed.files.writing import storage_error
from edgefed.learn.base.mixture_table import shares_of
from edgefed.report.run_data import RunData
from edgefed.sharing.label_leakage import frequencies_of_mixture, total_variation

MAX_ROWS = 300
"""Devices that the picture has a row for."""

STATE = "state"
"""The source of frequencies that rest on what the coordinator keeps of a mixture of experts."""

_IN_WORDS: Mapping[str, str] = {
    "mixture": "from the shares q(z|s) and the table of the answer",
    "output-bias": "from the change of the output layer's bias",
    STATE: "from the shares q(z|s) and the table after the last round",
}


@dataclass(frozen=True)
class AuditRow:
    """The disclosure of one answer.

    Attributes:
        device: of the answer.
        round: of the answer.
        samples: behind the answer.
        source: the part of the answer: ``mixture``, ``output-bias``, or ``state``.
        role: the reply role of that part.
        determined: whether no other frequencies give the same answer.
        shares: the label frequencies.
        true: those of the device's samples; None if the device does not share its labels.
    """

    device: str
    round: int
    samples: int
    source: str
    role: str
    determined: bool
    shares: tuple[float, ...]
    true: tuple[float, ...] | None = None

    @property
    def part(self) -> str:
        """The part of the answer: its source, and its role where that is not the usual one."""
        usual = self.role in ("", "delta", "mixture")
        return self.source if usual else f"{self.source} of {self.role}"

    @property
    def distance(self) -> float | None:
        """Total variation between both, 0 to 1; None where the true ones are not known."""
        if self.true is None:
            return None
        return total_variation(np.asarray(self.shares), np.asarray(self.true))


@dataclass(frozen=True)
class Audit:
    """The disclosures of a run's answers.

    Attributes:
        run: its id.
        labels: names of the labels.
        rows: by round and device.
    """

    run: str
    labels: tuple[str, ...]
    rows: tuple[AuditRow, ...]

    def of_round(self, number: int | None) -> Audit:
        """Return the answers of a round, or without one the first of each device and role.

        Roles are separate because an answer may have several, such as one for each model.
        """
        if number is not None:
            return replace(self, rows=tuple(row for row in self.rows if row.round == number))
        first: dict[tuple[str, str], AuditRow] = {}
        for row in self.rows:
            first.setdefault((row.device, row.role), row)
        return replace(self, rows=tuple(first[key] for key in sorted(first)))

    def mean_distance(self) -> float | None:
        """Return the mean over the rows whose true frequencies are known; None without any."""
        known = [row.distance for row in self.rows if row.distance is not None]
        return sum(known) / len(known) if known else None


def audit_of_folder(folder: Path, run_data: RunData) -> Audit:
    """Return the record in a run's folder, or the disclosure of its state.

    Raises:
        UnknownNameError: ``audit.none``: nothing was recorded, and the run has no experts.
        DataError: ``audit.invalid``: a line of the record cannot be read.
        StorageError: a file cannot be read.
    """
    was_recorded = (folder / AUDIT).is_file()
    rows = [*_recorded(folder / AUDIT)] if was_recorded else [*_of_state(folder)]
    if not rows:
        raise _nothing(folder.name, was_recorded)
    held = {device.device: device.labels for device in run_data.summary.devices}
    names = label_names(run_data.record.get("class_names") or (), len(rows[0].shares))
    audited = [replace(row, true=_true(held.get(row.device, ()), len(row.shares))) for row in rows]
    audited.sort(key=lambda row: (row.round, row.device))
    return Audit(folder.name, tuple(names), tuple(audited))


def _nothing(run: str, was_recorded: bool) -> UnknownNameError:
    if was_recorded:
        return UnknownNameError(
            f"The answers of run {run} have neither an output bias nor shares of experts.",
            code="audit.none",
            hint="other parts of an answer may tell of labels too",
        )
    return UnknownNameError(
        f"Nothing was recorded of what the answers of run {run} tell of labels.",
        code="audit.none",
        hint="simulate it again: edgefed sim run --audit",
    )


def _recorded(path: Path) -> Iterator[AuditRow]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise storage_error(path, error) from error
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):  # a crash cut it short
            return
        try:
            yield _row(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"Line {number} of {path} is not a record of an answer.",
                code="audit.invalid",
                hint="use an unmodified audit.jsonl",
            ) from error


def _row(values: Mapping[str, Any]) -> AuditRow:
    if values["source"] not in _IN_WORDS:
        raise ValueError(f"there is no source {values['source']}")
    shares = tuple(float(share) for share in values["shares"])
    return AuditRow(**{**values, "shares": shares})


def _of_state(folder: Path) -> Iterator[AuditRow]:
    """Yield what the last mixtures tell with the last table, which is not quite that of any."""
    state = _state(folder)
    if state is None or TABLE not in state.groups:
        return
    table = shares_of(state.groups[TABLE][PHI])
    for device, mixture in mixtures_of(state).items():
        result = frequencies_of_mixture(np.asarray(mixture.shares), table)
        shares = tuple(result.shares.tolist())
        yield AuditRow(device, mixture.round, mixture.samples, STATE, "", result.determined, shares)


def _state(folder: Path) -> State | None:
    """Return the state of a run whose experts are chosen by label; None of any other."""
    if not (folder.parent.parent / "edgefed.db").is_file():
        return None
    with closing(Store(folder.parent.parent)) as store:
        recipe = Recipe.model_validate_json(store.run(folder.name).recipe)
        checkpoint = store.checkpoint(folder.name)
        if is_own_class(recipe.algorithm.name):  # it may be gone, or be of a notebook
            return None
        if checkpoint is None or getattr(make(recipe).settings, "condition", "") != "label":
            return None
        return checkpoint.state


def _true(counts: Sequence[int], labels: int) -> tuple[float, ...] | None:
    total = sum(counts)
    if not total or len(counts) > labels:
        return None
    return tuple(count / total for count in (*counts, *[0] * (labels - len(counts))))


def audit_picture(audit: Audit) -> str:
    """Return true and computed frequencies of each device side by side, as an SVG file."""
    title = f"Labels of the devices of run {audit.run}, as its coordinator could compute them"
    return standalone(stacked(list(_pictures(audit.rows, audit.labels)), title=title))


def _pictures(rows: Iterable[AuditRow], labels: Sequence[str]) -> Iterator[tuple[str, str]]:
    by_part: dict[str, list[AuditRow]] = {}
    for row in rows:
        by_part.setdefault(row.part, []).append(row)
    for part, all_rows in by_part.items():
        shown = all_rows[:MAX_ROWS]
        names = [_name(row) for row in shown]
        empty = (0.0,) * len(labels)
        true = Panel("true", [row.true or empty for row in shown])
        computed = Panel("computed", [row.shares for row in shown])
        drawn = share_maps([true, computed], names, labels, title=part, width=820)
        source = _IN_WORDS[shown[0].source]
        role = f" of {shown[0].role}" if part != shown[0].source else ""
        yield f"Label frequencies {source}{role}; beside each device the distance", drawn


def _name(row: AuditRow) -> str:
    return row.device if row.distance is None else f"{row.device}  {row.distance:.2f}"
