"""Answers about label bounties: their rows of whole numbers, checked and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgefed.algorithms.base import Answer, Exchange
from edgefed.algorithms.label_device import UNLIMITED
from edgefed.learn.models import Model
from edgefed.learn.types import Array
from edgefed.sharing.label_report import Budget

def table(rows: Mapping[str, Array], names: Sequence[str]) -> list[tuple[int, ...]]:
    return list(zip(*(rows[name].tolist() for name in names), strict=True))


def rows_of(answer: Answer, role: str) -> list[tuple[int, ...]]:
    return table(answer.groups[role].arrays, _COLUMNS[role])


def budget_of(answer: Answer) -> Budget:
    told = answer.metrics
    numbers = {name: told.get(name, UNLIMITED) for name in ("mixes_left", "epsilon", "epsilon_left")}
    known = {name: None if value == UNLIMITED else value for name, value in numbers.items()}
    left = known["mixes_left"]
    return Budget(
        answer.device,
        released=int(told.get("released", 0)),
        mixes_left=None if left is None else int(left),
        epsilon=known["epsilon"],
        epsilon_left=known["epsilon_left"],
    )


def _malformed(rows: Mapping[str, Array], names: Sequence[str]) -> str:
    if set(rows) != set(names):
        return f"it does not hold {', '.join(names)}"
    if any(each.dtype != np.int64 or each.ndim != 1 for each in rows.values()):
        return "it does not hold lists of whole numbers"
    if len({len(each) for each in rows.values()}) > 1:
        return "its lists differ in length"
    if any(len(each) and each.min() < 0 for each in rows.values()):
        return "a number is negative"
    first = rows[names[0]]
    return "" if len(np.unique(first)) == len(first) else f"a {names[0]} is there twice"


def _wrong_needs(
    rows: list[tuple[int, ...]], exchange: Exchange, answer: Answer, model: Model
) -> str:
    del exchange, answer
    for label, count, mixes, received in rows:
        if label >= model.classes:
            return f"there is no label {label}"
        if not 0 < count or not received <= mixes <= count:
            return f"of label {label} it wants {count} samples, {mixes} of them mixes"
    return "" if len(rows) < model.classes else "it lacks every label"


def _wrong_offers(
    rows: list[tuple[int, ...]], exchange: Exchange, answer: Answer, model: Model
) -> str:
    del model
    (asked,) = (q.params["bounties"] for q in exchange.questions if q.device == answer.device)
    for place, mixes in rows:
        if place >= len(asked):
            return f"there is no bounty {place}"
        if not 0 < mixes <= asked[place][2]:
            return f"it offers {mixes} mixes where {asked[place][2]} are asked for"
    return ""


def _wrong_received(
    rows: list[tuple[int, ...]], exchange: Exchange, answer: Answer, model: Model
) -> str:
    del exchange, answer
    return next((f"there is no label {row[0]}" for row in rows if row[0] >= model.classes), "")


_CHECKS = {NEEDS: _wrong_needs, OFFERS: _wrong_offers, RECEIVED: _wrong_received}


