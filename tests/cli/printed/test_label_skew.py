"""The labels that devices hold before and after supplements, in the run's numbers of labels."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.cli.printed.label_skew_output import device_table, skew_json, skew_table
from edgefed.cli.printed.label_views import LabelView
from edgefed.errors import UnknownNameError
from edgefed.events.base.bounty_tables import BountyView, bounty_table
from edgefed.events.base.method_tables import TableView
from edgefed.events.base.snapshot import DeviceSnapshot, RunView, Snapshot
from edgefed.events.methods.label_skew import LabelSkew, label_skew, largest_share, overall


def snapshot(
    *devices: DeviceSnapshot, bounties: tuple[BountyView, ...] = (), names: tuple[str, ...] = ()
) -> Snapshot:
    tables = (TableView(table=bounty_table(bounties)),)
    return Snapshot(run=RunView(run="r-1", class_names=names), devices=devices, tables=tables)


def bounty(device: str, label: int, status: Any, received: int, noise: int) -> BountyView:
    return BountyView(
        device=device,
        label=label,
        count=9,
        mixes=5,
        received=received,
        noise=noise,
        status=status,
    )


SHARING = DeviceSnapshot(device="a", labels=(6, 0, 2))
OTHER = DeviceSnapshot(device="b", labels=(0, 4))
SILENT = DeviceSnapshot(device="c", samples=7)
BOUNTIES = (
    bounty("a", 1, "closed", 3, 1),
    bounty("b", 0, "open", 2, 0),
    bounty("b", 2, "cancelled", 1, 5),
)


def test_supplements_count_once_their_bounty_is_not_open() -> None:
    found = label_skew(snapshot(SHARING, OTHER, SILENT, bounties=BOUNTIES))
    assert found == {
        "a": LabelSkew((6, 0, 2), (0, 4, 0)),
        "b": LabelSkew((0, 4, 0), (0, 0, 6)),
        "c": LabelSkew(None, (0, 0, 0)),
    }
    assert [skew.after for skew in found.values()] == [(6, 4, 2), (0, 4, 6), None]
    assert found["a"].to_json() == {
        "before": (6, 0, 2),
        "supplements": (0, 4, 0),
        "after": (6, 4, 2),
        "share_before": 0.75,
        "share_after": 0.5,
    }
    assert overall(found.values()) == LabelSkew((6, 4, 2), (0, 4, 6)), (
        "of those who share their labels"
    )


def test_labels_are_the_runs_by_class_where_both_name_them() -> None:
    renamed = DeviceSnapshot(device="a", labels=(5, 0, 3), class_names=("dog", "", "cat"))
    plain = DeviceSnapshot(device="b", labels=(1, 2))
    found = label_skew(snapshot(renamed, plain, names=("bird", "cat", "dog")))
    assert found["a"].before == (0, 3, 5)
    assert found["b"].before == (1, 2, 0)
    assert label_skew(snapshot(renamed))["a"].before == (5, 0, 3)


def test_a_bounty_of_a_device_that_is_not_there_is_shown() -> None:
    found = label_skew(snapshot(SHARING, bounties=(bounty("gone", 4, "closed", 1, 1),)))
    assert found["gone"] == LabelSkew(None, (0, 0, 0, 0, 2))
    assert found["a"].before == (6, 0, 2, 0, 0)


def test_nothing_is_no_error() -> None:
    assert label_skew(Snapshot()) == {}
    assert overall([]) == LabelSkew((), ())
    assert overall([LabelSkew(None, (0,))]).to_json()["share_before"] is None
    assert largest_share((0, 0)) is None
    assert largest_share(None) is None


def view(names: tuple[str, ...] = ("cat", "dog", "eel")) -> LabelView:
    shown = snapshot(SHARING, OTHER, SILENT, bounties=BOUNTIES, names=names)
    return LabelView(shown, {"run": "r-1", "status": "running", "recipe": {}})


def test_the_table_has_a_row_for_each_device_and_one_for_all() -> None:
    rows = [line.split(None, 5) for line in skew_table(view()).splitlines()]
    assert rows[0] == ["DEVICE", "SAMPLES", "BEFORE", "ADDED", "AFTER", "SHARE"]
    assert rows[1][:2] == ["a", "8"]
    assert rows[1][3] == "+4"
    assert rows[1][5] == "cat 75% -> cat 50%"
    assert rows[2][5] == "dog 100% -> eel 60%"
    assert rows[3] == ["c", "not", "shared", "unknown"]
    assert rows[4][0] == "all"
    assert [len(row[2]) for row in rows[1:3]] == [3, 3], "a bar for each label"


def test_many_labels_share_their_bars() -> None:
    crowd = snapshot(DeviceSnapshot(device="a", labels=tuple(range(100))))
    (_, row) = skew_table(LabelView(crowd, None)).splitlines()
    assert len(row.split()[2]) == 20
    assert row.split()[3:] == ["99", "2%"], "without supplements there is one share"


def test_one_device_has_a_row_for_each_label() -> None:
    assert [line.split() for line in device_table(view(), "a").splitlines()] == [
        ["LABEL", "BEFORE", "ADDED", "AFTER"],
        ["cat", "6", "0", "6"],
        ["dog", "0", "4", "4"],
        ["eel", "2", "0", "2"],
    ]
    assert "not shared  unknown" in device_table(view(()), "c")
    with pytest.raises(UnknownNameError, match="No device x"):
        device_table(view(), "x")


def test_json_of_one_device_has_the_overall_numbers_too() -> None:
    found = skew_json(view(), "c")
    assert [row["device"] for row in found["devices"]] == ["c"]
    assert found["devices"][0]["before"] is None
    assert found["overall"]["after"] == (6, 8, 8)
    assert (found["run"], found["labels"]) == ("r-1", ["cat", "dog", "eel"])
    with pytest.raises(UnknownNameError):
        skew_json(view(), "x")


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (None, "No run yet. Start one: edgefed run start"),
        (
            {"run": "r-1", "status": "running", "recipe": {"labels": {"supplement": 0.0}}},
            "Run r-1 gives no supplements: its recipe's [labels] table asks for none.",
        ),
        (
            {"run": "r-1", "status": "running", "recipe": {"labels": {"count": 3}}},
            "No device has asked for a label in run r-1 yet.",
        ),
        (
            {"run": "r-1", "status": "aborted", "recipe": {"labels": {"supplement": 0.5}}},
            "Run r-1 is aborted; no device asked for a label in it.",
        ),
    ],
)
def test_one_line_says_why_there_are_none(record: dict[str, Any] | None, why: str) -> None:
    assert LabelView(Snapshot(), record).why_none == why
