"""What many virtual devices cost, and what checkpoints do: CPU time, seconds and memory.

A start is the CPU time of a new process, imports included, until the first round begins: a
multinomial logistic regression on 64 inputs, 10 samples a device from an NPZ file of generated
data, a cohort of 10. A first process decodes the file, and a second one, whose figures end in
``_again``, maps what the first one kept. Memory is the highest resident of the process, with the
pages of mapped files, and at the end that of its own, without them. Checkpoints are compared in one
process, in turn: rounds of a small model with and without ``out``. With several numbers of devices,
straight lines through the figures tell what a device adds.

With ``--computed``, the costs of a round of connected devices up to a million are computed
(``computed.py``).

    python -m benchmarks.scale [--devices 1000 10000 100000] [--rounds 5] [--repeats 5] [--json]
    python -m benchmarks.scale --computed [--uplink fp32] [--reply-ms 3.7] [--site 1000]
        [--sum-bytes 5.0] [--json]
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from argparse import SUPPRESS, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
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
        "data": {"name": "npz", "path": data, "partition": "iid", "max_bytes": 2**33},
        "rounds": {"count": rounds, "cohort": 10},
        "simulation": {"devices": devices, "engine": "sequential"},
    }
    edgefed.simulate(recipe, on_event=on_event)
    cpu, begun = moments["round"]
    return {
        f"start_cpu_s_{devices}": cpu,
        f"round_s_{devices}": (time.perf_counter() - begun) / rounds,
        f"rss_mb_{devices}": _memory_mb("VmHWM"),
        f"own_mb_{devices}": _memory_mb("RssAnon"),
    }


def _memory_mb(name: str) -> float:
    """Return a size of this process's memory by its name in ``/proc/PID/status``."""
    # getrusage would tell the highest of the process that started this one, if that is higher.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


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


def measured(devices: int, rounds: int) -> dict[str, float]:
    """Return the figures of a simulation in a process of its own, and again in another."""
    words = ["--devices", str(devices), "--rounds", str(rounds)]
    with tempfile.TemporaryDirectory() as folder:
        data = make_data(Path(folder, "data.npz"), devices)
        once, again = (
            json.loads(printed_by("scale", *words, "--data", str(data))) for _ in range(2)
        )
        return {**once, **{f"{name}_again": value for name, value in again.items()}}


def growth(figures: Mapping[str, float], sizes: Sequence[int]) -> dict[str, float]:
    """Return what each device adds to a figure: the slopes of straight lines through all sizes."""
    import numpy as np

    units = {"start_cpu_s": 1e6, "round_s": 1e6, "rss_mb": 1024.0}
    named = {"start_cpu_s": "start_cpu_us", "round_s": "round_us", "rss_mb": "rss_kb"}
    slopes = {
        name: np.polyfit(sizes, [figures[f"{name}_{size}"] for size in sizes], 1)[0]
        for name in (units if len(sizes) > 1 else ())
    }
    return {f"{named[name]}_a_device": float(units[name] * slopes[name]) for name in slopes}


def show_computed(chosen: Namespace) -> None:
    """Print the bytes of a task and the table that is computed from them."""
    from benchmarks.scale.computed import SIZES, row, task_bytes

    task = task_bytes(chosen.uplink)
    costs = (task, chosen.reply_ms, chosen.site, chosen.sum_bytes)
    rows = [row(devices, *costs) for devices in SIZES]
    show(chosen, {"bytes of a task": asdict(task), "computed": rows})


def main() -> None:
    """Measure both, or compute, and print the figures."""
    options = parser(
        *("scale", __doc__),
        rounds=5,
        repeats=5,
        uplink="fp32",
        reply_ms=3.7,
        site=1000,
        sum_bytes=5.0,
    )
    options.add_argument("--devices", type=int, nargs="+", default=[100_000])
    options.add_argument("--computed", action="store_true", help="compute connected fleets")
    options.add_argument("--data", help=SUPPRESS)
    chosen = options.parse_args()
    if chosen.data:
        print(json.dumps(started(chosen.data, chosen.devices[0], chosen.rounds)))
        return
    if chosen.computed:
        show_computed(chosen)
        return
    figures: dict[str, float] = {}
    for devices in chosen.devices:
        figures |= measured(devices, chosen.rounds)
    figures |= growth(figures, chosen.devices)
    ways = {way: partial(rounds_per_second, out=way == "out") for way in ("plain", "out")}
    turns = in_turn(ways, chosen.repeats, warm=1)
    figures |= {f"rounds_per_s_{way}": statistics.median(turns[way]) for way in ways}
    figures["checkpoint_ratio"] = median_ratio(turns["out"], turns["plain"])
    show(chosen, figures)


if __name__ == "__main__":
    main()
