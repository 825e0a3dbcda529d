"""The metrics that a sweep reports: their names, which values are better, and their targets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from edgefed.config.recipes.sections import FiniteNumber, Section
from edgefed.config.values.layers import ValueLayer
from edgefed.config.values.problems import BAD_VALUE, Problem
from edgefed.events.history.early_stopping import LOWER
from edgefed.simulator.sweep.statistics import Better

RUN_NUMBERS = ("bytes", "bytes_up", "bytes_down", "seconds", "rounds")
"""Numbers of a whole run; all others are those of a round."""

USUAL_NUMBERS = (*RUN_NUMBERS, "train_loss", "replies", "late", "sent", "received")
"""Numbers that runs have beside scores, with which a mistyped name is compared."""

HIGHER_WORDS = frozenset({"accuracy", "precision", "recall", "f1", "auc", "purity"})

LOWER_WORDS = LOWER | {"mae", "mse", "rmse", "perplexity", "bytes", "seconds", "rounds"}

SHARE = re.compile(r"(balanced_)?accuracy|accuracy_\w+|top\d+_accuracy|macro_(f1|precision)")
"""Scores of ours from 0 to 1, without the place of the test."""

LOSS = re.compile(r"loss|train_loss|loss_\w+")
"""Losses of ours, without the place of the test."""

RESERVED = frozenset(
    {
        *("case", "settings", "runs", "failed", "measured_on", "differences", "chosen"),
        *("seed", "status", "reason", "weights_digest", "folder", "round"),
    }
)
"""Other keys and columns of the tables."""


@dataclass(frozen=True)
class ReportMetric:
    """A metric of a report.

    Attributes:
        name: as a round's row has it, or one of ``RUN_NUMBERS``.
        better: its better values; None for a number of which neither is.
        target: a value; the table states after how many rounds it was reached. None for none.
    """

    name: str
    better: Better | None = None
    target: float | None = None

    def reaches(self, value: object) -> bool:
        """Return whether a round's value reaches the target; without a target none does."""
        if self.target is None or not isinstance(value, (int, float)):
            return False
        return value <= self.target if self.better == "lower" else value >= self.target


Report = tuple[ReportMetric, ...]


def usual_better(name: str) -> Better | None:
    """Return the better values of a metric by the words of its name; None if no word says it."""
    words = set(name.split("_"))
    if words & LOWER_WORDS:
        return "lower"
    return "higher" if words & HIGHER_WORDS else None


def accuracy_metric(target: float | None = None) -> ReportMetric:
    """Return the accuracy with its target."""
    return ReportMetric("accuracy", "higher", target)


def default_report(target: float | None = None) -> Report:
    """Return the report of a sweep that names none.

    Args:
        target: of the accuracy.
    """
    usual = (ReportMetric(name, usual_better(name)) for name in ("loss", "bytes", "seconds"))
    return accuracy_metric(target), *usual


# -- in a sweep file ------------------------------------------------------------------------------


class MetricSection(Section):
    """A metric of a sweep file's ``report``."""

    metric: Annotated[str, Field(min_length=1, max_length=128)]
    """Its name: a number of a round's row, or ``bytes``, ``bytes_up``, ``bytes_down``, ``seconds``
    or ``rounds`` of the whole run."""

    better: Literal["higher", "lower"] | None = None
    """Which values are better. Unset: by the words of the name, if one of them says it."""

    target: FiniteNumber | None = None
    """A value of a round; the table states after how many rounds it was reached."""


def _named(value: Any) -> Any:
    """Return a metric's name as a table."""
    if not isinstance(value, (str, dict)):
        raise ValueError("must be a metric's name in quotes, or a table")
    return {"metric": value} if isinstance(value, str) else value


ReportItem = Annotated[MetricSection, BeforeValidator(_named)]


def report_of(items: Sequence[MetricSection], target: float | None) -> Report:
    """Return the report that a sweep file asks for.

    Args:
        items: of its ``report``; none for the default.
        target: of the accuracy, if the file has one beside its ``report``.
    """
    if not items:
        return default_report(target)
    return tuple(
        ReportMetric(
            item.metric,
            item.better or usual_better(item.metric),
            target if item.metric == "accuracy" and target is not None else item.target,
        )
        for item in items
    )


def report_problems(
    items: Sequence[MetricSection], target: float | None, layer: ValueLayer
) -> Iterator[Problem]:
    """Yield the problems of a report that show before any run."""
    seen: set[str] = set()
    for number, item in enumerate(items):
        text = _problem(item) or (f"{item.metric} is there already" if item.metric in seen else "")
        if item.metric == "accuracy" and None not in (target, item.target):
            text = "accuracy has a target twice, here and above"
        if text:
            place = ("report", number)
            yield Problem(layer.nearest(place), f"report[{number}]", text, BAD_VALUE)
        seen.add(item.metric)
    if items and target is not None and "accuracy" not in seen:
        text = "is the accuracy's, which report does not have; give a metric of it a target"
        yield Problem(layer.nearest(("target",)), "target", text, BAD_VALUE)


def _problem(item: MetricSection) -> str:
    """Return the problem of one metric of a report; nothing if there is none."""
    name, usual = item.metric, usual_better(item.metric)
    of_score = re.sub("^(device|validation)_", "", name)
    is_share = SHARE.fullmatch(of_score) is not None
    is_loss = LOSS.fullmatch(of_score) is not None
    if not re.fullmatch(r"[^\W\d]\w*", name) or name in RESERVED:
        return f"'{name}' is no name of a metric"
    if item.better not in (None, usual) and (is_share or is_loss or name in RUN_NUMBERS):
        return f"of {name}, {usual} values are better"
    if item.target is None:
        return ""
    if name in RUN_NUMBERS:
        return f"{name} is a number of the whole run, so no round reaches a target"
    if not (item.better or usual):
        return f'a target of {name} needs better = "higher" or "lower"'
    if is_share and not 0 < item.target <= 1:
        return f"the target of {name} must be more than 0 and at most 1"
    return f"the target of {name} must be more than 0" if is_loss and item.target <= 0 else ""
