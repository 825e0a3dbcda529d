"""The result of a round for a callback, and the way for a callback to end a run early."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.trackers.base import Row, numbers
from edgefed.errors import EdgeFedError
from edgefed.events.base.method_tables import SYSTEM
from edgefed.learn.base.types import Tensors

ACCOUNTS = (
    "replies",
    "late",
    "slowest",
    "slowest_seconds",
    "seconds",
    "sent",
    "received",
    "joules",
)
"""Fields of a round's row that count its work, and do not measure the model."""


class StopRun(Exception):  # noqa: N818 - an order, not an error
    """A callback raises it to end the run after this round; the model is kept."""


@dataclass(frozen=True, eq=False)
class RoundResult:
    """A finished round.

    Attributes:
        number: from 1.
        metrics: ``accuracy``, ``loss``, ``train_loss`` and other measurements of this round, by
            name.
        seconds: duration of the round.
        bytes_up: payload bytes from the devices.
        bytes_down: payload bytes to the devices.
        replies: number of merged answers.
    """

    number: int
    metrics: Mapping[str, float]
    seconds: float
    bytes_up: int
    bytes_down: int
    replies: int
    _weights: Callable[[], Tensors] = field(repr=False)

    @property
    def weights(self) -> dict[str, np.ndarray[Any, Any]]:
        """The global model after this round, by name: a copy, made at each access.

        A ``RoundResult`` that is kept keeps the weights of its round in memory.
        """
        return {name: array.copy() for name, array in self._weights().items()}


Callback = Callable[[RoundResult], bool | None]
"""Called after each round; returning ``False``, or raising ``StopRun``, ends the run."""


class Callbacks:
    """Calls callbacks after each round of a run.

    Attributes:
        controls: of the run; set before its first round.
        rows: of the finished rounds.
        error: the exception of a callback, which failed the run.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks
        self.controls: RunControls | None = None
        self.rows: list[Row] = []
        self.error: Exception | None = None

    def on_round(self, row: Row, weights: Callable[[], Tensors]) -> None:
        """Call all of them; see ``EngineDeps.on_round``.

        Raises:
            EdgeFedError: ``callback.failed``: one of them raised something.
        """
        self.rows.append(row)
        result = round_result(row, weights)
        for callback in self._callbacks:
            try:
                go_on = callback(result)
            except StopRun:
                go_on = False
            except Exception as error:
                self.error = error
                text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                raise EdgeFedError(
                    f"A callback failed after round {result.number}: {text.rstrip('.')}.",
                    code="callback.failed",
                    hint="the callback's own exception is this one's cause",
                ) from error
            if go_on is False and self.controls is not None:
                self.controls.order("finish")


def round_result(row: Row, weights: Callable[[], Tensors]) -> RoundResult:
    """Return a round's row as a callback gets it."""
    return RoundResult(
        number=row["round"],
        metrics=metrics_of(row),
        seconds=row["seconds"],
        bytes_up=row["received"],
        bytes_down=row["sent"],
        replies=row["replies"],
        _weights=weights,
    )


def metrics_of(row: Row) -> dict[str, float]:
    """Return a round's measurements, by name."""
    return {
        name: value
        for name, value in numbers(row).items()
        if name not in ACCOUNTS and not name.startswith(SYSTEM)
    }
