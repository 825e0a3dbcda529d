"""The load of experts, their shares of the devices' samples; its tables and remarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgefed.algorithms.experts.expert_merging import DIVERGENCE
from edgefed.algorithms.experts.expert_records import PHI, TABLE, KnownMixture, mixtures_of
from edgefed.algorithms.experts.expert_settings import ExpertSettings
from edgefed.algorithms.interface.answer import Remark
from edgefed.algorithms.interface.base import State
from edgefed.events.base.method_tables import MethodTable
from edgefed.events.methods import expert_tables as tables
from edgefed.learn.base.mixture_table import entropy, shares_of

DEAD = 0.01
"""A load below this fraction of an equal share is a dead expert's."""

COLLAPSED = 0.99
"""A load above this fraction of all leaves the other experts unused."""


@dataclass(frozen=True)
class ExpertLoad:
    """The load after a round.

    Attributes:
        load: for each expert its share of the samples of the devices that answered last; empty
            before the first answer, as all else then.
        entropy: of the load in nats; 0 where one expert has all of it. None before the first
            answer.
        dead: numbers of the experts whose load is below a hundredth of an equal share.
        collapsed: whether one of several experts has more than 99 % of the load.
    """

    load: tuple[float, ...] = ()
    entropy: float | None = None
    dead: tuple[int, ...] = ()
    collapsed: bool = False

    @classmethod
    def of(cls, mixtures: Mapping[str, KnownMixture], count: int) -> ExpertLoad:
        """Return the load that devices' mixtures result in."""
        if not mixtures:
            return cls()
        load = load_of(mixtures, count)
        return cls(
            load=load,
            entropy=entropy(np.asarray(load)),
            dead=tuple(k for k, share in enumerate(load) if share < DEAD / count),
            collapsed=count > 1 and max(load) > COLLAPSED,
        )

    @property
    def states(self) -> dict[int, str]:
        """The state of each expert that is dead or collapsed."""
        states = dict.fromkeys(self.dead, tables.DEAD)
        if self.collapsed:
            states[int(np.argmax(self.load))] = tables.COLLAPSED
        return states


def load_of(mixtures: Mapping[str, KnownMixture], count: int) -> tuple[float, ...]:
    """Return each expert's share of the samples of the devices that answered in the last round.

    Before the first answer, all have equal ones.
    """
    last = max((mixture.round for mixture in mixtures.values()), default=0)
    now = [mixture for mixture in mixtures.values() if mixture.round == last]
    total = sum(mixture.samples for mixture in now)
    if not total:
        return (1 / count,) * count
    return tuple(
        sum(mixture.samples * mixture.shares[expert] for mixture in now) / total
        for expert in range(count)
    )


def expert_view(settings: ExpertSettings, state: State) -> tuple[MethodTable, ...]:
    """Return the tables of experts, of labels or values of a column, and of devices."""
    known, count = mixtures_of(state), settings.experts
    load = ExpertLoad.of(known, count)
    mixtures = [
        tables.mixture_row(device, mixture.samples, mixture.round, mixture.shares, mixture.kept)
        for device, mixture in known.items()
    ]
    shown = [
        tables.load_table(
            count,
            state.round,
            load.load,
            load.entropy,
            load.states,
            tuple(state.params.get(DIVERGENCE, ())),
            [cells for _, cells in mixtures],
        )
    ]
    if settings.condition != tables.OF_DEVICE:
        shares = shares_of(state.groups[TABLE][PHI]).tolist() if TABLE in state.groups else []
        rows = ((str(number), row) for number, row in enumerate(shares))
        shown.append(tables.share_table(settings.condition, count, rows))
    return (*shown, tables.mixture_table(count, mixtures))


def expert_remarks(number: int, before: ExpertLoad, after: ExpertLoad) -> tuple[Remark, ...]:
    """Return a warning when experts have become unused in a round."""
    if after.collapsed and not before.collapsed:
        text = "one expert does nearly everything; the others are unused"
        return (Remark(f"round {number}: {text}", warning=True),)
    if new := sorted(set(after.dead) - set(before.dead)):
        which = ", ".join(str(expert) for expert in new)
        text = f"hardly any device uses {'experts' if len(new) > 1 else 'expert'} {which}"
        return (Remark(f"round {number}: {text}", warning=True),)
    return ()
