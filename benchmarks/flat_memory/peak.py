"""The most memory that a coordinator and an agent take for a large model, in multiples of it.

A coordinator, two agents, their training processes and Mosquitto are separate processes. A run of
a tiny model loads all code that is imported late. Then the kernel's mark of each process's highest
resident memory is reset (``/proc/PID/clear_refs``), and FedAvg with plain SGD trains the large
model for two rounds, on few samples, so that activations are small. A figure is the highest
resident memory less that before the run, over the bytes of the model's weights in fp32. ``device``
is the most that an agent and its training process take at one time, read every 5 ms.

    python -m benchmarks.flat_memory.peak [--models …] [--codecs …] [--rounds 2] [--json]
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.fleets.loopback import plain_fleet
from benchmarks.shared.harness import parser, show
from edgefed.config.recipes.recipe import Recipe
from edgefed.learn.modeling.model_building import build
from tests.faults.fleet_processes import dealt

AGENTS = 2
MODELS: dict[str, dict[str, Any]] = {
    "resnet18": {"name": "resnet18", "norm": "group"},
    "mlp-60M": {"name": "mlp", "hidden": [3872] * 5},
}
TINY: dict[str, Any] = {"name": "resnet18", "norm": "group", "channels": [4] * 4, "inner": [4] * 8}


def recipe(model: dict[str, Any], codec: str, rounds: int) -> Recipe:
    """Return a run of FedAvg with plain SGD; nothing is tested, as activations do not count."""
    return Recipe.model_validate(
        {
            "name": "peak-memory",
            "model": model,
            "data": {"name": "digits", "limit": 40},
            "training": {"batch_size": 2, "learning_rate": 0.001},
            "rounds": {"count": rounds, "cohort": AGENTS, "min_devices": AGENTS, "quorum": 1.0},
            "evaluation": {"every": 0},
            "wire": {"downlink": codec, "uplink": codec},
            "simulation": {"devices": AGENTS},
        }
    )


def model_bytes(plan: Recipe) -> int:
    """Return the bytes of a recipe's weights."""
    return build(plan.model, (1, 8, 8), 10, 0).weight_bytes


def measure(plan: Recipe) -> dict[str, Any]:
    """Run a recipe on a new fleet and return the peaks in multiples of the model."""
    tiny = recipe(TINY, plan.wire.uplink, 2)
    with (
        tempfile.TemporaryDirectory(prefix="peak-memory-") as text,
        plain_fleet(Path(text), dealt(plan)) as fleet,
    ):
        fleet.run(tiny)
        agent = fleet.parts()[next(iter(fleet.processes.agents))]
        (training,) = agent.children()
        coordinator = fleet.parts()["coordinator"]
        parts = {"coordinator": coordinator, "agent": agent, "training": training}
        before = {name: part.memory_info().rss for name, part in parts.items()}
        for part in parts.values():
            Path(f"/proc/{part.pid}/clear_refs").write_text("5")
        with most_at_once([agent, training]) as device:
            record = fleet.run(plan)
        after = {name: highest(part.pid) for name, part in parts.items()}
    size = model_bytes(plan)
    before["device"], after["device"] = before["agent"] + before["training"], max(device)
    peaks = {name: round((after[name] - before[name]) / size, 2) for name in after}
    return {
        "codec": plan.wire.uplink,
        "model_mb": round(size / 1e6, 1),
        **peaks,
        "round_s": round(record["history"][-1]["seconds"], 2),
        "digest": record["weights_digest"][:12],
    }


def highest(pid: int) -> int:
    """Return the highest resident memory of a process since the mark was reset, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@contextmanager
def most_at_once(processes: Sequence[psutil.Process]) -> Iterator[list[int]]:
    """Collect the resident memory of processes together within a block, in bytes."""
    sums: list[int] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(0.005):
            with suppress(psutil.NoSuchProcess):
                sums.append(sum(process.memory_info().rss for process in processes))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield sums
    finally:
        ended.set()
        reader.join()


def main() -> None:
    """Measure and print."""
    command = parser("flat_memory.peak", __doc__, models=MODELS, codecs=("fp32", "int8"), rounds=2)
    options = command.parse_args()
    rows = [
        {"model": name, **measure(recipe(MODELS[name], codec, options.rounds))}
        for name in options.models
        for codec in options.codecs
    ]
    show(options, rows)


if __name__ == "__main__":
    main()
