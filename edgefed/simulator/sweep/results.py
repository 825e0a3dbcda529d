"""Results on disk: one file for each run, written atomically and named by its digest."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from edgefed.algorithms.composed.recipe_versions import running_versions
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.files.code_versions import UNKNOWN_VERSIONS, CodeVersions
from edgefed.files.writing import make_folder, storage_error, write_atomic
from edgefed.simulator.sweep.plan import Trial
from edgefed.terminal.units import counted


class TrialResult(BaseModel):
    """The stored result of a finished run.

    Attributes:
        case, settings: of the sweep that ran it.
        folder: the run's files, from the sweep's folder.
        history: its rounds.
        versions: of the code that ran it; unknown in files of earlier releases.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    digest: str
    case: str
    seed: int
    settings: dict[str, Any]
    recipe: dict[str, Any]
    run: str
    folder: str
    accuracy: float | None
    loss: float | None
    rounds: int
    bytes_up: int
    bytes_down: int
    seconds: float
    weights_digest: str
    history: tuple[dict[str, Any], ...]
    versions: CodeVersions = UNKNOWN_VERSIONS

    @property
    def is_of_this_release(self) -> bool:
        """Whether these versions of EdgeFed and torch ran it."""
        return self.versions.release == running_versions().release


def error_file(digest: str) -> str:
    """Return the file with reason and traceback of a failed run, from the sweep's folder."""
    return f"runs/{digest}/error.txt"


def other_releases(results: Collection[TrialResult]) -> str:
    """Return how many results are of other versions of EdgeFed or torch; nothing for none."""
    counts = Counter(result.versions.release for result in results if not result.is_of_this_release)
    shown = "; ".join(
        f"{count} of {counted(len(results), 'result')} {'is' if count == 1 else 'are'} of {release}"
        for release, count in sorted(counts.items())
    )
    return f"{shown}; code changed since: --recompute runs them again" if shown else ""


@dataclass(frozen=True)
class Results:
    """The folder of a sweep.

    It holds ``results/DIGEST.json``, ``runs/DIGEST/`` with the files of each finished run, or with
    ``error.txt`` of a failed one, ``noise/``, which runs with the same seed share, and
    ``work/DIGEST/``, which is temporary.
    """

    folder: Path

    @property
    def work(self) -> Path:
        """The folder of the state folders of the current runs."""
        return self.folder / "work"

    @property
    def noise(self) -> Path:
        """The folder of natural noise, kept from run to run."""
        return self.folder / "noise"

    def find(self, trial: Trial) -> TrialResult | None:
        """Return the result of a run; None if it has none that can be read."""
        try:
            return TrialResult.model_validate_json(self._file(trial.digest).read_bytes())
        except (OSError, ValidationError):
            return None

    def clear(self, digest: str = "") -> None:
        """Delete the files that a run has left beside its result; without a digest, that all have.

        Raises:
            StorageError: it cannot be deleted.
        """
        try:
            if (self.work / digest).exists():
                shutil.rmtree(self.work / digest)
        except OSError as error:
            raise storage_error(self.work, error) from error

    def keep(
        self, trial: Trial, record: RunRecord, folder: Path, history: Sequence[Mapping[str, Any]]
    ) -> TrialResult:
        """Take over a finished run's files and write its result, the result last.

        Raises:
            StorageError: the disk does not take it.
        """
        place = self.folder / "runs" / trial.digest
        # A result that can be read makes the run count as done: its files are in place before
        _move(folder, place, self._file(trial.digest))
        result = TrialResult(
            digest=trial.digest,
            case=trial.case.name,
            seed=trial.seed,
            settings=dict(trial.case.settings),
            recipe=trial.recipe.model_dump(mode="json"),
            run=record.run,
            folder=str(place.relative_to(self.folder)),
            accuracy=record.accuracy,
            loss=record.loss,
            rounds=record.round,
            bytes_up=record.bytes_up,
            bytes_down=record.bytes_down,
            seconds=round(record.seconds, 3),
            weights_digest=record.weights_digest,
            # A round that was tested while later ones ended has a second row in place of its first.
            history=tuple({row["round"]: dict(row) for row in history}.values()),
            versions=record.versions,
        )
        text = json.dumps(result.model_dump(mode="json"), allow_nan=False)
        write_atomic(self._file(trial.digest), text.encode())
        return result

    def keep_failure(self, digest: str, reason: str, trace: str) -> None:
        """Write why a run failed; the files of its next success take the place of this one.

        Raises:
            StorageError: the disk does not take it.
        """
        text = f"{reason}\n\n{trace}".rstrip()
        write_atomic(self.folder / error_file(digest), f"{text}\n".encode())

    def _file(self, digest: str) -> Path:
        return self.folder / "results" / f"{digest}.json"


def _move(folder: Path, place: Path, result: Path) -> None:
    """Replace a folder by a run's, and delete the result that belongs to the former files."""
    make_folder(place.parent)
    try:
        if place.exists():
            result.unlink(missing_ok=True)
            shutil.rmtree(place)
        for state in folder.glob("state-*.safetensors"):
            state.unlink()  # only for going on with a run that did not end
        shutil.move(folder, place)
    except OSError as error:
        raise storage_error(place, error) from error
