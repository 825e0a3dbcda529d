"""The encoding errors that a device adds to its next answer, and which of them count.

With error feedback, an answer holds the error of the one before. In buffered rounds an answer may
never be merged; its error is then not that of a merged update. It stays pending until the next
task, which names the last question whose answer was merged (``Task.merged_number``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgefed.learn.base.types import Tensors
from edgefed.wire.messages import Task
from edgefed.worker.replies import FEEDBACK

PENDING = f"{FEEDBACK}pending/"
OF = f"{FEEDBACK}number"
"""Prefix of the pending errors by role, and the group with the number of their question."""


def errors_before(task: Task, private: Mapping[str, Tensors]) -> dict[str, Tensors]:
    """Return the errors to add to the answer of a task, by ``FEEDBACK`` and role."""
    own = {name: private[name] for name in private if name.startswith(FEEDBACK)}
    of = own.pop(OF, None)
    pending = {name: own.pop(name) for name in [*own] if name.startswith(PENDING)}
    if of is None or int(of["number"]) != task.merged_number:
        return own
    merged = {FEEDBACK + name.removeprefix(PENDING): group for name, group in pending.items()}
    return {**own, **merged}


def errors_after(
    task: Task, before: Mapping[str, Tensors], dropped: Mapping[str, Tensors]
) -> dict[str, Tensors]:
    """Return the errors to keep: those before, and those of the answer, pending if need be."""
    if task.number < 0:
        return {**before, **dropped}
    pending = {PENDING + name.removeprefix(FEEDBACK): group for name, group in dropped.items()}
    of: dict[str, Tensors] = {OF: {"number": np.array(task.number, np.int64)}} if dropped else {}
    return {**before, **pending, **of}
