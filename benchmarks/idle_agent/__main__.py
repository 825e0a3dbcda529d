"""What an idle agent takes: memory, CPU time, and bytes through its connection.

One agent, a coordinator and a broker, each a process of its own; no run is at work, and the agent
has a few samples. Memory is the proportional set size (PSS) of the agent and of the processes that
it started. The bytes are those of its connection, both ways, as a TCP proxy counts them. Afterwards
a run of four rounds shows what the first task takes that starts the training process, and the
memory after that process has ended.

    python -m benchmarks.idle_agent [--seconds 600] [--json]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil

from benchmarks.fleets.loopback import FLEET, Fleet, plain_fleet
from benchmarks.round_latency import recipe
from benchmarks.shared.harness import parser, show
from edgefed.config.values.address import Address
from tests.faults.faulty_link import FaultyLink

SETTLED = 5.0
"""Seconds from the agent's birth to the first measurement."""

IDLE = 5.0
"""Seconds after which the training process of the benchmark's agent ends."""


@contextmanager
def connected_agent(folder: Path, fleet: Fleet, link: FaultyLink) -> Iterator[psutil.Process]:
    """Run an agent whose connection goes through a proxy."""
    rng = np.random.default_rng(1)
    data = folder / "samples.npz"
    inputs = rng.standard_normal((64, 1, 28, 28), dtype=np.float32)
    np.savez(data, x=inputs, y=np.arange(64) % 62)
    address = Address(fleet.address.host, link.port)
    words = ("--broker", str(address), "--fleet", FLEET, "--state", str(folder / "agent"))
    own = ("--name", "board", "--data", f"npz:{data}", "--quiet")
    agent = subprocess.Popen(
        [sys.executable, "-m", "device_agent.commands.cli", "run", *words, *own],
        env={**os.environ, "EDGEFED_TRAINING_IDLE": str(IDLE)},
    )
    try:
        fleet.wait_for_devices(1)
        yield psutil.Process(agent.pid)
    finally:
        agent.terminate()
        agent.wait()


def figures(agent: psutil.Process, link: FaultyLink, seconds: float) -> dict[str, float]:
    """Return the figures of an agent over some seconds."""
    carried, used, began = sum(link.carried), _cpu(agent), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    processes = [agent, *agent.children(recursive=True)]
    return {
        "rss_mb": round(sum(part.memory_full_info().pss for part in processes) / 1e6, 1),
        "bytes_s": round((sum(link.carried) - carried) / passed, 1),
        "cpu_share": round((_cpu(agent) - used) / passed, 5),
    }


def _cpu(agent: psutil.Process) -> float:
    times = agent.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def measured(seconds: float) -> dict[str, float]:
    """Return the figures before and after a first task, and how long a first and a warm one take.

    Args:
        seconds: that each measurement takes.
    """
    with tempfile.TemporaryDirectory() as name, plain_fleet(Path(name), {}) as fleet:
        link = FaultyLink(fleet.address.port, down=float("inf"), up=float("inf"))
        try:
            with connected_agent(Path(name), fleet, link) as agent:
                time.sleep(SETTLED)
                idle = figures(agent, link, seconds)
                history = fleet.run(recipe("fp32", 1, 4))["history"]
                time.sleep(IDLE + SETTLED)
                after = figures(agent, link, min(seconds, SETTLED))
        finally:
            link.close()
    return {
        **idle,
        "rss_mb_after_run": after["rss_mb"],
        "first_round_s": round(history[0]["seconds"], 2),
        "warm_round_s": round(min(row["seconds"] for row in history[1:]), 3),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    options = parser("idle_agent", __doc__, seconds=600.0).parse_args(arguments)
    show(options, measured(options.seconds))


if __name__ == "__main__":
    main()
