"""What many virtual devices cost, and what checkpoints do: CPU time, seconds and memory.

A start is the CPU time of a new process, imports included, until the first round begins: a
multinomial logistic regression on 64 inputs, 10 samples a device from an NPZ file of generated
data, a cohort of 10. Memory is the highest resident of that process. Checkpoints are compared in
one process, in turn: rounds of a small model with and without ``out``.

    python -m benchmarks.scale [--devices 100000] [--rounds 5] [--repeats 5] [--json]
"""

from __future__ import annotations

import json
import resource
import statistics
import tempfile
import time
from argparse import SUPPRESS
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.shared.harness import in_turn, median_ratio, parser, printed_by, show

SMALL: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": [32]},
    "rounds": {"count": 300, "cohort": 4},
    "wire": {"uplink": "int8"},
    "evaluation": {"every": 0},
    "simulation": {"devices": 20, "engine": "sequential"},
}


def make_data(path: Path, devices: int) -> Path:
    """Write ten samples for each device, with labels of a linear model."""
    import numpy as np

    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((10 * devices, 64), dtype=np.float32)
    labels = (inputs @ rng.standard_normal((64, 10), dtype=np.float32)).argmax(1)
    np.savez(path, x_train=inputs, y_train=labels, x_test=inputs[:500], y_test=labels[:500])
    return path


def started(data: str, devices: int, rounds: int) -> dict[str, float]:
    """Run this process's simulation and return its figures."""
    import edgefed

    moments: dict[str, tuple[float, float]] = {}

    def on_event(event: Any) -> None:
        moments.setdefault(event.kind, (time.process_time(), time.perf_counter()))

    recipe = {
        "model": {"name": "mlp", "hidden": []},
        "data": {"name": "npz", "path": data, "partition": "iid"},
        "rounds": {"count": rounds, "cohort": 10},
        "simulation": {"devices": devices, "engine": "sequential"},
    }
    edgefed.simulate(recipe, on_event=on_event)
    cpu, begun = moments["round"]
    return {
        f"start_cpu_s_{devices}": cpu,
        f"round_s_{devices}": (time.perf_counter() - begun) / rounds,
        f"rss_mb_{devices}": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def rounds_per_second(*, out: bool) -> float:
    """Return the rounds per second of a small simulation, from its first round on."""
    import edgefed

    begun: list[float] = []

    def on_event(event: Any) -> None:
        if event.kind == "round" and not begun:
            begun.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        kept, own = (None, folder) if out else (folder, None)
        edgefed.simulate(SMALL, on_event=on_event, folder=kept, out=own)
        return float(SMALL["rounds"]["count"]) / (time.perf_counter() - begun[0])


def main() -> None:
    """Measure both, and print the figures."""
    options = parser("scale", __doc__, devices=100_000, rounds=5, repeats=5)
    options.add_argument("--data", help=SUPPRESS)
    chosen = options.parse_args()
    if chosen.data:
        print(json.dumps(started(chosen.data, chosen.devices, chosen.rounds)))
        return
    words = ["--devices", str(chosen.devices), "--rounds", str(chosen.rounds)]
    with tempfile.TemporaryDirectory() as folder:
        data = make_data(Path(folder, "data.npz"), chosen.devices)
        figures = json.loads(printed_by("scale", *words, "--data", str(data)))
    ways = {way: partial(rounds_per_second, out=way == "out") for way in ("plain", "out")}
    measured = in_turn(ways, chosen.repeats, warm=1)
    figures |= {f"rounds_per_s_{way}": statistics.median(measured[way]) for way in ways}
    figures["checkpoint_ratio"] = median_ratio(measured["out"], measured["plain"])
    show(chosen, figures)


if __name__ == "__main__":
    main()
