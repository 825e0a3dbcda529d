"""Begin dead experts again, near the most used one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefed.algorithms.experts.expert_load import DEAD, load_of
from edgefed.algorithms.experts.expert_records import (
    MIXTURES,
    PHI,
    SEED,
    STEPS,
    TABLE,
    UNUSED,
    memory_of,
    mixtures_of,
    role,
)
from edgefed.algorithms.experts.expert_settings import ExpertSettings
from edgefed.algorithms.experts.expert_start import near
from edgefed.algorithms.interface.base import State


def reseeded(settings: ExpertSettings, before: State, after: State) -> State:
    """Return the state with experts restarted that were unused for long enough.

    Such an expert gets the most used one's weights with a little noise and its logits in the table,
    so that the two share its load, and an optimiser without memory.
    """
    # Without an answer, no expert was used or left unused
    if not settings.reseed_dead or after.params == before.params:
        return after
    load = load_of(mixtures_of(after), settings.experts)
    known = before.params.get(UNUSED, [0] * settings.experts)
    dead = [share < DEAD / settings.experts for share in load]
    unused = [rounds + 1 if is_dead else 0 for rounds, is_dead in zip(known, dead, strict=True)]
    groups, params = dict(after.groups), dict(after.params)
    steps, best = list(params[STEPS]), int(np.argmax(load))
    for expert, rounds in enumerate(unused):
        if rounds >= settings.reseed_dead:
            unused[expert] = steps[expert] = 0
            _begin_near(groups, best, expert, params[SEED], after.round)
            params[MIXTURES] = _halved(params[MIXTURES], best, expert)
    return State(after.round, groups, {**params, STEPS: steps, UNUSED: unused})


def _halved(mixtures: Mapping[str, Any], best: int, expert: int) -> dict[str, Any]:
    """Return the devices' mixtures, with the total of two experts divided equally between them.

    Otherwise devices that prune would not receive the new expert.
    """
    halved = {}
    for device, known in mixtures.items():
        shares = list(known["shares"])
        shares[best] = shares[expert] = (shares[best] + shares[expert]) / 2
        halved[device] = {**known, "shares": shares}
    return halved


def _begin_near(groups: dict[str, Any], best: int, expert: int, seed: int, number: int) -> None:
    """Put an expert near another one, in the weights and in the table."""
    groups[role(expert)] = near(groups[role(best)], seed, "reseed", number, expert)
    groups[memory_of(role(expert))] = {}
    if TABLE in groups:
        table = groups[TABLE][PHI].copy()
        table[:, expert] = table[:, best]
        groups[TABLE] = {PHI: table}
