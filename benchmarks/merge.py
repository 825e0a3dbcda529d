"""Merging updates of 11 million floats: order-independent, against memcpy and stack-and-mean.

Eight updates are merged as on the coordinator, one at a time into an ``ExactMean``. GB/s counts the
updates' float32 bytes. One thread, CPU time. The variants alternate, so that a busy machine slows
all of them. The ratio is to stack-and-mean, the obvious implementation.

    python -m benchmarks.merge [--values 11000000] [--updates 8] [--repeats 5] [--json]
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.shared.harness import cpu_seconds, in_turn, parser, show
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
    merges = {name: partial(cpu_seconds, partial(way, updates)) for name, way in VARIANTS.items()}
    seconds = in_turn(merges, repeats)
    return {name: size / statistics.median(each) for name, each in seconds.items()}


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
    options = parser("merge", __doc__, values=11_000_000, updates=8, repeats=5).parse_args()
    set_threads(1)
    rng = np.random.default_rng(1)
    updates = [
        rng.standard_normal(options.values, dtype=np.float32) * np.float32(0.01)
        for _ in range(options.updates)
    ]
    speeds = measure(updates, options.repeats)
    same = same_in_any_order(updates)
    ratio = speeds["exact"] / speeds["stack"]
    show(options, {"gb_per_s": speeds, "ratio_to_stack": ratio, "order_independent": same})


if __name__ == "__main__":
    main()
