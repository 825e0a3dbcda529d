"""What secure aggregation costs: seconds and bytes of a round, beside the plain one.

Agents, a coordinator and Mosquitto, each in its own process, on loopback; LeNet-5 for 28x28 inputs
and 62 classes (48,846 parameters), one batch of 20 as local training, all devices in every round,
no evaluation, fp32 both ways. The first round is excluded, because it sends the complete model.

    python -m benchmarks.secure_aggregation [--agents 10] [--rounds 10] [--grid-bits 0 16] [--json]
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.fleets.loopback import Fleet, plain_fleet
from benchmarks.round_latency import noise, steady_bytes
from benchmarks.round_latency import recipe as plain_recipe
from benchmarks.shared.harness import parser, show
from edgefed.config.recipes.recipe import Recipe


def recipe(agents: int, rounds: int, grid_bits: int | None) -> Recipe:
    """Return the work; without ``grid_bits``, in plain."""
    plain = plain_recipe("fp32", agents, rounds).model_dump()
    table = {"enabled": grid_bits is not None, "grid_bits": grid_bits or 0}
    # A seed of its own: agents keep the models of the run before, and would not be sent equal ones.
    seed = -1 if grid_bits is None else grid_bits
    return Recipe.model_validate({**plain, "seed": 2 + seed, "secure_aggregation": table})


def measure(agents: int, rounds: int, grids: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row for the plain round and one for each grid, all of one fleet in one go."""
    with (
        tempfile.TemporaryDirectory() as folder,
        plain_fleet(Path(folder), noise(agents)) as fleet,
    ):
        plain = _measured(fleet, recipe(agents, rounds, None), "plain")
        rows = [plain]
        for bits in grids:
            name = f"secure, {bits} bits" if bits else "secure"
            row = _measured(fleet, recipe(agents, rounds, bits), name)
            row |= {f"{each}_ratio": row[each] / plain[each] for each in plain if each != "how"}
            rows.append(row)
        return rows


def _measured(fleet: Fleet, body: Recipe, how: str) -> dict[str, Any]:
    """Run a recipe's rounds and return medians per round, and bytes per device."""
    record = fleet.run(body)
    up, down = steady_bytes(record, body.rounds.min_devices)
    seconds = statistics.median(row["seconds"] for row in record["history"][1:])
    return {"how": how, "seconds": seconds, "up": up, "down": down}


def main() -> None:
    """Measure and print."""
    command = parser("secure_aggregation", __doc__, agents=10, rounds=10)
    command.add_argument("--grid-bits", type=int, nargs="+", default=[0, 16])
    options = command.parse_args()
    rows = measure(options.agents, options.rounds + 1, options.grid_bits)
    show(options, rows)


if __name__ == "__main__":
    main()
