"""One deployed round on loopback: time, bytes per client-round, memory.

Ten agents, a coordinator and Mosquitto, each in its own process; LeNet-5 for 28x28 inputs and 62
classes (48,846 parameters, 195,384 bytes); one batch of 20 as local training; all devices in every
round; no evaluation. The first round is excluded, because it sends the complete model. Flower's
figures are for the same workload on a machine of the same size (two cores; 10 nodes, subprocess
isolation); they are not measured here.

    python -m benchmarks.round_latency [--agents 10] [--rounds 30] [--json]
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fleets.loopback import Fleet, plain_fleet
from benchmarks.shared.harness import parser, show, table
from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.types import Shard, no_samples
from edgefed.files.samples import Samples
from edgefed.simulator.local_fleet import device_names

MODEL_BYTES = 195_384
FLOWER = {"median_round_s": 27.7, "models_per_client_round": 2.37, "resident_mb": 7250.0}
FLOWER_RANGE = {
    "min_round_s": 24.8,
    "max_round_s": 29.7,
    "bytes_up": 251_902,
    "bytes_down": 210_840,
}
CODECS = ("fp32", "bf16", "int8")


def recipe(codec: str, agents: int, rounds: int) -> Recipe:
    """Return the work: one step of LeNet-5 on every device, ``codec`` both ways."""
    return Recipe.model_validate(
        {
            "name": f"latency-{codec}",
            "model": {"name": "lenet5"},
            "data": {"name": "none"},
            "training": {"max_steps": 1, "batch_size": 20, "learning_rate": 0.05},
            "rounds": {"count": rounds, "min_devices": agents, "deadline": 120},
            "wire": {"downlink": codec, "uplink": codec},
            "evaluation": {"every": 0},
        }
    )


def noise(agents: int) -> dict[str, Shard]:
    """Return 20 samples of noise with random labels for each device."""
    rng = np.random.default_rng(1)
    shards = {}
    for name in device_names(agents):
        inputs = rng.standard_normal((20, 1, 28, 28), dtype=np.float32)
        samples = Samples(inputs, rng.integers(0, 62, 20))
        shards[name] = Shard(samples, no_samples((1, 28, 28)), classes=62)
    return shards


def steady_bytes(record: dict[str, Any], agents: int) -> tuple[float, float]:
    """Return the bytes that a device sends and is sent in a round, medians without the first."""
    up, down = (
        statistics.median(row[way] for row in record["history"][1:]) / agents
        for way in ("received", "sent")
    )
    return up, down


def measure(fleet: Fleet, codec: str, agents: int, rounds: int) -> dict[str, Any]:
    """Run one codec's rounds and return its row."""
    record = fleet.run(recipe(codec, agents, rounds))
    resident = {name: part.memory_info().rss / 1e6 for name, part in fleet.parts().items()}
    up, down = steady_bytes(record, agents)
    seconds = [row["seconds"] for row in record["history"][1:]]
    return {
        "codec": codec,
        "median_round_s": statistics.median(seconds),
        "min_round_s": min(seconds),
        "max_round_s": max(seconds),
        "bytes_up": round(up),
        "bytes_down": round(down),
        "models_per_client_round": (up + down) / MODEL_BYTES,
        "resident_mb": sum(resident.values()),
        "coordinator_mb": resident["coordinator"],
    }


def beside_flower(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows for people, with Flower's beside them and the ratio."""
    median = FLOWER["median_round_s"]
    own = [{**row, "flower_ratio": median / row["median_round_s"]} for row in rows]
    return table([*own, {"codec": "flower, fp32", **FLOWER, **FLOWER_RANGE}])


def main() -> None:
    """Measure and print."""
    options = parser("round_latency", __doc__, agents=10, rounds=30).parse_args()
    agents = options.agents
    with (
        tempfile.TemporaryDirectory() as folder,
        plain_fleet(Path(folder), noise(agents)) as fleet,
    ):
        rows = [measure(fleet, codec, agents, options.rounds) for codec in CODECS]
    best = {key: rows[-1][key] for key in ("median_round_s", "models_per_client_round")}
    show(options, {**best, "rows": rows, "flower": FLOWER}, beside_flower(rows))


if __name__ == "__main__":
    main()
