"""The recipes of tables, of a folder in which every data set is there, by its name only."""

from __future__ import annotations

from pathlib import Path

from edgefed.api.recipe_source import checked
from edgefed.config.recipes.recipe import Recipe
from edgefed.reproduce.paper_tables import find
from edgefed.reproduce.plan import Study, make_study
from edgefed.reproduce.table import Scale

FILES = (
    *("mnist/mnist.npz", "mnist/mnist_writers.npz", "cifar10/cifar10.npz"),
    *("fashion_mnist/fashion_mnist.npz", "cifar100/cifar100.npz", "femnist/train/all.json"),
    *("shakespeare/roles.jsonl", "svhn/svhn.npz", "cifar10/images/0/1.png"),
)


ENDS: tuple[Scale, ...] = ("smoke", "paper")
"""The scales at both ends; that the recipes of all scales are valid is in ``test_tables``."""


def touch_all(folder: Path) -> Path:
    """Lay it out, and return it."""
    for name in FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def study_of(name: str, scale: Scale, folder: Path) -> Study:
    """Return a table at a scale; the smallest needs no files."""
    data = None if scale == "smoke" else touch_all(folder)
    return make_study(find(name), scale, checked, data=data, scratch=folder)


def recipes(name: str, scale: Scale, folder: Path) -> dict[tuple[str, str], Recipe]:
    """Return the recipes of a table by row and the paper's column."""
    cells = study_of(name, scale, folder).cells
    return {(cell.row.label, cell.column.of): cell.case.recipe for cell in cells}
