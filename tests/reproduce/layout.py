"""A folder in which every data set is there, by its name only."""

from __future__ import annotations

from pathlib import Path

FILES = (
    *("mnist/mnist.npz", "mnist/mnist_writers.npz", "cifar10/cifar10.npz"),
    *("fashion_mnist/fashion_mnist.npz", "cifar100/cifar100.npz", "femnist/train/all.json"),
    *("shakespeare/roles.jsonl", "svhn/svhn.npz"),
)


def touch_all(folder: Path) -> Path:
    """Lay it out, and return it."""
    for name in FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder
