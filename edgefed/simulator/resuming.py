"""Go on with the one run of a folder, of which a kill has left a checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.algorithms.composed.recipe_versions import recipe_versions
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.data.base.types import Dataset
from edgefed.data.sets.given import GivenData
from edgefed.errors import UsageError
from edgefed.files.samples import Samples
from edgefed.files.writing import make_folder, write_atomic
from edgefed.process.clock import Clock
from edgefed.simulator.checkpoints import Checkpoints
from edgefed.simulator.work_folder import work_path

DATA = "data.sha256"
"""In a run's folder: the digest of its data."""

_OTHER = "choose another folder with --out (in Python: out=), or delete this one to begin anew"


def open_run(
    store: Store,
    recipe: Recipe,
    clock: Clock,
    data: str,
    checkpoints: Callable[[Path], Checkpoints],
    tell: Callable[[str], None],
) -> tuple[RunRecord, Checkpoints]:
    """Return the run of a folder and its checkpoints; a new run if it has none to go on with.

    Args:
        store: of the folder.
        recipe: of the run.
        clock: for the time of its creation.
        data: digest of the run's data.
        checkpoints: opens those in a folder of blobs.
        tell: called with the reason why a run that did not end begins anew.

    Raises:
        UsageError: ``out.recipe``, ``out.data``, ``out.code``: the folder has another run.
        StorageError: the run, or its checkpoint, cannot be read.
    """
    for record in store.runs()[:1]:
        folder = store.run_folder(record.run)
        unknown = _check(record, recipe, data, folder)
        opened = checkpoints(make_folder(work_path(folder)))
        if record.status == "finished" or (opened.latest is not None and not unknown):
            return record, opened
        opened.close()
        why = f"the sources of {unknown} are unknown" if unknown else "it has no checkpoint yet"
        tell(f"run {record.run} begins anew: {why}")
        store.delete_run(replace(record, status="failed"))
    record = create_run(store, recipe, clock)
    folder = store.run_folder(record.run)
    write_atomic(folder / DATA, data.encode())
    return record, checkpoints(make_folder(work_path(folder)))


def _check(record: RunRecord, recipe: Recipe, data: str, folder: Path) -> str:
    """Check that a run is of the same recipe, data and code.

    Return the names of code that cannot be compared.

    Raises:
        UsageError: it is not.
    """
    if changed := _changed(json.loads(record.recipe), json.loads(recipe.model_dump_json())):
        what = f"another recipe, which differs in {', '.join(changed[:3])}"
        raise _other(record, what, code="out.recipe")
    here = recipe_versions(recipe)
    if here != record.versions:
        raise _other(record, f"{record.versions}, and code changed since ({here})", code="out.code")
    path = folder / DATA
    if path.exists() and path.read_text() != data:
        raise _other(record, "other data", code="out.data")
    return ", ".join(source.name for source in here.sources if not source.digest)


def _other(record: RunRecord, what: str, *, code: str) -> UsageError:
    text = f"Run {record.run} in this folder is of {what}."
    return UsageError(text, code=code, hint=_OTHER)


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the keys with which two recipes differ."""
    names = []
    for name in before.keys() | now.keys():
        one, other = before.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            names += [f"{name}.{key}" for key in _changed(one, other)]
        elif one != other:
            names.append(name)
    return sorted(names)


def data_digest(dataset: Dataset, given: GivenData | None) -> str:
    """Return the SHA-256 of a run's samples; of images that stay in files, of their number."""
    sha = hashlib.sha256()
    for samples in (dataset.train, dataset.test):
        _add(sha.update, samples)
    for device in given.devices if given else ():
        sha.update(device.name.encode())
        for own in (device.train, device.test):
            _add(sha.update, own)
    return sha.hexdigest()


def _add(update: Callable[[Any], None], samples: Samples | None) -> None:
    for array in _arrays(samples) if samples is not None else ():
        update(f"{array.dtype} {array.shape}".encode())
        if isinstance(array, np.ndarray):
            update(np.ascontiguousarray(array).data)


def _arrays(samples: Samples) -> Iterator[Any]:
    yield samples.inputs
    yield samples.targets
    for name in sorted(samples.columns):
        yield samples.columns[name]
