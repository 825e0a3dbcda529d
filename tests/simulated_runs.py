"""Real recorded runs, made by simulations that take a moment."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands import TINY, edgefed, recipe_file


def simulate(state: Path, *words: str) -> str:
    """Run a small simulation, and return the id of its run."""
    path = recipe_file(state, TINY)
    told = edgefed("--quiet", "sim", "run", path, "--json", *words, state=state)
    assert told.code == 0, told
    return str(told.json["run"])


def events_of(state: Path, run: str) -> Path:
    """Return the event file of a simulation."""
    return state / "simulations" / "runs" / run / "events.jsonl"
