"""Check an algorithm's answer against the reply roles of its exchange, as a coordinator does."""

from __future__ import annotations

import numpy as np

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.exchange import Exchange, ReplyRole
from edgefed.learn.base.types import Tensors
from edgefed.wire.tensors import specs_of


def check_reply(exchange: Exchange, answer: Answer) -> str:
    """Return why a coordinator rejects an answer, or nothing."""
    for role, wanted in exchange.reply_roles.items():
        if role not in answer.groups and not wanted.optional:
            return f"it lacks the role '{role}'"
    for role, group in answer.groups.items():
        if role not in exchange.reply_roles:
            return f"it has a role '{role}', which reply_roles does not name"
        problem = _role_problem(exchange.reply_roles[role], group.arrays)
        if problem:
            return f"its role '{role}' {problem}"
    if answer.samples < 1:
        return f"it rests on {answer.samples} samples"
    for name, value in answer.metrics.items():
        if not np.isfinite(value):
            return f"its metric '{name}' is {value}"
    return ""


def _role_problem(wanted: ReplyRole, arrays: Tensors) -> str:
    if wanted.tensors is not None and specs_of(arrays) != dict(wanted.tensors):
        actual, asked = specs_of(arrays), wanted.tensors
        name = next(key for key in {**asked, **actual} if actual.get(key) != asked.get(key))
        return f"has {name} as {actual.get(name, 'nothing')}, not {asked.get(name, 'nothing')}"
    for name, array in arrays.items():
        if array.dtype.kind != "f" or not array.size:
            continue
        largest = float(np.abs(array).max())
        if not largest <= wanted.largest:
            return f"has a value of {largest:.3g} in {name}, above its largest, {wanted.largest:g}"
    return ""
