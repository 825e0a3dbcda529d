"""FedMA's reports about its matchings: the widths, and remarks to the operator."""

from __future__ import annotations

from edgefed.algorithms.answer import Remark
from edgefed.algorithms.base import State
from edgefed.algorithms.exchange import Exchange
from edgefed.algorithms.fedma_records import (
    DEVICES,
    GROWTH,
    LAYERS,
    NEW_COUNTS,
    STEP,
    MatchedNetwork,
    begins,
)
from edgefed.algorithms.fedma_settings import FedMaSettings
from edgefed.algorithms.growth import bound_remarks
from edgefed.algorithms.match_report import LayerMatch, MatchReport
from edgefed.units import counted


def match_report(state: State) -> MatchReport:
    """Return the widths that were found, in this round or in the last complete one."""
    network = MatchedNetwork.of(state)
    found = {each["layer"]: LayerMatch(**each) for each in state.params[LAYERS]}
    order = [group for step in network.steps for group in step.decides]
    layers = tuple(
        found.get(group, LayerMatch(group, network.local.widths[group])) for group in order
    )
    under_way = state.params[STEP] > 0
    return MatchReport(
        round=state.round + under_way,
        layers=layers,
        matched=len(state.groups[NEW_COUNTS]) if under_way else len(found),
        devices=len(state.params[DEVICES]),
        growth=state.params.get(GROWTH),
    )


def match_remarks(
    settings: FedMaSettings, before: State, exchange: Exchange, after: State
) -> tuple[Remark, ...]:
    """Return remarks to the operator about a step."""
    remarks = []
    report = match_report(after)
    missed = len(before.params[DEVICES]) - len(after.params[DEVICES])
    if before.params[STEP] and begins(exchange):
        out = "too few of its devices are there, so the round begins again with others"
        remarks.append(Remark(f"round {exchange.round}: {out}", warning=True))
    elif before.params[STEP] and missed > 0:
        out = f"{counted(missed, 'device is', 'devices are')} left out until the next round"
        remarks.append(Remark(f"round {exchange.round}: {out}", warning=True))
    new = report.layers if after.round > before.round else ()
    known = match_report(before).layers
    return (*remarks, *bound_remarks(settings, exchange.round, new, known))
