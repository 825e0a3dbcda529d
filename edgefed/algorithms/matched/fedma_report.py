"""FedMA's reports about its matchings: the table of widths, and remarks to the operator."""

from __future__ import annotations

from edgefed.algorithms.interface.answer import Remark
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.matched.fedma_records import (
    DEVICES,
    GROWTH,
    LAYERS,
    NEW_COUNTS,
    STEP,
    MatchedNetwork,
    begins,
)
from edgefed.algorithms.matched.fedma_settings import FedMaSettings
from edgefed.algorithms.matched.growth import bound_remarks
from edgefed.algorithms.matched.matched_layers import LayerMatch, matched_table
from edgefed.events.base.method_tables import MethodTable
from edgefed.terminal.units import counted


def layers_of(state: State) -> tuple[LayerMatch, ...]:
    """Return every layer that is matched, with the result of its last matching."""
    network = MatchedNetwork.of(state)
    found = {each["layer"]: LayerMatch(**each) for each in state.params[LAYERS]}
    order = [group for step in network.steps for group in step.decides]
    widths = network.local.widths
    return tuple(found.get(group, LayerMatch(group, widths[group])) for group in order)


def layer_view(state: State) -> MethodTable:
    """Return the widths that were found, in this round or in the last complete one."""
    under_way = state.params[STEP] > 0
    return matched_table(
        layers_of(state),
        state.round + under_way,
        len(state.groups[NEW_COUNTS]) if under_way else len(state.params[LAYERS]),
        len(state.params[DEVICES]),
        state.params.get(GROWTH),
    )


def match_remarks(
    settings: FedMaSettings, before: State, exchange: Exchange, after: State
) -> tuple[Remark, ...]:
    """Return remarks to the operator about a step."""
    remarks = []
    missed = len(before.params[DEVICES]) - len(after.params[DEVICES])
    if before.params[STEP] and begins(exchange):
        out = "too few of its devices are there, so the round begins again with others"
        remarks.append(Remark(f"round {exchange.round}: {out}", warning=True))
    elif before.params[STEP] and missed > 0:
        out = f"{counted(missed, 'device is', 'devices are')} left out until the next round"
        remarks.append(Remark(f"round {exchange.round}: {out}", warning=True))
    new = layers_of(after) if after.round > before.round else ()
    return (*remarks, *bound_remarks(settings, exchange.round, new, layers_of(before)))
