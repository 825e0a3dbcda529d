"""What secure aggregation costs: seconds and bytes of a round, beside the plain one.

Agents, a coordinator and Mosquitto, each in its own process, on loopback; LeNet-5 for 28x28 inputs
and 62 classes (48,846 parameters), one batch of 20 as local training, all devices in every round,
no evaluation, fp32 both ways. The first round is excluded, because it sends the complete model.

    python -m benchmarks.secure_aggregation [--agents 10] [--rounds 10] [--grid-bits 0 16] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.round_latency import MODEL_BYTES, write_data
from benchmarks.round_latency import recipe as plain_recipe
from broker.address import free_port
from edgefed.cli.programs.processes import Processes, running, wait_for_coordinator
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.simulator.local_fleet import device_names

FLEET = "trainers"


def recipe(agents: int, rounds: int, grid_bits: int | None) -> Recipe:
    """Return the work; without ``grid_bits``, in plain."""
    plain = plain_recipe("fp32", agents, rounds).model_dump()
    table = {"enabled": grid_bits is not None, "grid_bits": grid_bits or 0}
    # A seed of its own: agents keep the models of the run before, and would not be sent equal ones.
    seed = -1 if grid_bits is None else grid_bits
    return Recipe.model_validate({**plain, "seed": 2 + seed, "secure_aggregation": table})


def measure(agents: int, rounds: int, grids: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row for the plain round and one for each grid, all of one fleet in one go."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        processes = Processes(Address("127.0.0.1", free_port()), FLEET, folder)
        with running(processes):
            processes.start_broker("auto")
            processes.start_coordinator()
            data = write_data(folder, agents)
            for name, path in zip(device_names(agents), data, strict=True):
                processes.start_agent(name, f"npz:{path}")
            wait_for_coordinator(processes)
            plain = _measured(processes, recipe(agents, rounds, None), "plain")
            rows = [plain]
            for bits in grids:
                name = f"secure, {bits} bits" if bits else "secure"
                row = _measured(processes, recipe(agents, rounds, bits), name)
                row |= {f"{each}_ratio": row[each] / plain[each] for each in plain if each != "how"}
                rows.append(row)
            return rows


def _measured(processes: Processes, body: Recipe, how: str) -> dict[str, Any]:
    """Run a recipe's rounds and return medians per round, and bytes per device."""
    from edgefed.cli.programs.follow_run import follow
    from edgefed.process.clock import SystemClock

    client = CoordinatorClient(processes.address, FLEET)
    client.connect()
    try:
        run = client.order("run.start", recipe=body.model_dump(mode="json"))["run"]
        follow(processes.address, FLEET, run, SystemClock(), quiet=True, alive=processes.check)
        record = client.ask("run.show", run=run)
    finally:
        client.close()
    if record["status"] != "finished":
        raise SystemExit(f"the run {record['status']}: {record['reason']}")
    steady, agents = record["history"][1:], body.rounds.min_devices
    return {
        "how": how,
        "seconds": statistics.median(row["seconds"] for row in steady),
        "up": statistics.median(row["received"] for row in steady) / agents,
        "down": statistics.median(row["sent"] for row in steady) / agents,
    }


def table(rows: Sequence[dict[str, Any]], agents: int) -> str:
    """Return the rows as text."""
    lines = [
        f"{agents} agents, a model of {MODEL_BYTES:,} bytes; median round, bytes per device",
        f"{'':18}{'seconds':>10}{'ratio':>8}{'up':>12}{'ratio':>8}{'down':>12}{'ratio':>8}",
    ]
    for row in rows:
        cells = (
            f"{row[name]:>{width},.{digits}f}{row.get(f'{name}_ratio', 1.0):>7.2f}x"
            for name, width, digits in (("seconds", 10, 3), ("up", 12, 0), ("down", 12, 0))
        )
        lines.append(f"{row['how']:18}{''.join(cells)}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.secure_aggregation", description=__doc__
    )
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--grid-bits", type=int, nargs="+", default=[0, 16])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options.agents, options.rounds + 1, options.grid_bits)
    print(json.dumps(rows) if options.json else table(rows, options.agents))


if __name__ == "__main__":
    main()
