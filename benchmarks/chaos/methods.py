"""The recipe of each method that is tried under faults, and the settings that its devices need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefed.config.recipes.recipe import Recipe, SimulationSection
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.data.base.types import Shard
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from tests.programs.seeded_agent import from_seed

DEVICES = 8


@dataclass(frozen=True)
class Method:
    """What differs from FedAvg on digits.

    Attributes:
        sections: of the recipe; they are added to the common ones.
        settings: of every agent.
    """

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)


_MIXES = {"share_mixes": "true", "least_mix_noise": "0"}

METHODS: dict[str, Method] = {
    "fedavg": Method({"wire": {"downlink": "bf16", "uplink": "int8"}}),
    "fedmix": Method(
        {
            "algorithm": {"name": "fedmix"},
            "data": {"partition": "classes", "classes_per_device": 2},
        }
    ),
    "bounties": Method(
        {
            "data": {"partition": "classes", "classes_per_device": 2, "normalize": True},
            "labels": {"count": 12, "mix_share": 0.8, "noise": "white", "wait": 600},
        },
        _MIXES,
    ),
    "fedmoe": Method(
        {
            "algorithm": {
                "name": "fedmoe",
                "experts": 4,
                "prune": 0.9,
                "table_learning_rate": 0.3,
                "server_learning_rate": 0.05,
            },
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"partition": "classes"},
        }
    ),
    "fedma": Method(
        {
            "algorithm": {"name": "fedma", "gamma": 20.0},
            "model": {"name": "mlp", "hidden": [8, 6]},
            "data": {"partition": "dirichlet"},
        }
    ),
    **{
        name: Method({"algorithm": {"name": name}, "wire": {"uplink": "int8"}})
        for name in ("fednova", "scaffold", "feddyn", "moon", "qfedavg", "ditto")
    },
    "fedrep": Method({"personal": {"preset": "fedper", "own_epochs": 2}}),
    "fedbn": Method(
        {
            "personal": {"preset": "fedbn"},
            "model": {"name": "resnet20", "norm": "batch"},
            "training": {"epochs": 5},
        }
    ),
}


def recipe(name: str, seed: int, rounds: int, number: int) -> Recipe:
    """Return a run of a method in which every device answers every exchange.

    The seed also deals out the data, so runs with other numbers have another learning rate.
    """
    common: dict[str, dict[str, Any]] = {
        "model": {"name": "mlp", "hidden": [200]},
        "data": {"name": "digits", "limit": 480},
        # Long enough that devices are killed while they train.
        "training": {"batch_size": 8, "learning_rate": 0.01 + 1e-5 * number, "epochs": 50},
        "rounds": {
            "count": rounds,
            "cohort": DEVICES,
            "deadline": 900,
            "lost_grace": "deadline",
            "quorum": 1.0,
            "min_devices": DEVICES,
            "retries": 100,
        },
        "evaluation": {"every": 0},
        "simulation": {"devices": DEVICES},
    }
    for section, keys in METHODS[name].sections.items():
        kept = {} if section == "model" else common.get(section, {})
        common[section] = {**kept, **keys}
    return Recipe.model_validate({"name": f"chaos-{name}", "seed": seed, **common})


def settings(name: str) -> dict[str, dict[str, str]]:
    """Return the settings of each agent."""
    return dict.fromkeys(device_names(DEVICES), METHODS[name].settings)


def undisturbed(plan: Recipe, folder: Path) -> RunRecord:
    """Simulate a run to which nothing happens, with the noise of the tests' recording agent."""

    def seeded(
        shards: Sequence[Shard], section: SimulationSection, tell: Callable[[str], None]
    ) -> tuple[Executor, str]:
        return Sequential(shards, private_randomness=from_seed), ""

    return Simulation(plan, folder, SystemClock(), executors=seeded).run().record
