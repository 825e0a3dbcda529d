"""The models of a device's inference program: a folder for each, and the link ``current`` to one.

A model's folder is filled under another name and renamed when the disk has all of its files. The
link is replaced by a rename. A reader that resolves the link once therefore sees a whole model,
also after a kill or a power cut at any moment. The folder of the model before stays, behind the
link ``previous``, so a reader may keep using it until the next swap.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from edgefed.errors import UnknownNameError
from edgefed.files.writing import make_folder, storage_error, sync_folder, write_atomic
from edgefed.process.lock import waiting_lock

MODELS = "models"
"""The folder, in the agent's state folder."""

DESCRIPTION = "model.json"
"""The file that describes a model, beside it."""

_OUTCOME = "outcome.json"
_OWN = ("blobs", "staging")
"""Folders beside those of models."""

Link = Literal["current", "previous"]


class ModelFolder:
    """The models of one device; several processes may use it.

    Args:
        folder: of the models; created by the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rollout(self, link: Link) -> str:
        """Return the rollout whose model a link leads to; empty for none."""
        try:
            return str((self.folder / link).readlink())
        except OSError:
            return ""

    def description(self, link: Link) -> dict[str, Any] | None:
        """Return the description of the model behind a link; None without a model."""
        return _read(self.folder / link / DESCRIPTION)

    def draft(self, name: str) -> Path:
        """Return a new folder for the files of a model that is not installed yet."""
        self.clean()
        return make_folder(self.folder / f".{name}")

    def clean(self) -> None:
        """Delete the folders that no link leads to, drafts among them."""
        with waiting_lock(self.folder), _storage_errors(self.folder):
            self._delete_others()

    def install(self, draft: Path, rollout: str, description: Mapping[str, Any]) -> None:
        """Make a draft the current model, and the current model the previous one.

        Args:
            draft: the folder with the files.
            rollout: its id, which names its folder.
            description: written beside the files.

        Raises:
            StorageError: the disk does not take it; the current model stays.
        """
        own = self.folder / rollout
        with _storage_errors(draft):
            for name in ("", *description.get("files", {}).values()):
                (draft / name).stat()  # a folder that is gone would be made anew
        write_atomic(draft / DESCRIPTION, json.dumps(dict(description), indent=1).encode())
        with waiting_lock(self.folder), _storage_errors(own):
            before = self.rollout("current")
            if before == rollout:  # it is installed already
                self._delete_others()
                return
            for path in draft.iterdir():
                _sync_file(path)
            sync_folder(draft)
            if self.rollout("previous") == rollout:
                (self.folder / "previous").unlink()
            if own.exists():  # of an installation that was killed before it had the link
                shutil.rmtree(own)
            draft.rename(own)
            sync_folder(self.folder)
            if before:
                self._link("previous", before)
            self._link("current", rollout)
            sync_folder(self.folder)
            self._delete_others()

    def roll_back(self, reason: str) -> dict[str, Any] | None:
        """Make the previous model the current one again; without one there is no current model.

        The outcome of the model's rollout is noted first, so that no repeated offer installs the
        model again.

        Args:
            reason: part of the outcome.

        Returns:
            The outcome of the last rollout; None if there never was a model.

        Raises:
            StorageError: the disk does not take it.
        """
        with waiting_lock(self.folder), _storage_errors(self.folder):
            current, previous = self.rollout("current"), self.rollout("previous")
            if current and current != previous:  # else the kill of a process interrupted a swap
                outcome = {"rollout": current, "outcome": "rolled_back", "reason": reason}
                self.note_outcome(outcome)
                if previous:
                    self._link("current", previous)
                else:
                    (self.folder / "current").unlink()
                sync_folder(self.folder)
            (self.folder / "previous").unlink(missing_ok=True)
            self._delete_others()
            return self.outcome()

    def outcome(self) -> dict[str, Any] | None:
        """Return the last noted outcome of a rollout that is not installed; None for none."""
        return _read(self.folder / _OUTCOME)

    def note_outcome(self, answer: Mapping[str, Any]) -> None:
        """Keep the outcome of a rollout across restarts.

        Raises:
            StorageError: the disk does not take it.
        """
        write_atomic(self.folder / _OUTCOME, json.dumps(dict(answer)).encode())

    def _link(self, name: Link, target: str) -> None:
        beside = self.folder / f".{name}"
        beside.unlink(missing_ok=True)
        beside.symlink_to(target)
        beside.replace(self.folder / name)

    def _delete_others(self) -> None:
        kept = {self.rollout("current"), self.rollout("previous"), *_OWN}
        for path in self.folder.iterdir():
            if path.name not in kept and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)


def require_model(folder: ModelFolder) -> dict[str, Any]:
    """Return the description of the current model.

    Raises:
        UnknownNameError: ``model.none``: there is none.
    """
    description = folder.description("current")
    if description is None:
        raise UnknownNameError(
            f"There is no model in {folder.folder}.",
            code="model.none",
            hint='set models = "auto" here; an operator then starts edgefed model rollout RUN',
        )
    return description


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error
