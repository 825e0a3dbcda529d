"""A roster describes many devices in few events, each of which fits into a message."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.events.base import device_columns as roster
from edgefed.events.base.device_columns import (
    MAX_CHARACTERS,
    MAX_DEVICES,
    roster_parts,
    roster_rows,
)
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import DeviceSnapshot, Snapshot
from edgefed.events.state.device_views import DeviceViews, Joined, JoinedDevice
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.wire.envelope import decode, encode
from edgefed.wire.limits import MAX_MESSAGE_BYTES
from edgefed.wire.messages import EventMessage

NOW = "2024-05-06T07:08:09.000Z"

rows = st.lists(
    st.fixed_dictionaries(
        {
            "device": st.text("abc-0", min_size=1, max_size=64),
            "samples": st.integers(0, 2**53),
            "labels": st.lists(st.integers(0, 2**53), max_size=5),
            "hardware": st.text(max_size=8),
        }
    ),
    max_size=30,
)


def devices(count: int, labels: int = 10) -> list[dict[str, Any]]:
    return [
        {"device": f"device-{number:05d}", "samples": 10, "labels": [1] * labels}
        for number in range(count)
    ]


@settings(max_examples=20, deadline=None)
@given(told=rows)
def test_every_row_comes_back_in_order(told: list[dict[str, Any]]) -> None:
    assert [row for part in roster_parts(told) for row in roster_rows(part)] == told


@pytest.mark.parametrize(("count", "labels"), [(10_000, 10), (500, 4096)])
def test_every_part_is_a_readable_line_and_a_message(count: int, labels: int) -> None:
    parts = list(roster_parts(devices(count, labels)))
    assert sum(len(part["devices"]) for part in parts) == count
    for number, part in enumerate(parts):
        event = Event(time=NOW, kind="roster", fields={**part, "joined": True})
        assert len(event.line()) < 1.5 * MAX_CHARACTERS
        flat = json.loads(event.line())
        message = EventMessage(session="0123456789abcdef", number=number, event=flat)
        payload = encode(message)
        assert len(payload) <= MAX_MESSAGE_BYTES
        assert Event.from_flat(decode(payload, EventMessage).event) == event


def test_small_rows_are_parted_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "MAX_CHARACTERS", 10**9)
    counts = [len(part["devices"]) for part in roster_parts(devices(2 * MAX_DEVICES + 1))]
    assert counts == [MAX_DEVICES, MAX_DEVICES, 1]


def test_a_roster_is_as_good_as_an_event_for_each_device() -> None:
    one, many = SnapshotBuilder(Snapshot()), SnapshotBuilder(Snapshot())
    told = devices(7)
    for row in told:
        one.apply(Event(time=NOW, kind="device", fields=row))
    for part in roster_parts(told):
        many.apply(Event(time=NOW, kind="roster", fields=part))
    assert many.snapshot() == one.snapshot()
    assert many.snapshot().devices[6].labels == (1,) * 10


BOUNTY = {"device": "device-00011", "label": 1, "count": 9, "mixes": 4}

LATER: list[tuple[str, dict[str, Any]]] = [
    ("device", {"device": "device-00001", "excluded": "its data do not fit"}),
    ("run", {"run": "r-1", "status": "running"}),
    ("device", {"device": "device-00002", "excluded": "its labels do not fit"}),
    ("device", {"device": "device-00003", "state": "train", "fraction": 0.5}),
    ("device", {"device": "device-00004", "forgotten": True}),
    ("roster", {"devices": ["device-00005", "device-00009"], "samples": [3, 4]}),
    ("labels", {"run": "r-1", "bounties": [BOUNTY], "budgets": [], "removed": [], "totals": {}}),
    ("roster", {"devices": ["device-00011", "device-00012"], "samples": [5, 6]}),
    ("roster", {"devices": ["device-00010"], "samples": [5], "state": ["lost"]}),
    ("run", {"run": "r-1", "status": "finished"}),
    ("run", {"run": "r-2", "status": "running"}),
    ("device", {"device": "device-00006", "samples": 5, "joined": True}),
]


def test_devices_that_joined_at_once_change_as_those_that_joined_alone() -> None:
    one, many = SnapshotBuilder(Snapshot()), SnapshotBuilder(Snapshot())
    for part in roster_parts(devices(8)):
        many.apply(Event(time=NOW, kind="roster", fields=part))
    for row in devices(8):
        one.apply(Event(time=NOW, kind="device", fields=row))
    excluded, open_bounties = [], []
    for number, (kind, fields) in enumerate(LATER):
        time = NOW.replace("08:09", f"08:{10 + number}")
        many.apply(Event.from_flat({"time": time, "kind": kind, **fields}))
        alone = roster_rows(fields) if kind == "roster" else [fields]
        for row in alone:
            one.apply(
                Event.from_flat({"time": time, "kind": kind.replace("roster", "device"), **row})
            )
        assert {**many.devices} == {**one.devices}
        open_bounties.append(sum(view.open_bounties for view in many.devices.values()))
        assert many.devices.excluded() == one.devices.excluded()
        excluded.append(sorted(many.devices.excluded()))
    assert many.snapshot() == one.snapshot()
    assert many.devices["device-00007"].samples == 10
    assert open_bounties[7] == 1
    assert excluded[0] == ["device-00001"] and excluded[2:6] == [["device-00002"]] * 4
    assert excluded[10] == []


def test_devices_that_nobody_looks_at_take_little_memory() -> None:
    parts, builder = list(roster_parts(devices(2000))), SnapshotBuilder(Snapshot())
    events = [Event(time=NOW, kind="roster", fields=part) for part in parts]
    events.append(Event(time=NOW, kind="run", fields={"run": "r-1", "status": "running"}))
    tracemalloc.start()
    try:
        for event in events:
            builder.apply(event)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(builder.devices) == 2000
    assert taken / 2000 < 600, "bytes a device; one that is looked at takes 2,500"


def test_columns_of_several_lengths_change_nothing() -> None:
    builder = SnapshotBuilder(Snapshot())
    broken = {"devices": ["a", "b"], "samples": [1]}
    with pytest.raises(ValueError, match="shorter"):
        builder.apply(Event(time=NOW, kind="roster", fields=broken))
    assert builder.snapshot() == Snapshot()


def test_a_view_is_made_when_it_is_kept_and_gone_when_its_device_joins_again() -> None:
    views, view = DeviceViews([]), DeviceSnapshot(device="one")
    joined = JoinedDevice(Joined(view, ("samples",)), (5,))
    views["one"] = joined
    assert (len(views), views.changed()) == (1, [])
    kept = views.kept("one")
    assert views["one"] is kept and views.changed() == [kept] and kept.samples == 5
    views["one"] = joined
    assert (len(views), views.changed()) == (1, [])
