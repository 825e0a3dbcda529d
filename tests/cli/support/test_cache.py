"""``edgefed cache``: what is listed and removed, and what stays."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import numpy as np
import pytest

from edgefed.natural_noise.cache import NoiseCache
from tests.cli.commands import TINY, edgefed, recipe_file

DAY = 24 * 3600


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state folder: a run with a cached data set, and a device's natural noise."""
    images = np.random.default_rng(1).integers(0, 255, (2000, 28, 28), np.uint8)
    np.savez(tmp_path / "set.npz", x=images, y=np.arange(2000) % 10)
    text = TINY.replace('name = "digits"', f'name = "npz"\npath = "{tmp_path / "set.npz"}"')
    told = edgefed("sim", "run", recipe_file(tmp_path, text), state=tmp_path / "state")
    assert told.code == 0, told.err
    folder = tmp_path / "state" / "agents" / "lab" / "d-1" / "noise"
    NoiseCache(folder, 2**20).samples(1, 2, (1, 32, 32), "white")
    return tmp_path / "state"


def files(state: Path, *, cached: bool) -> dict[Path, bytes]:
    """Return the files of a state folder that are in a cache, or all others."""
    return {
        path: path.read_bytes()
        for path in state.rglob("*")
        if path.is_file() and (not {"decoded", "noise"}.isdisjoint(path.parts)) == cached
    }


def test_caches_are_listed_and_removed_and_runs_stay(state: Path) -> None:
    before = files(state, cached=False)
    listed = edgefed("cache", "list", "--json", state=state).json
    assert {entry["kind"] for entry in listed} == {"decoded data", "natural noise"}
    total = sum(len(data) for data in files(state, cached=True).values())
    assert sum(entry["bytes"] for entry in listed) == total
    planned = edgefed("cache", "prune", "--dry-run", "--json", state=state).json
    assert (planned["bytes"], planned["entries"]) == (total, listed)
    assert files(state, cached=True)
    removed = edgefed("cache", "prune", "--json", state=state).json
    assert removed == {**planned, "dry_run": False}
    assert not files(state, cached=True)
    assert files(state, cached=False) == before
    assert edgefed("cache", "list", "--json", state=state).json == []


def test_what_was_used_lately_stays(state: Path) -> None:
    (noise,) = state.rglob("*.noise")
    old = noise.stat().st_mtime - 3 * DAY
    os.utime(noise, (old, old))
    told = edgefed("cache", "prune", "--unused-for", "2", "--json", state=state).json
    assert [entry["path"] for entry in told["entries"]] == [str(noise)]
    assert not noise.exists()
    assert files(state, cached=True)


def test_an_entry_that_is_being_built_stays(state: Path) -> None:
    (lock,) = state.rglob("decoded/*/lock")
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told = edgefed("cache", "prune", "--json", state=state).json
    assert [entry["kind"] for entry in told["entries"]] == ["natural noise"]
    assert lock.exists()


def test_doctor_states_the_size_of_the_folders(state: Path) -> None:
    told = edgefed("doctor", "--json", state=state)
    (disk,) = [check for check in told.json if check["name"] == "disk"]
    assert "; agents 2." in disk["text"]
    assert "simulations " in disk["text"]
