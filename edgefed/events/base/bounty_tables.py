"""The tables of label bounties and mix budgets: how they are made, and views of their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from edgefed.events.base.method_tables import (
    DEVICE,
    Cell,
    Column,
    MethodTable,
    Row,
    TableView,
    device_of,
    method_table,
    table_named,
)
from edgefed.events.base.view import View
from edgefed.sharing.bounty_report import Bounty, BountyStatus, Budget

BOUNTIES, BUDGETS = "label bounties", "mix budgets"

STATUSES: tuple[BountyStatus, ...] = get_args(BountyStatus)

NO_LIMIT, UNBOUNDED = "no limit", "unbounded"
"""Cells of a budget without a limit, and of mixes that no finite ε bounds."""


class BountyView(View):
    """A device's request for samples of a label that it lacks; ``Bounty`` has the meanings."""

    device: str
    label: int
    count: int
    mixes: int
    offered: int = 0
    received: int = 0
    noise: int = 0
    status: BountyStatus = "open"

    @property
    def filled(self) -> float:
        """The share of the supplement that is there."""
        return (self.received + self.noise) / self.count if self.count else 1.0


class BudgetView(View):
    """A device's statement about its mixes with its last offer; ``Budget`` has the meanings."""

    device: str
    released: int = 0
    mixes_left: int | None = None
    epsilon: float | None = 0.0
    epsilon_left: float | None = None
    shares: bool = True


def bounty_key(device: str, label: int) -> str:
    """Return the key of a bounty's row."""
    return f"{device}/{label}"


def bounty_table(
    bounties: Iterable[Bounty | BountyView],
    budgets: Iterable[Budget | BudgetView] = (),
    verdict: str = "",
) -> MethodTable:
    """Return the table of bounties.

    Args:
        bounties: its rows.
        budgets: of the devices that answered them.
        verdict: empty for that of the rows.
    """
    views = [BountyView.model_validate(bounty, from_attributes=True) for bounty in bounties]
    return method_table(
        BOUNTIES,
        [
            Column(name="label", show="label"),
            Column(name="status"),
            Column(name="filled", format=".0%", show="share"),
            *(
                Column(name=name, format="d")
                for name in ("count", "mixes", "offered", "received", "noise")
            ),
        ],
        (
            (
                bounty_key(view.device, view.label),
                (
                    *(view.label, view.status, round(view.filled, 4), view.count, view.mixes),
                    *(view.offered, view.received, view.noise),
                ),
            )
            for view in views
        ),
        key=DEVICE,
        verdict=verdict or bounty_verdict(views, list(budgets)),
    )


def budget_table(budgets: Iterable[Budget | BudgetView]) -> MethodTable:
    """Return the table of budgets."""
    return method_table(
        BUDGETS,
        [
            Column(name="released", format="d"),
            Column(name="mixes left", format="d"),
            Column(name="epsilon", format=".4g"),
            Column(name="epsilon left", format=".4g"),
            Column(name="shares"),
        ],
        (
            (
                budget.device,
                (
                    budget.released,
                    _or(budget.mixes_left, NO_LIMIT),
                    _or(budget.epsilon, UNBOUNDED),
                    _or(budget.epsilon_left, NO_LIMIT),
                    budget.shares,
                ),
            )
            for budget in budgets
        ),
        key=DEVICE,
    )


def bounty_view(bounties: Sequence[Bounty], budgets: Sequence[Budget]) -> tuple[MethodTable, ...]:
    """Return the tables of those of both that there are."""
    tables = (bounty_table(bounties, budgets), budget_table(budgets))
    return tuple(table for table in tables if table.rows)


def bounties_of(views: Iterable[TableView]) -> tuple[BountyView, ...]:
    """Return the bounties in a run's tables, sorted by device and label."""
    view = table_named(views, BOUNTIES)
    return tuple(map(bounty_of, view.table.rows)) if view is not None else ()


def bounty_of(row: Row) -> BountyView:
    """Return the bounty of a row."""
    names = ("label", "status", "filled", "count", "mixes", "offered", "received", "noise")
    values = dict(zip(names, row.cells, strict=True))
    return BountyView.model_validate({**values, "device": device_of(row.key)})


def budgets_of(views: Iterable[TableView]) -> tuple[BudgetView, ...]:
    """Return the budgets in a run's tables, sorted by device."""
    view = table_named(views, BUDGETS)
    return tuple(map(_budget, view.table.rows)) if view is not None else ()


def _budget(row: Row) -> BudgetView:
    released, mixes_left, epsilon, epsilon_left, shares = row.cells
    values: dict[str, Cell] = {
        "released": released,
        "mixes_left": None if mixes_left == NO_LIMIT else mixes_left,
        "epsilon": None if epsilon == UNBOUNDED else epsilon,
        "epsilon_left": None if epsilon_left == NO_LIMIT else epsilon_left,
        "shares": shares,
    }
    return BudgetView.model_validate({"device": row.key, **values})


def _or(value: float | None, text: str) -> Any:
    return text if value is None else value


def bounty_verdict(bounties: Sequence[BountyView], budgets: Sequence[Budget | BudgetView]) -> str:
    """Return which share of the supplements mixes and noise fill, and why no mix does."""
    count = sum(bounty.count for bounty in bounties)
    mixes, noise = (
        sum(getattr(bounty, name) for bounty in bounties) for name in ("received", "noise")
    )
    numbers = totals_in_words(totals(bounties))
    if mixes:
        of_noise = f", noise {_percent(noise, count)}" if noise else ""
        return f"mixes fill {_percent(mixes, count)}{of_noise}; {numbers}"
    is_open = any(bounty.status == "open" for bounty in bounties)
    filled = "noise only" if noise else "no mix yet" if is_open else "nothing fills the supplements"
    why = _why_no_mix(bounties, budgets)
    return f"{filled}: {why}; {numbers}" if why else f"{filled}; {numbers}"


def _why_no_mix(bounties: Sequence[BountyView], budgets: Sequence[Budget | BudgetView]) -> str:
    """Return why no mix came, as far as devices said so; empty where they did not."""
    if not any(bounty.mixes for bounty in bounties):
        return "no device requests mixes"
    if not budgets:
        return ""
    sharing = [budget for budget in budgets if budget.shares]
    if not sharing:
        return "no device may give mixes; to allow it: share_mixes = true on the device"
    if all(budget.mixes_left == 0 or _is_spent(budget) for budget in sharing):
        return "the devices that may give mixes have used up their budgets"
    return "" if any(bounty.offered for bounty in bounties) else "no device has offered mixes"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.0f} %"


def _is_spent(budget: Budget | BudgetView) -> bool:
    return budget.epsilon_left is not None and budget.epsilon_left <= 0


def totals(bounties: Iterable[Bounty | BountyView]) -> dict[str, int]:
    """Return how many bounties there are of each status."""
    counts = Counter(bounty.status for bounty in bounties)
    return {status: counts[status] for status in STATUSES}


def totals_in_words(counts: Mapping[str, int]) -> str:
    """Return numbers of bounties by status, such as ``12 open, 3 closed``."""
    parts = [f"{counts[status]} {status}" for status in STATUSES if counts.get(status)]
    return ", ".join(parts) or "none"
