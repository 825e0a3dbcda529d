"""Recorded screens of what the recorded runs do not have: other methods, a filter, a freeze."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.app import Dashboard
from tests.tui.drawn_screens import drawn_styles, drawn_text, recorded
from tests.tui.driving import press, resize, settle
from tests.tui.samples import (
    RecordingControl,
    dashboard,
    fine,
    mixing,
    round_views,
    run_view,
    sharing,
    supplementing,
)
from tests.tui.samples import (
    snapshot as fleet,
)
from tests.tui.screens.test_fleet import fleet_of

LARGE, SMALL = (120, 36), (80, 24)

ENDED = fine(
    fleet(
        run=run_view(status="finished", phase="done", round=50, reason="all rounds done"),
        rounds=round_views(50),
    )
)


@dataclass(frozen=True)
class Case:
    """A dashboard, the sizes in which it is drawn one after the other, and keys before that."""

    make: Callable[[], Dashboard]
    sizes: tuple[tuple[int, int], ...] = (SMALL,)
    keys: tuple[str, ...] = ()


def watched(*updates: FeedUpdate, **settings: Any) -> Callable[[], Dashboard]:
    return partial(dashboard, *updates, control=RecordingControl(), **settings)


MANY = mixing(experts=24, states={0: "collapsed", 1: "dead", 2: "dead"})

CASES: dict[str, Case] = {
    "finished-run": Case(watched(ENDED), (LARGE,)),
    "other-curve": Case(watched(), keys=("l",)),
    "letters": Case(watched(letters=True), (LARGE,)),
    "supplements": Case(watched(fine(supplementing())), ((170, 36),)),
    "supplements-table": Case(watched(fine(supplementing()), screen="devices"), ((170, 36),)),
    "averages": Case(watched(fine(sharing())), (LARGE, SMALL)),
    "averages-table": Case(watched(fine(sharing()), screen="devices"), ((150, 36),)),
    "experts": Case(watched(fine(mixing(states={1: "dead"}))), (SMALL, LARGE)),
    "experts-table": Case(watched(fine(mixing(states={1: "dead"})), screen="devices"), (LARGE,)),
    **{
        f"fleet-{count}": Case(watched(fine(fleet_of(count))), (SMALL,), ("right",))
        for count in (4, 1000)
    },
    "many-experts": Case(watched(fine(MANY), screen="experts")),
}


async def draw(case: Case) -> dict[str, str]:
    """Return the text in each size, and the styles in the last one."""
    app = case.make()
    async with app.run_test(size=case.sizes[0], notifications=True) as pilot:
        await settle(pilot)
        await press(pilot, *case.keys)
        pictures = {}
        for size in case.sizes:
            if size != case.sizes[0]:
                await resize(pilot, size)
            pictures["{}x{}".format(*size)] = drawn_text(pilot)
        return {**pictures, "styles": drawn_styles(pilot)}


@pytest.mark.parametrize("name", CASES)
def test_screens(name: str, snapshot: SnapshotAssertion) -> None:
    assert recorded(asyncio.run(draw(CASES[name])).items()) == snapshot
