"""The workload as a plain loop over clients on one thread; prints each round's start as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from benchmarks.peers.work import CLIENTS, COHORT, epoch, lenet, read


def main() -> None:
    """Run: the data's path, and the number of rounds."""
    torch.set_num_threads(1)
    inputs, labels = read(Path(sys.argv[1]))
    model = lenet()
    weights = {name: part.clone() for name, part in model.state_dict().items()}
    stamps = [time.monotonic()]
    for _ in range(int(sys.argv[2])):
        total = {name: torch.zeros_like(part) for name, part in weights.items()}
        for client in torch.randperm(CLIENTS)[:COHORT].tolist():
            model.load_state_dict(weights)
            epoch(model, inputs[client], labels[client])
            for name, part in model.state_dict().items():
                total[name].add_(part, alpha=1 / COHORT)
        weights = total
        stamps.append(time.monotonic())
    print(json.dumps(stamps))


if __name__ == "__main__":
    main()
