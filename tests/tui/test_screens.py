"""Snapshots of what the recorded runs do not have: other methods, a filter, a frozen display."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgefed.events.feed_update import FeedUpdate
from edgefed.events.snapshot import Snapshot
from edgefed.tui.app import Dashboard
from edgefed.tui.screens.registry import ScreenName
from tests.tui.samples import (
    RecordingControl,
    ago,
    dashboard,
    fine,
    mixing,
    round_views,
    run_view,
    sharing,
    snapshot,
    supplementing,
)

LARGE, SMALL = (120, 36), (80, 24)
Compare = Callable[..., bool]

BROKER_LOST = FeedUpdate(
    snapshot=snapshot(),
    broker=False,
    coordinator=True,
    problem="Broker unreachable: connection refused; next try in 4 s.",
    since=ago(12),
)
COORDINATOR_LOST = FeedUpdate(snapshot=None, broker=True, coordinator=False)


def watched(*updates: FeedUpdate, **settings: Any) -> Dashboard:
    return dashboard(*updates, control=RecordingControl(), **settings)


def test_no_run_yet(snap_compare: Compare) -> None:
    assert snap_compare(watched(fine(Snapshot(fleet="plant-a"))), terminal_size=SMALL)


def test_broker_lost(snap_compare: Compare) -> None:
    assert snap_compare(watched(BROKER_LOST), terminal_size=SMALL)


def test_broker_lost_over_the_table(snap_compare: Compare) -> None:
    assert snap_compare(watched(BROKER_LOST, screen="devices"), terminal_size=SMALL)


def test_no_line_stands_beside_the_one_of_a_small_window(snap_compare: Compare) -> None:
    assert snap_compare(watched(BROKER_LOST), terminal_size=(70, 18))


def test_coordinator_never_answered_over_the_table(snap_compare: Compare) -> None:
    assert snap_compare(watched(COORDINATOR_LOST, screen="devices"), terminal_size=SMALL)


def test_coordinator_never_answered(snap_compare: Compare) -> None:
    assert snap_compare(watched(COORDINATOR_LOST), terminal_size=SMALL)


def test_paused_run(snap_compare: Compare) -> None:
    paused = fine(snapshot(run=run_view(status="paused")))
    assert snap_compare(watched(paused), terminal_size=SMALL)


def test_finished_run(snap_compare: Compare) -> None:
    ended = run_view(status="finished", phase="done", round=50, reason="all rounds done")
    assert snap_compare(watched(fine(snapshot(run=ended, rounds=round_views(50)))),
                        terminal_size=LARGE)  # fmt: skip


def test_other_curve(snap_compare: Compare) -> None:
    assert snap_compare(watched(), terminal_size=SMALL, press=["l"])


def test_frozen(snap_compare: Compare) -> None:
    assert snap_compare(watched(), terminal_size=SMALL, press=["space"])


def test_read_only(snap_compare: Compare) -> None:
    assert snap_compare(dashboard(), terminal_size=SMALL)


def test_letters_for_symbols(snap_compare: Compare) -> None:
    assert snap_compare(watched(letters=True), terminal_size=LARGE)


def test_filtered_devices(snap_compare: Compare) -> None:
    keys = ["slash", *"state:train", "enter"]
    assert snap_compare(watched(screen="devices"), terminal_size=SMALL, press=keys)


def test_window_too_small(snap_compare: Compare) -> None:
    assert snap_compare(watched(), terminal_size=(79, 19))


@pytest.mark.parametrize("size", [LARGE, SMALL, (170, 36)], ids=["large", "small", "wide"])
@pytest.mark.parametrize("screen", ["overview", "devices"])
def test_devices_with_supplements(
    snap_compare: Compare, screen: ScreenName, size: tuple[int, int]
) -> None:
    assert snap_compare(watched(fine(supplementing()), screen=screen), terminal_size=size)


@pytest.mark.parametrize("size", [LARGE, SMALL, (150, 36)], ids=["large", "small", "wide"])
@pytest.mark.parametrize("screen", ["overview", "devices"])
def test_devices_that_share_averages(
    snap_compare: Compare, screen: ScreenName, size: tuple[int, int]
) -> None:
    assert snap_compare(watched(fine(sharing()), screen=screen), terminal_size=size)


@pytest.mark.parametrize("size", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("screen", ["overview", "devices"])
def test_devices_with_experts(
    snap_compare: Compare, screen: ScreenName, size: tuple[int, int]
) -> None:
    assert snap_compare(
        watched(fine(mixing(states={1: "dead"})), screen=screen), terminal_size=size
    )


def test_many_experts(snap_compare: Compare) -> None:
    many = fine(mixing(experts=24, states={0: "collapsed", 1: "dead", 2: "dead"}))
    assert snap_compare(watched(many, screen="experts"), terminal_size=SMALL)
