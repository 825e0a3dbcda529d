"""How long small runs take to start: three rounds on MNIST's size of data, again and again.

A start is the time from the call of ``edgefed.simulate`` to the beginning of its first round; it
leaves out the imports. The first start reads the data; the second, in the same process, and that in
a new process find them in the cache. The data are 60,000 + 10,000 generated images of 28x28 pixels
in a compressed NPZ file, or those of ``--data``. Each repetition begins with an empty cache; the
figures are medians.

    python -m benchmarks.small_runs [--data FILE.npz] [--repeats 3] [--json]
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from argparse import SUPPRESS
from pathlib import Path
from typing import Any

from benchmarks.shared.harness import parser, printed_by, show


def make_data(path: Path) -> Path:
    """Write images of random strokes, which compress about as well as digits do."""
    import numpy as np

    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 60_000), ("test", 10_000)):
        images = np.zeros((count, 28, 28), np.uint8)
        for _ in range(6):
            row, column = rng.integers(4, 20, (2, count))
            for step in range(5):
                shade = rng.integers(64, 256, count)
                images[np.arange(count), row + step, column] = shade
        arrays |= {f"x_{part}": images, f"y_{part}": rng.integers(0, 10, count)}
    np.savez_compressed(path, **arrays)
    return path


def runs(data: str, folder: str, count: int) -> dict[str, Any]:
    """Return the seconds of the imports, and of runs in this process: starts and whole runs."""
    begun = time.perf_counter()
    import edgefed

    simulate = edgefed.simulate
    imported = time.perf_counter() - begun
    recipe = {
        "data": {"name": "npz", "path": data, "partition": "dirichlet"},
        "rounds": {"count": 3, "cohort": 4},
        "simulation": {"devices": 20},
    }
    starts, wholes = [], []
    for _ in range(count):
        first: list[float] = []

        def on_event(event: Any, first: list[float] = first) -> None:
            if event.kind == "round" and not first:
                first.append(time.perf_counter())

        begun = time.perf_counter()
        simulate(recipe, data_folder=folder, on_event=on_event)
        wholes.append(time.perf_counter() - begun)
        starts.append(first[0] - begun)
    return {"import_s": imported, "starts": starts, "runs": wholes}


def measured(data: Path) -> dict[str, float]:
    """Return the figures of one repetition, with an empty cache at first."""
    with tempfile.TemporaryDirectory() as folder:
        same, other = (
            json.loads(printed_by("small_runs", "--data", str(data), "--work", folder, "--runs", n))
            for n in ("2", "1")
        )
    return {
        "import_s": other["import_s"],
        "first_start_s": same["starts"][0],
        "second_start_s": same["starts"][1],
        "new_process_start_s": other["starts"][0],
        "first_run_s": same["runs"][0],
        "second_run_s": same["runs"][1],
    }


def main() -> None:
    """Measure starts and whole runs, and print the figures."""
    options = parser("small_runs", __doc__, data="", repeats=3)
    options.add_argument("--work", help=SUPPRESS)
    options.add_argument("--runs", type=int, help=SUPPRESS)
    chosen = options.parse_args()
    if chosen.runs:
        print(json.dumps(runs(chosen.data, chosen.work, chosen.runs)))
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Path(chosen.data).absolute() if chosen.data else make_data(Path(folder, "data.npz"))
        rows = [measured(data) for _ in range(chosen.repeats)]
    figures = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    show(chosen, figures)


if __name__ == "__main__":
    main()
