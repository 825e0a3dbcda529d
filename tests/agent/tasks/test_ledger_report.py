"""What ``edgefed-agent ledger`` prints of releases, of what mixes cost, and of what is left."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from device_agent.commands.cli import app
from device_agent.tasks.device_store import DeviceStore
from device_agent.tasks.release_ledger import LedgerRow, as_json, as_rows, totals_as_rows
from edgefed.sharing.label_mixes import MixSettings
from edgefed.sharing.mix_accounting import in_words
from edgefed.sharing.policy import Policy
from edgefed.sharing.releases import (
    labels_release,
    means_release,
    mixes_release,
    update_release,
)
from edgefed.sharing.update_accounting import Releases, epsilon_of
from tests.agent.replies import reply

MIXES = mixes_release(2, 100, "cam-2", {1: 3, 4: 2}, MixSettings(), 1.25)
MEANS = means_release(1, 90, 6, 15, 0.5)
LABELS = {**labels_release(0, 90, 4), "data": "0f"}
FOREIGN: Mapping[str, Any] = {"kind": "odd one\x1b", "epsilon": "much", "receiver": ["x"], "n": 1}
"""What an algorithm of another package may note."""


def ledger(*entries: Mapping[str, Any]) -> list[LedgerRow]:
    return [
        LedgerRow(number, f"time-{number}", "r-1", f"r-1-{number}", entry)
        for number, entry in enumerate(entries, 1)
    ]


def totals(policy: Policy, *entries: Mapping[str, Any]) -> dict[str, str]:
    return dict(totals_as_rows("cam-1", policy, ledger(*entries)))


def test_each_release_has_a_row() -> None:
    _, *rows = as_rows(ledger(LABELS, MEANS, MIXES))
    assert [row[:11] for row in rows] == [
        ("1", "time-1", "r-1", "0", "labels", "90", "0", "null", "none", "-", "-"),
        ("2", "time-2", "r-1", "1", "means", "90", "0.5", "null", "none", "-", "-"),
        *[("3", "time-3", "r-1", "2", "mixes", "100", "0.06275", "1.25", "epsilon", "cam-2", "5")],
    ]
    assert [json.loads(row[11]) for row in rows] == [
        {"labels": 4, "data": "0f"},
        {"entries": 6, "group": 15, "hidden": False},
        {"counts": {"1": 3, "4": 2}, "width": 4, "others": "any"},
    ]


def test_entries_of_other_packages_are_shown_without_control_characters() -> None:
    (_, first, second) = as_rows(ledger(FOREIGN, {}))
    assert first[3:] == ("-", '"odd one\\u001b"', "-", "-", "much", "-", '["x"]', "-", '{"n": 1}')
    assert second[3:] == (*("-",) * 8, "{}")
    assert as_json("cam-1", Policy(), ledger(FOREIGN, {}))["totals"]["others"] == {
        '"odd one\\u001b"': 1,
        "other": 1,
    }


def test_what_mixes_cost_and_what_is_left() -> None:
    found = totals(Policy(mix_limit=20, mix_epsilon=4.0), LABELS, MIXES, MEANS, MIXES)
    assert found == {
        "mixes released": "10",
        "mixes left": "10 of 20",
        "epsilon of mixes": "2.5",
        "epsilon left": "1.5 of 4",
        "in words": in_words(2.5),
        "not included": "2 other releases (labels 1, means 1); no finite epsilon bounds them",
    }


@pytest.mark.parametrize(
    ("policy", "mixes_left", "epsilon_left"),
    [
        (Policy(), "no limit", "no limit"),
        (Policy(mix_limit=3, mix_epsilon=1.0), "0 of 3", "0 of 1"),
        (Policy(share_mixes=False), "0 (share_mixes = false)", "no limit"),
        (Policy(share_labels=False), "0 (share_labels = false)", "no limit"),
    ],
)
def test_limits_in_words(policy: Policy, mixes_left: str, epsilon_left: str) -> None:
    found = totals(policy, MIXES)
    assert (found["mixes left"], found["epsilon left"]) == (mixes_left, epsilon_left)


def test_a_vacuous_epsilon_is_called_so() -> None:
    entry = mixes_release(2, 100, "cam-2", {1: 1}, MixSettings(), 36_716.0)
    assert "vacuous" in totals(Policy(), entry)["in words"]
    found = as_json("cam-1", Policy(mix_epsilon=40_000.0), ledger(entry))["totals"]
    assert (found["vacuous"], found["formal"]) == (True, "epsilon")
    assert (found["epsilon"], found["epsilon_left"]) == (36_716.0, 3284.0)
    assert as_json("cam-1", Policy(), ledger(MIXES))["totals"]["vacuous"] is False


def test_without_noise_there_is_no_guarantee() -> None:
    entry = mixes_release(2, 100, "cam-2", {1: 1}, MixSettings(noise_scale=0), None)
    found = totals(Policy(mix_epsilon=4.0), MIXES, entry)
    assert (found["epsilon of mixes"], found["epsilon left"]) == ("null", "0 of 4")
    assert found["in words"].startswith("no formal guarantee")
    told = as_json("cam-1", Policy(), ledger(MIXES, entry))["totals"]
    assert (told["epsilon"], told["formal"], told["vacuous"]) == (None, "none", True)


class Cli:
    """``edgefed-agent ledger`` of a device that has released some."""

    def __init__(self, folder: Path, entries: Sequence[Mapping[str, Any]]) -> None:
        self._folder = folder
        with closing(DeviceStore(folder / "agents" / "lab" / "cam-1", 2**20)) as store:
            store.commit(reply(1), {}, None, {}, entries, "2024-05-01T08:00:00.000Z")

    def __call__(self, *words: str, **variables: str) -> str:
        place = ("--no-config", "--fleet", "lab", "--state", str(self._folder), "--name", "cam-1")
        told = CliRunner().invoke(app, ["ledger", *words, *place], env=variables)
        assert told.exit_code == 0, told.stderr
        return told.stdout


def test_the_command_prints_releases_and_totals_by_the_owners_settings(tmp_path: Path) -> None:
    cli = Cli(tmp_path, [MIXES, MEANS])
    limits = {"EDGEFED_SHARE_MIXES": "true", "EDGEFED_MIX_LIMIT": "7", "EDGEFED_MIX_EPSILON": "2"}
    rows, _, lines = cli(**limits).partition("\n\n")
    assert [row.split()[4] for row in rows.splitlines()] == ["KIND", "mixes", "means"]
    assert "mixes left        2 of 7\n" in lines
    assert "epsilon left      0.75 of 2\n" in lines
    found = json.loads(cli("--json", **limits))
    assert found == {
        "releases": [
            {
                "id": number,
                "time": "2024-05-01T08:00:00.000Z",
                "run": "r-1",
                "exchange": "r-1-1",
                "entry": entry,
            }
            for number, entry in ((1, MIXES), (2, MEANS))
        ],
        "totals": {
            "mixes": 5,
            "mixes_left": 2,
            "epsilon": 1.25,
            "epsilon_left": 0.75,
            "formal": "epsilon",
            "vacuous": False,
            "in_words": in_words(1.25),
            "updates": 0,
            "update_epsilon": 0.0,
            "update_epsilon_limit": None,
            "update_delta": 1e-5,
            "others": {"means": 1},
        },
    }
    told = json.loads(cli("--json", EDGEFED_SHARE_MIXES="true"))
    assert told["totals"]["mixes_left"] is None
    assert json.loads(cli("--json"))["totals"]["mixes_left"] == 0, "no mix leaves by default"


def test_the_command_prints_an_empty_ledger(tmp_path: Path) -> None:
    cli = Cli(tmp_path, [])
    assert cli().splitlines()[0].split() == ["mixes", "released", "0"]
    found = json.loads(cli("--json"))
    assert found["releases"] == []
    assert (found["totals"]["mixes"], found["totals"]["epsilon"]) == (0, 0.0)


def test_the_command_prints_a_ledger_of_foreign_entries(tmp_path: Path) -> None:
    cli = Cli(tmp_path, [FOREIGN])
    assert "\x1b" not in cli()
    assert json.loads(cli("--json"))["releases"][0]["entry"] == FOREIGN


def test_a_ledger_that_is_read_without_the_owners_settings_says_so(tmp_path: Path) -> None:
    Cli(tmp_path, [MIXES])
    place = ("--no-config", "--fleet", "lab", "--state", str(tmp_path), "--name", "cam-1")
    told = CliRunner().invoke(app, ["ledger", *place])
    assert "no setting about mixes is read here" in told.stderr
    told = CliRunner().invoke(app, ["ledger", *place], env={"EDGEFED_SHARE_MIXES": "true"})
    assert "no setting about mixes" not in told.stderr


def test_noisy_updates_are_reckoned_together_and_apart_from_mixes() -> None:
    updates = [update_release(number, 90, 0.5, 8.0, 1e-5) for number in (1, 2, 3)]
    policy = Policy(update_epsilon=20.0, update_delta=1e-6)
    found = totals(policy, MIXES, MEANS, *updates)
    together = epsilon_of([Releases(3, 8.0)], 1e-6)
    assert found["updates released"] == "3"
    assert found["epsilon of updates"] == f"{together:.4g} at delta 1e-06, limit 20"
    assert found["epsilon of mixes"] == "1.25"
    assert found["not included"].startswith("1 other release (means 1)")
    told = as_json("cam-1", policy, ledger(MIXES, *updates))["totals"]
    assert (told["updates"], told["update_epsilon"]) == (3, together)
    assert told["others"] == {}
    assert together < sum(each["epsilon"] for each in updates) * 1.5
    _, row = as_rows(ledger(updates[0]))
    assert row[3:9] == ("1", "update", "90", "4", f"{updates[0]['epsilon']:.4g}", "epsilon-delta")


def test_an_entry_that_only_looks_like_an_update_is_another_release() -> None:
    strange = [{"kind": "update", "noise_multiplier": value} for value in (None, "1", 0.0, True)]
    told = as_json("cam-1", Policy(), ledger(*strange))["totals"]
    assert (told["updates"], told["update_epsilon"], told["others"]) == (0, 0.0, {"update": 4})
