"""A synthetic table on scikit-learn's digits whose runs take a moment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from edgefed.api.recipe_source import checked
from edgefed.reproduce.plan import Study, make_study
from edgefed.reproduce.table import (
    Paper,
    PaperColumn,
    PaperRow,
    PaperTable,
    Published,
    Scaled,
    Settings,
    read_claim,
)

SETUP: Settings = {
    "model.name": "mlp",
    "model.hidden": [16],
    "data.name": "digits",
    "data.limit": 100,
    "data.partition": "iid",
    "training.learning_rate": 0.5,
    "rounds.count": 2,
    "simulation.devices": 2,
    "simulation.workers": 1,
}
PLAIN = PaperRow("FedAvg", {"algorithm.name": "fedavg"})
HELD = PaperRow("FedProx", {"algorithm.name": "fedprox"})
ABSENT = PaperRow("Unheard of", {"algorithm.name": "unheard-of"})
FEW = PaperColumn("digits, E = 1", "E = 1", SETUP, {"training.epochs": 1}, target=0.05)
MANY = PaperColumn(
    "digits, E = 3",
    "E = 10",
    SETUP,
    {"training.epochs": 3},
    {"FedProx": {"algorithm.mu": 0.1}},
    target=1.0,
)
CLAIMS = ("FedAvg > FedProx", "FedAvg: E = 10 > E = 1")


def table(*rows: PaperRow, **scaled: Any) -> PaperTable:
    """Return the table with some rows, at one scale."""
    shown = Scaled((FEW, MANY), (1, 2), "a moment", {"Ensemble": "too dear"})
    return PaperTable(
        name="tiny-table1",
        title="a table for tests",
        paper=Paper("tiny", "Nobody", "Nothing", "nowhere"),
        rows=rows or (PLAIN, HELD),
        scales={"smoke": replace(shown, **scaled)},
        known="one number",
        published=(Published("FedAvg", "E = 10", 50.0, "made up"),),
        claims=tuple(read_claim(each, ("FedAvg", "FedProx")) for each in CLAIMS),
    )


def study(scratch: Path, *rows: PaperRow, seeds: tuple[int, ...] = (), **scaled: Any) -> Study:
    """Return the table ready to be run."""
    made = table(*rows, **scaled)
    return make_study(made, "smoke", checked, seeds=seeds, scratch=scratch)
