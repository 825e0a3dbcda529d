"""Two sites behind gateways: whatever is killed or cut, the run ends in the flat fleet's bits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.simulator.local_fleet import device_names
from tests.faults.fleet_processes import wait_until
from tests.faults.site_processes import SiteProcesses, sites
from tests.faults.test_kills import simulated

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

DEVICES = device_names(4)
SITES = {"gw-a": DEVICES[:2], "gw-b": DEVICES[2:]}
KILLS = {
    "never": (("gw-a", DEVICES[2]), ("broker-gw-b", "cut")),
    "always": (("gw-a", "broker"), ("coordinator", "broker-gw-b")),
}
"""What is killed, by ``site_sums`` and round: two parts that know little of each other.

``cut`` is a link's end.
"""

CUT_SECONDS = 1.0
WIDTH = 250


def recipe(site_sums: str, rounds: int = 2, seed: int = 5) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "sites",
            "seed": seed,
            "data": {"classes_per_device": 2, "normalize": True},
            "model": {"name": "mlp", "hidden": [WIDTH, WIDTH]},
            "training": {
                "epochs": 20,
                "batch_size": 8,
                "learning_rate": 0.02,
                "max_steps": 40,
            },
            "rounds": {
                "count": rounds,
                "cohort": len(DEVICES),  # a round waits for a device that is away when it begins
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


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteProcesses]:
    """Sites with certificates."""
    with sites(tmp_path_factory.mktemp("fleet"), recipe("never"), SITES, signed=True) as made:
        made.wait_for_devices(len(DEVICES))
        yield made


def test_a_model_and_a_sum_cross_the_link_of_a_site_once(home: SiteProcesses) -> None:
    before = [list(home.links[gateway].carried) for gateway in SITES]
    record = home.finish(home.begin(recipe("always", 1, seed=6)))
    assert record["status"] == "finished", home.logs()
    model = 4 * (64 * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH + WIDTH * 10 + 10)
    for (down, up), link in zip(before, home.links.values(), strict=True):
        assert 0.3 * model < link.carried[0] - down < 0.5 * model, "as bf16, compressed"
        assert 0.8 * model < link.carried[1] - up < 1.3 * model, "up to 5 bytes a weight"


@pytest.mark.parametrize("site_sums", KILLS)
def test_kills_of_every_part_leave_the_flat_run_s_bits(
    site_sums: str, home: SiteProcesses, tmp_path: Path
) -> None:
    plan = recipe(site_sums)
    run = home.begin(plan)
    for number, parts in enumerate(KILLS[site_sums], 1):
        wait_until(in_round(home, run, number), f"round {number}", home.logs)
        for part in parts:
            break_one(home, part)
    record = home.finish(run)
    assert record["status"] == "finished", home.logs()
    asked = {each["exchange"] for each in home.events(run, "exchange", phase="broadcast")}
    assert len(asked) == plan.rounds.count, (home.events(run, "note"), home.logs())
    assert record["weights_digest"] == simulated(plan, tmp_path), home.logs()
