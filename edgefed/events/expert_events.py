"""Events about a mixture of experts: its load, its table, the devices' mixtures, and their fold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgefed.events.event_parts import event_parts
from edgefed.events.snapshot import ExpertRoundView, ExpertsView, MixtureView

MAX_ROUNDS = 120
"""Rounds whose load a snapshot keeps."""

MAX_CELLS = 8192
"""Shares of a table that events tell; of a larger table they tell the first rows."""

_LISTS = ("rows", "mixtures")

NO_MIXTURE: dict[str, Any] = {"mixture": (), "kept_experts": ()}
"""The fields of a device without a mixture."""

Row = tuple[float, ...]
"""The shares of a label or value, one for each expert."""


def expert_events(
    run: str, view: ExpertsView, rows: Mapping[int, Row], mixtures: Iterable[MixtureView]
) -> Iterator[dict[str, Any]]:
    """Yield the fields of ``experts`` events: one, or as many as the rows and mixtures need.

    Args:
        run: the run's id.
        view: the run's experts; its table and its rounds are not part of the events.
        rows: rows of the table that changed, by number.
        mixtures: of the devices whose mixtures changed.
    """
    told = view.model_dump(mode="json", exclude={"table", "rounds"})
    found: list[tuple[str, Any]] = [("rows", [number, row]) for number, row in rows.items()]
    found += [("mixtures", mixture.model_dump(mode="json")) for mixture in mixtures]
    parts = event_parts(found, _LISTS, len(json.dumps(told)))
    for part in parts if found else [{name: [] for name in _LISTS}]:
        yield {"run": run, **told, **part}


def told_rows(experts: int, rows: int) -> int:
    """Return the number of a table's rows in events."""
    return min(rows, max(1, MAX_CELLS // max(1, experts)))


@dataclass(frozen=True)
class ExpertChange:
    """The change in an ``experts`` event."""

    view: ExpertsView
    rows: tuple[tuple[int, Row], ...]
    mixtures: tuple[MixtureView, ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> ExpertChange:
        """Return the change in an event's fields.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or wrong.
        """
        return cls(
            ExpertsView.model_validate(fields),
            tuple((_checked(number), tuple(map(float, row))) for number, row in fields["rows"]),
            tuple(MixtureView.model_validate(row) for row in fields["mixtures"]),
        )


class ExpertTable:
    """The experts and mixtures of the current run; a change takes time for its rows only.

    Args:
        view, mixtures: those before the first event.
    """

    def __init__(self, view: ExpertsView | None, mixtures: Iterable[MixtureView]) -> None:
        self._view = view
        self._rows = dict(enumerate(view.table)) if view is not None else {}
        self._mixtures = {mixture.device: mixture for mixture in mixtures}
        self._whole: ExpertsView | None = view
        self._sorted: tuple[MixtureView, ...] | None = None

    def apply(self, change: ExpertChange) -> set[str]:
        """Apply a change and return the ids of devices whose mixtures changed."""
        before = self._view.rounds if self._view is not None else ()
        point = ExpertRoundView(
            round=change.view.round, load=change.view.load, entropy=change.view.entropy
        )
        rounds = (*(row for row in before if row.round != point.round), point)[-MAX_ROUNDS:]
        self._view = change.view.model_copy(update={"rounds": rounds})
        self._rows.update(change.rows)
        self._mixtures.update((mixture.device, mixture) for mixture in change.mixtures)
        self._whole = None
        if change.mixtures:
            self._sorted = None
        return {mixture.device for mixture in change.mixtures}

    def clear(self) -> None:
        """Forget all rows, because another run begins."""
        self._view, self._whole, self._sorted = None, None, None
        self._rows, self._mixtures = {}, {}

    def view(self) -> ExpertsView | None:
        """Return the run's experts with their table; None for an algorithm without experts."""
        if self._whole is None and self._view is not None:
            rows = range(max(self._rows, default=-1) + 1)
            table = tuple(self._rows.get(number, ()) for number in rows)
            self._whole = self._view.model_copy(update={"table": table})
        return self._whole

    def mixtures(self) -> tuple[MixtureView, ...]:
        """Return the mixtures sorted by device."""
        if self._sorted is None:
            self._sorted = tuple(self._mixtures[name] for name in sorted(self._mixtures))
        return self._sorted

    def of_device(self, device: str) -> dict[str, Any]:
        """Return the fields of a ``DeviceView`` about a device's mixture."""
        found = self._mixtures.get(device)
        if found is None:
            return NO_MIXTURE
        return {"mixture": found.shares, "kept_experts": found.kept}


def _checked(number: Any) -> int:
    if not 0 <= int(number) < MAX_CELLS:
        raise ValueError(f"a table has no row {number}")
    return int(number)


def problem_in_words(view: ExpertsView) -> str:
    """Return the problem of the experts, or nothing: one has all the load, or some have none.

    A collapsed mixture leaves all other experts without load, so that they are not named too.
    """
    if view.collapsed:
        heaviest = max(range(len(view.load)), key=lambda expert: view.load[expert], default=0)
        return f"collapsed on e{heaviest}"
    if not view.dead:
        return ""
    named = " ".join(f"e{expert}" for expert in view.dead[:6])
    return f"dead: {named}{' …' if len(view.dead) > 6 else ''}"
