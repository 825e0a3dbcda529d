"""The load of experts: their shares of the devices' samples, and the report of a state."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgefed.algorithms.base import State
from edgefed.algorithms.expert_merging import DIVERGENCE
from edgefed.algorithms.expert_records import PHI, TABLE, KnownMixture, mixtures_of
from edgefed.algorithms.expert_report import DeviceMixture, ExpertReport
from edgefed.algorithms.expert_settings import ExpertSettings
from edgefed.learn.mixture_table import entropy, shares_of

DEAD = 0.01
"""A load below this fraction of an equal share is a dead expert's."""

COLLAPSED = 0.99
"""A load above this fraction of all leaves the other experts unused."""


def load_of(mixtures: Mapping[str, KnownMixture], count: int) -> tuple[float, ...]:
    """Return each expert's share of the samples of the devices that answered in the last round.

    Before the first answer, all have equal ones.
    """
    last = max((each.round for each in mixtures.values()), default=0)
    now = [each for each in mixtures.values() if each.round == last]
    total = sum(each.samples for each in now)
    if not total:
        return (1 / count,) * count
    return tuple(
        sum(each.samples * each.shares[expert] for each in now) / total for expert in range(count)
    )


def expert_report(settings: ExpertSettings, state: State) -> ExpertReport:
    """Return the state of the experts."""
    mixtures, count = mixtures_of(state), settings.experts
    load = load_of(mixtures, count)
    table = shares_of(state.groups[TABLE][PHI]).tolist() if TABLE in state.groups else []
    dead = tuple(k for k, share in enumerate(load) if mixtures and share < DEAD / count)
    return ExpertReport(
        experts=count,
        round=state.round,
        condition=settings.condition,
        table=tuple(tuple(row) for row in table),
        mixtures=tuple(
            DeviceMixture(device, each.samples, each.round, each.shares, each.kept)
            for device, each in mixtures.items()
        ),
        load=load if mixtures else (),
        entropy=entropy(np.asarray(load)) if mixtures else None,
        dead=dead,
        collapsed=bool(mixtures) and count > 1 and max(load) > COLLAPSED,
        divergence=tuple(state.params.get(DIVERGENCE, ())),
    )
