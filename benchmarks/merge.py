"""Merging updates of 11 million floats: order-independent, against memcpy and stack-and-mean.

Eight updates are merged as on the coordinator, one at a time into an ``ExactMean``. GB/s counts the
updates' float32 bytes. One thread, CPU time. The variants alternate, so that a busy machine slows
all of them. The ratio is to stack-and-mean, the obvious implementation.

    python -m benchmarks.merge [--values 11000000] [--updates 8] [--repeats 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from edgefed.learn.aggregation.exact_mean import ExactMean
from edgefed.learn.base.processors import set_threads
from edgefed.learn.base.types import Array

Updates = Sequence[Array]


def exact(updates: Updates) -> Array:
    """Merge on the integer grid, with the weights 1, 2, 3 and so on."""
    weights = range(1, len(updates) + 1)
    mean = ExactMean({"w": updates[0]}, sum(weights))
    for update, weight in zip(updates, weights, strict=True):
        mean.add({"w": update}, weight)
    return mean.mean()["w"]


def stack(updates: Updates) -> Array:
    """Stack all updates and take the weighted mean."""
    weights = np.arange(1, len(updates) + 1, dtype=np.float32)
    stacked = np.stack(updates)
    return np.asarray((stacked * weights[:, None]).sum(axis=0) / weights.sum())


def copy(updates: Updates) -> Array:
    """Copy each update over the last: the memory's own speed."""
    target = np.empty_like(updates[0])
    for update in updates:
        np.copyto(target, update)
    return target


VARIANTS: dict[str, Callable[[Updates], Array]] = {"exact": exact, "stack": stack, "memcpy": copy}


def measure(updates: Updates, repeats: int) -> dict[str, float]:
    """Return the median GB/s of each variant."""
    size = sum(update.nbytes for update in updates) / 1e9
    speeds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(repeats):
        for name, variant in VARIANTS.items():
            began = time.process_time()
            variant(updates)
            speeds[name].append(size / (time.process_time() - began))
    return {name: statistics.median(values) for name, values in speeds.items()}


def same_in_any_order(updates: Updates) -> bool:
    """Whether the exact mean has the same bits when the updates come the other way round."""
    weights = list(range(1, len(updates) + 1))
    means = []
    for order in (range(len(updates)), reversed(range(len(updates)))):
        mean = ExactMean({"w": updates[0]}, sum(weights))
        for k in order:
            mean.add({"w": updates[k]}, weights[k])
        means.append(mean.mean()["w"].tobytes())
    return means[0] == means[1]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.merge", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--values", type=int, default=11_000_000)
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    set_threads(1)
    rng = np.random.default_rng(1)
    updates = [
        rng.standard_normal(arguments.values, dtype=np.float32) * np.float32(0.01)
        for _ in range(arguments.updates)
    ]
    speeds = measure(updates, arguments.repeats)
    same = same_in_any_order(updates)
    if arguments.json:
        ratio = speeds["exact"] / speeds["stack"]
        print(json.dumps({"gb_per_s": speeds, "ratio_to_stack": ratio, "order_independent": same}))
        return
    print(f"{'':<10}{'GB/s':>8}{'x stack':>10}{'x memcpy':>10}")
    for name, speed in speeds.items():
        ratios = f"{speed / speeds['stack']:>10.2f}{speed / speeds['memcpy']:>10.2f}"
        print(f"{name:<10}{speed:>8.2f}{ratios}")
    print(f"exact gives the same bits in either order: {same}")


if __name__ == "__main__":
    main()
