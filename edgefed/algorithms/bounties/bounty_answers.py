"""The exchanges about label bounties: their names, and the rows of whole numbers in their answers.

| exchange | role | a row |
|---|---|---|
| ``label_need`` | ``needs`` | label, count N, mixes Q, mixes received in earlier runs |
| ``label_offer`` | ``offers`` | number of a bounty among those of the task, mixes |
| ``label_mix`` | | the mixes are relayed to devices, and not part of the answer |
| ``label_fill`` | ``received`` | label, mixes that the device holds |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgefed.algorithms.bounties.received_mixes import most_mixes
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.exchange import Exchange, Question
from edgefed.config.recipes.recipe import LabelsSection
from edgefed.learn.base.types import Array
from edgefed.learn.modeling.model import Model
from edgefed.sharing.bounty_report import Budget

NEED, OFFER, MIX, FILL = "label_need", "label_offer", "label_mix", "label_fill"
"""The exchanges, as their tasks name them."""

NEEDS, OFFERS, RECEIVED = "needs", "offers", "received"
"""Roles of the arrays in their answers."""

ROLES = {NEED: (NEEDS,), OFFER: (OFFERS,), MIX: (), FILL: (RECEIVED,)}
"""Roles by exchange."""

COLUMNS = {
    NEEDS: ("label", "count", "mixes", "received"),
    OFFERS: ("bounty", "mixes"),
    RECEIVED: ("label", "mixes"),
}
"""Names of the arrays of a role, int64 (rows,); the first one is different in every row."""

Row = tuple[int, ...]

UNLIMITED = -1.0
"""The metric of a limit that a device does not have."""

MOST_TOLD = 1e30
"""Largest number that a metric tells."""


def group_of(role: str, rows: Sequence[Sequence[int]]) -> Group:
    """Return rows as a device sends them."""
    columns = np.array(rows, np.int64).reshape(len(rows), len(COLUMNS[role])).T
    arrays = map(np.ascontiguousarray, columns)
    return Group(dict(zip(COLUMNS[role], arrays, strict=True)), "fp32")


def rows_of(answer: Answer, role: str) -> list[Row]:
    """Return the rows of a role of an answer that was checked."""
    arrays = answer.groups[role].arrays
    return list(zip(*(arrays[name].tolist() for name in COLUMNS[role]), strict=True))


def budget_metrics(budget: Budget) -> dict[str, float]:
    """Return a device's budget as metrics of its answer."""
    metrics = {
        "released": budget.released,
        "mixes_left": budget.mixes_left,
        "epsilon": budget.epsilon,
        "epsilon_left": budget.epsilon_left,
        "shares": budget.shares,
    }
    return {
        name: UNLIMITED if value is None else min(float(value), MOST_TOLD)
        for name, value in metrics.items()
    }


def budget_of(answer: Answer) -> Budget:
    """Return the budget in the metrics of an answer."""
    metrics = {name: value for name, value in answer.metrics.items() if value != UNLIMITED}
    left = metrics.get("mixes_left")
    return Budget(
        answer.device,
        released=int(metrics.get("released", 0)),
        mixes_left=None if left is None else int(left),
        epsilon=metrics.get("epsilon"),
        epsilon_left=metrics.get("epsilon_left"),
        shares=bool(metrics.get("shares", 1.0)),
    )


def wrong_rows(exchange: Exchange, answer: Answer, model: Model, settings: LabelsSection) -> str:
    """Return why the rows of an answer do not fit its exchange, or nothing."""
    for role in ROLES[exchange.name]:
        if reason := _malformed(answer.groups[role].arrays, COLUMNS[role]):
            return f"{role}: {reason}"
        (asked,) = (question for question in exchange.questions if question.device == answer.device)
        if reason := _CHECKS[role](rows_of(answer, role), asked, model, settings):
            return f"{role}: {reason}"
    return ""


def _malformed(rows: Mapping[str, Array], names: Sequence[str]) -> str:
    if set(rows) != set(names):
        return f"it does not hold {', '.join(names)}"
    if any(row.dtype != np.int64 or row.ndim != 1 for row in rows.values()):
        return "it does not hold lists of whole numbers"
    if len({len(row) for row in rows.values()}) > 1:
        return "its lists differ in length"
    if any(len(row) and row.min() < 0 for row in rows.values()):
        return "a number is negative"
    first = rows[names[0]]
    return "" if len(np.unique(first)) == len(first) else f"a {names[0]} is there twice"


def _wrong_needs(rows: list[Row], asked: Question, model: Model, settings: LabelsSection) -> str:
    most = settings.count or round(settings.supplement * asked.samples)
    for label, count, mixes, received in rows:
        if label >= model.classes:
            return f"there is no label {label}"
        if not 0 < count <= most:
            return f"of label {label} it wants {count} samples, and may want 1 to {most}"
        if not received <= mixes <= round(settings.mix_share * count):
            return f"of {count} samples of label {label} it wants {mixes} as mixes, has {received}"
    if sum(row[2] for row in rows) > (keeps := most_mixes(model.shape)):
        return f"it wants more mixes than the {keeps} that a device keeps"
    # All labels may be rare, and not all can be missing
    is_possible = settings.fewer_than > 1 or len(rows) < model.classes
    return "" if is_possible else "it lacks every label"


def _wrong_offers(rows: list[Row], asked: Question, model: Model, settings: LabelsSection) -> str:
    del model, settings
    bounties = asked.params["bounties"]
    for place, mixes in rows:
        if place >= len(bounties):
            return f"there is no bounty {place}"
        if not 0 < mixes <= bounties[place][2]:
            return f"it offers {mixes} mixes where {bounties[place][2]} are asked for"
    return ""


def _wrong_received(rows: list[Row], asked: Question, model: Model, settings: LabelsSection) -> str:
    del asked, settings
    return next((f"there is no label {row[0]}" for row in rows if row[0] >= model.classes), "")


_CHECKS = {NEEDS: _wrong_needs, OFFERS: _wrong_offers, RECEIVED: _wrong_received}
