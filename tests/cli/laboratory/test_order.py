"""``edgefed sim run --order``: the digest is compared, and other options are refused."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from edgefed.coordinator.storage.run_store import Store
from tests.cli.commands import edgefed

BUFFERED = ("--set", "rounds.mode=buffered", "--set", "rounds.buffer=3", "--rounds", "3")
SMALL = ("--devices", "4", "--set", "data.limit=60", "--set", "simulation.workers=1")


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a run whose rounds were buffered."""
    folder = tmp_path_factory.mktemp("order")
    assert edgefed("sim", "run", *BUFFERED, *SMALL, state=folder).code == 0
    return folder


def test_the_digest_is_compared_with_that_of_the_run(state: Path) -> None:
    first = edgefed("sim", "run", "--order", "r-0001", state=state)
    assert first.code == 0, first.err
    assert "the digest is that of r-0001" in first.err
    with closing(Store(state / "simulations", durable=False)) as store:
        (name,) = (run.run for run in store.runs() if run.run.startswith("r-0001"))
        store.save_run(replace(store.run(name), weights_digest="0" * 64))
    other = edgefed("sim", "run", "--order", "r-0001", "--json", state=state)
    assert other.code == 8
    assert json.loads(other.err.splitlines()[-1])["error"]["code"] == "order.digest"
    assert '"weights_digest"' in other.out, "the result is printed first"


@pytest.mark.parametrize("more", [("--rounds", "2"), ("--set", "seed=2"), ("recipe.toml",)])
def test_other_options_of_a_run_are_refused(state: Path, more: tuple[str, ...]) -> None:
    told = edgefed("sim", "run", *more, "--order", "r-0001", state=state)
    told.failed(2, "usage", "--order repeats a run with its own recipe")
