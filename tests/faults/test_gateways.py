"""Two sites behind gateways: whatever is killed or cut, the run ends in the flat fleet's bits."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.simulator.local_fleet import device_names
from tests.faults.fleet_processes import wait_until
from tests.faults.site_processes import SiteProcesses, sites
from tests.faults.test_kills import simulated

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

DEVICES = device_names(8)
SITES = {"gw-a": DEVICES[:4], "gw-b": DEVICES[4:]}
PARTS = ("gw-a", DEVICES[0], "coordinator", "broker-gw-b", "broker", "cut")
"""What is killed, each in a round of its own; the last is a link upstream that is cut."""

CUT_SECONDS = 3.0


def recipe(site_sums: str = "auto") -> Recipe:
    return Recipe.model_validate(
        {
            "name": "sites",
            "seed": 5,
            "data": {"classes_per_device": 2, "normalize": True},
            "model": {"name": "mlp", "hidden": [600, 600]},
            "training": {
                "epochs": 20,
                "batch_size": 8,
                "learning_rate": 0.02,
                "max_steps": 150,
            },
            "rounds": {
                "count": len(PARTS) + 1,
                "deadline": 300,
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": len(DEVICES),
                "site_sums": site_sums,
            },
            "wire": {"downlink": "bf16", "uplink": "int8"},
            "simulation": {"devices": len(DEVICES), "holdout": 0.0},
        }
    )


def break_one(home: SiteProcesses, part: str) -> None:
    if part == "cut":
        home.links["gw-b"].cut()
        time.sleep(CUT_SECONDS)
        home.links["gw-b"].restore()
    else:
        home.kill(part)
        home.start(part)


def in_round(home: SiteProcesses, run: str, number: int) -> Callable[[], bool]:
    """Whether a device trains in a round, or that round is over."""

    def trains() -> bool:
        ended = len(home.events(run, "round"))
        states = [row["state"] for row in home.devices().values()]
        return ended >= number - 1 and "train" in states

    return trains


@pytest.mark.parametrize(
    ("signed", "site_sums"), [(False, "never"), (True, "always")], ids=("open", "signed-sums")
)
def test_kills_of_every_part_leave_the_flat_run_s_bits(
    tmp_path: Path, signed: bool, site_sums: str
) -> None:
    plan = recipe(site_sums)
    with sites(tmp_path / "fleet", plan, SITES, signed=signed) as home:
        home.wait_for_devices(len(DEVICES))
        run = home.begin()
        for number, part in enumerate(PARTS, 1):
            wait_until(in_round(home, run, number), f"round {number}", home.logs)
            break_one(home, part)
        record = home.finish(run)
        assert record["status"] == "finished", home.logs()
        assert record["weights_digest"] == simulated(plan, tmp_path / "sim")


def test_a_model_and_a_sum_cross_the_link_of_a_site_once(tmp_path: Path) -> None:
    rounds = recipe("always").rounds.model_copy(update={"count": 1})
    plan = recipe().model_copy(update={"rounds": rounds})
    with sites(tmp_path, plan, SITES) as home:
        home.wait_for_devices(len(DEVICES))
        before = [list(home.links[gateway].carried) for gateway in SITES]
        record = home.finish(home.begin())
        assert record["status"] == "finished", home.logs()
        model = 4 * (64 * 600 + 600 + 600 * 600 + 600 + 600 * 10 + 10)
        for (down, up), link in zip(before, home.links.values(), strict=True):
            assert 0.3 * model < link.carried[0] - down < 0.5 * model, "as bf16, compressed"
            assert 1.0 * model < link.carried[1] - up < 1.3 * model, "4 to 5 bytes a weight"
