"""One deployed round on loopback: time, bytes per client-round, memory.

Ten agents, a coordinator and Mosquitto, each in its own process; LeNet-5 for 28x28 inputs and 62
classes (48,846 parameters, 195,384 bytes); one batch of 20 as local training; all devices in every
round; no evaluation. The first round is excluded, because it sends the complete model. Flower's
figures are for the same workload on a machine of the same size (two cores; 10 nodes, subprocess
isolation); they are not measured here.

    python -m benchmarks.round_latency [--agents 10] [--rounds 30] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from broker.address import free_port
from edgefed.cli.programs.processes import Processes, running, wait_for_coordinator
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.simulator.local_fleet import device_names

MODEL_BYTES = 195_384
FLOWER = {"median_round_s": 27.7, "models_per_client_round": 2.37, "resident_mb": 7250.0}
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


def write_data(folder: Path, agents: int) -> list[Path]:
    """Write 20 samples of noise with random labels for each device."""
    rng = np.random.default_rng(1)
    paths = []
    for name in device_names(agents):
        path = folder / f"{name}.npz"
        inputs = rng.standard_normal((20, 1, 28, 28), dtype=np.float32)
        np.savez(path, x_train=inputs, y_train=rng.integers(0, 62, 20), classes=62)
        paths.append(path)
    return paths


def measure(codecs: Sequence[str], agents: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row a codec, all measured on one fleet in one go."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        processes = Processes(Address("127.0.0.1", free_port()), "trainers", folder)
        with running(processes):
            processes.start_broker("auto")
            processes.start_coordinator()
            data = write_data(folder, agents)
            for name, path in zip(device_names(agents), data, strict=True):
                processes.start_agent(name, f"npz:{path}")
            wait_for_coordinator(processes)
            return [one(processes, codec, agents, rounds) for codec in codecs]


def one(processes: Processes, codec: str, agents: int, rounds: int) -> dict[str, Any]:
    """Run one codec's rounds and return its row."""
    from edgefed.cli.programs.follow_run import follow
    from edgefed.process.clock import SystemClock

    client = CoordinatorClient(processes.address, "trainers")
    client.connect()
    try:
        body = recipe(codec, agents, rounds).model_dump(mode="json")
        run = client.order("run.start", recipe=body)["run"]
        follow(processes.address, "trainers", run, SystemClock(), quiet=True, alive=processes.check)
        memory = resident(processes)
        record = client.ask("run.show", run=run)
    finally:
        client.close()
    if record["status"] != "finished":
        raise SystemExit(f"the run {record['status']}: {record['reason']}")
    steady = record["history"][1:]
    up = statistics.median(row["received"] for row in steady) / agents
    down = statistics.median(row["sent"] for row in steady) / agents
    seconds = [row["seconds"] for row in steady]
    return {
        "codec": codec,
        "median_round_s": statistics.median(seconds),
        "min_round_s": min(seconds),
        "max_round_s": max(seconds),
        "bytes_up": round(up),
        "bytes_down": round(down),
        "models_per_client_round": (up + down) / MODEL_BYTES,
        **memory,
    }


def resident(processes: Processes) -> dict[str, float]:
    """Return resident memory in MB: all parts, and the coordinator alone."""
    assert processes.coordinator is not None
    assert processes.broker is not None
    pids = [child.pid for child in processes.agents.values()]
    coordinator = psutil.Process(processes.coordinator.pid).memory_info().rss / 1e6
    others = sum(psutil.Process(pid).memory_info().rss for pid in [*pids, processes.broker.pid])
    return {"resident_mb": coordinator + others / 1e6, "coordinator_mb": coordinator}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows for people, with Flower's beside them and the ratio."""
    head = f"{'':<14}{'round s':>9}{'min':>8}{'max':>8}{'up B':>9}{'down B':>9}{'models':>8}"
    lines = [head + f"{'MB all':>8}{'MB coord':>10}{'x Flower':>10}"]
    for row in rows:
        ratio = FLOWER["median_round_s"] / row["median_round_s"]
        lines.append(
            f"edgefed {row['codec']:<6}{row['median_round_s']:>9.3f}{row['min_round_s']:>8.3f}"
            f"{row['max_round_s']:>8.3f}{row['bytes_up']:>9}{row['bytes_down']:>9}"
            f"{row['models_per_client_round']:>8.3f}{row['resident_mb']:>8.0f}"
            f"{row['coordinator_mb']:>10.0f}{ratio:>10.0f}"
        )
    lines.append(
        f"{'flower fp32':<14}{FLOWER['median_round_s']:>9.3f}{24.8:>8.1f}{29.7:>8.1f}"
        f"{251_902:>9}{210_840:>9}{FLOWER['models_per_client_round']:>8.3f}"
        f"{FLOWER['resident_mb']:>8.0f}"
    )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.round_latency",
        description=__doc__.splitlines()[0] if __doc__ else "",
    )
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = measure(CODECS, arguments.agents, arguments.rounds)
    if arguments.json:
        best = rows[-1]
        keys = ("median_round_s", "models_per_client_round")
        print(json.dumps({**{key: best[key] for key in keys}, "rows": rows, "flower": FLOWER}))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
