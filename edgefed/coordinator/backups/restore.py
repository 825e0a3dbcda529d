"""Restore a backup: check it as a whole in a temporary folder, then move it into its place.

The present state is moved to ``STATE/replaced``, and its removed parties are merged in
(``parties``). Devices are ahead of a restored run: they have answered exchanges that it does not
know, and answer them again from disk. Therefore its next exchanges get indexes, and so ids, that
were never used: they begin at the time of the restore in milliseconds.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from pydantic import ValidationError

from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.backups.archive import (
    COORDINATOR,
    TRUST,
    Manifest,
    extract,
    read_manifest,
)
from edgefed.coordinator.backups.parties import (
    admit_only,
    later_state,
    merge_later,
    to_confirm,
)
from edgefed.coordinator.backups.snapshot import OWN_PARTIES, ROWS
from edgefed.coordinator.devices.device_pauses import DevicePauses
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.members.enrolment_store import EnrolmentStore, Party
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import OpenExchange, RunRecord
from edgefed.errors import EdgeFedError, StorageError, UnknownNameError, UsageError
from edgefed.events.base.model import UNFINISHED
from edgefed.files.writing import make_folder, storage_error, sync_folder
from edgefed.process.clock import Clock, timestamp
from edgefed.process.lock import FolderLock
from edgefed.trust.authority import AUTHORITY_FOLDER, Authority, load_authority

STAGING = ".restore"
REPLACED = "replaced"
"""Folder of the states that restores have replaced, below the state folder."""

REMADE = (AUTHORITY_FOLDER, "access")
"""The restored folder's own contents, beside ``OWN_PARTIES``."""


@dataclass
class Restoring:
    """A backup that is unpacked and brought up to date, and not yet in its place.

    Attributes:
        manifest: of the backup.
        staging: its folder, laid out like the state folder.
        state: the state folder that it goes to.
        runs: those that are not finished.
        unfinished: the ids of those that resume when the coordinator starts.
        removed: parties of the backup that were removed since.
        warnings: parts of the present state that could not be read, and runs without a readable
            one.
    """

    manifest: Manifest
    staging: Path
    state: Path
    runs: list[RunRecord] = field(default_factory=list)
    removed: list[Party] = field(default_factory=list)
    parties: list[Party] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def unfinished(self) -> list[RunRecord]:
        """The runs that go on when the coordinator starts."""
        return [run for run in self.runs if run.status in UNFINISHED]

    @property
    def trust(self) -> Path:
        """The restored folder of the fleet's certificates; missing for a fleet without."""
        return self.staging / TRUST / self.manifest.fleet

    def place(self, kind: str) -> Path:
        """Return where a part of the backup goes, ``coordinator`` or ``trust``."""
        return self.state / kind / self.manifest.fleet

    @property
    def authority(self) -> Authority | None:
        """The fleet's authority; None for a fleet without."""
        folder = self.trust / AUTHORITY_FOLDER
        return load_authority(folder) if folder.exists() else None


@contextmanager
def unpacked(path: Path, state: Path, fleet: str | None, clock: Clock) -> Iterator[Restoring]:
    """Yield a backup, unpacked beside its place; ``install`` puts it there.

    Args:
        path: of the backup.
        state: the state folder.
        fleet: the fleet that is expected; None for the one of the backup.
        clock: for timestamps.

    Raises:
        UsageError: ``restore.fleet``: it is of another fleet.
        NotAllowedError: ``state.locked``: the coordinator of this state folder runs;
            ``restore.authority``.
        StorageError: it is damaged, or the disk does not take it; nothing was changed.
    """
    manifest = read_manifest(path)
    if fleet not in (None, manifest.fleet):
        raise UsageError(
            f"{path} is a backup of fleet {manifest.fleet}, not of {fleet}.",
            code="restore.fleet",
            hint="leave --fleet out",
        )
    in_place = state / COORDINATOR / manifest.fleet
    locks = [FolderLock(in_place, "edgefed restore")]
    staging = state / STAGING
    try:
        locks.append(FolderLock(staging, "edgefed restore"))
        for left in (entry for entry in staging.iterdir() if entry.is_dir()):
            shutil.rmtree(left, ignore_errors=True)
        raw = make_folder(staging / "archive")
        extract(path, raw)
        for kind in (COORDINATOR, TRUST):
            if (raw / kind).exists():
                _move(raw / kind, make_folder(staging / kind) / manifest.fleet)
        made = Restoring(manifest, staging, state)
        _bring_up_to_date(made, clock)
        yield made
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        for lock in locks:
            lock.release()


def _bring_up_to_date(made: Restoring, clock: Clock) -> None:
    """Merge the known later changes, and renumber the runs."""
    authority = made.authority
    if authority is not None:
        later = [later_state(trust, authority, made.warnings.append) for trust in _presents(made)]
        with closing(EnrolmentStore(made.trust / AUTHORITY_FOLDER)) as store:
            before = {party.user for party in store.parties() if party.state == "enrolled"}
            merge_later(store, later, timestamp(clock.now()))
            made.parties = store.parties()
        made.removed = [
            party for party in made.parties if party.user in before and party.state == "revoked"
        ]
    folder = made.staging / COORDINATOR / made.manifest.fleet
    if folder.exists():
        made.runs = _renumber(folder, made.manifest.created, clock, made.warnings.append)
        _keep_standings(made.place(COORDINATOR), folder, made.warnings.append, clock)


def _presents(made: Restoring) -> list[Path]:
    """Return the present folder of certificates, and those that earlier restores replaced."""
    replaced = sorted((made.state / REPLACED).glob(f"*/{TRUST}/{made.manifest.fleet}"))
    return [folder for folder in (made.place(TRUST), *replaced) if folder.exists()]


def _renumber(
    folder: Path, created: str, clock: Clock, warn: Callable[[str], None]
) -> list[RunRecord]:
    """Renumber the future exchanges of all runs; return the unfinished runs."""
    with closing(Store(folder)) as store:
        records = [_renumbered(store, run, created, clock, warn) for run in store.runs()]
    return [record for record in records if record.status != "finished"]


def _renumbered(
    store: Store, record: RunRecord, created: str, clock: Clock, warn: Callable[[str], None]
) -> RunRecord:
    first = max(int(clock.now().timestamp() * 1000), record.next_index)
    if record.status == "finished":  # tests of its model are exchanges, too
        store.save_run(replace(record, first_index=first))
        return record
    after = replace(record, first_index=first, restored=created)
    try:
        checkpoint = store.checkpoint(record.run)
    except StorageError as error:  # somebody has deleted its folder; the other runs are intact
        warn(f"run {record.run} cannot be resumed: {error.message}")
        checkpoint = None
    if checkpoint is None:
        store.save_run(after)
        return after
    try:
        recipe = Recipe.model_validate_json(record.recipe)
        algorithm = make(recipe) if recipe.secure_aggregation.wanted else None
    except (ValidationError, EdgeFedError) as error:  # of another version, or of a plug-in
        why = str(error).splitlines()[0]
        warn(f"run {record.run} cannot be resumed: its recipe cannot be read: {why}")
        store.save_run(after)
        return after
    if algorithm is not None:
        # Devices have made keys for later sessions, and never use those of this one again.
        state = algorithm.restored(checkpoint.state, first)
        store.renumber(after, ())
        store.commit(after, state, checkpoint.downlink)
        return after
    moved = first - record.first_index
    store.renumber(after, [_moved(opened, record.run, moved) for opened in checkpoint.open])
    return after


def _moved(opened: OpenExchange, run: str, by: int) -> OpenExchange:
    """Return an open exchange under another index, and so another id."""
    index = opened.index + by
    exchange = f"{run}-{index}"
    tasks = tuple(
        task.model_copy(
            update={"exchange": exchange, "index": index, "nonce": secrets.token_hex(8)}
        )
        for task in opened.tasks
    )
    return replace(opened, exchange=exchange, index=index, tasks=tasks)


def _keep_standings(present: Path, folder: Path, warn: Callable[[str], None], clock: Clock) -> None:
    """Copy present quarantines and pauses of devices into a restored folder."""
    if not (present / ROWS).exists():
        return
    now = timestamp(clock.now())
    try:
        with closing(TrustScores(present)) as old, closing(TrustScores(folder)) as new:
            for trust in old.all():
                if trust.standing == "quarantined" and not new.is_quarantined(trust.device):
                    new.quarantine(trust.device, trust.quarantined_by, now)
        with closing(DevicePauses(present)) as paused, closing(DevicePauses(folder)) as again:
            for pause in paused.all():
                if pause.device not in again:
                    again.pause(pause)
    except StorageError as error:
        warn(f"present quarantines and pauses cannot be read: {error.message}")


def refused_by(made: Restoring, names: Collection[str]) -> list[str]:
    """Return the users of other machines that an operator's list leaves out.

    Raises:
        UnknownNameError: ``enrol.unknown``: the list has a name that the backup would not admit.
    """
    known = [party.user for party in to_confirm(made.trust, made.parties)]
    for name in names:
        if name not in known:
            raise UnknownNameError(
                f"The backup does not admit a party named {name}.",
                code="enrol.unknown",
                hint="it admits: " + (", ".join(known) or "nobody"),
            )
    return [user for user in known if user not in names]


def install(
    made: Restoring,
    refused: Iterable[str],
    clock: Clock,
    life: timedelta,
    write_access: Callable[[Path, Iterable[str], bytes], object],
) -> Path | None:
    """Put a backup into its place.

    Args:
        made: the backup.
        refused: users that the operator has not confirmed.
        clock: for new certificates.
        life: of new certificates.
        write_access: writes the list of users that may connect into a folder of certificates.

    Returns:
        The folder of the previous state; None when there was none.

    Raises:
        StorageError: the disk does not take it. The same restore can be repeated.
    """
    authority = made.authority
    if authority is not None:
        with closing(EnrolmentStore(made.trust / AUTHORITY_FOLDER)) as store:
            admit_only(
                made.trust,
                authority,
                store,
                clock,
                life,
                refused,
                lambda users, revoked: write_access(made.trust, list(users), revoked),
            )
            ended = {party.user for party in store.parties() if party.state != "enrolled"}
        _keep_others(made.place(TRUST), made.trust, ended)
    stamp = timestamp(clock.now()).translate(str.maketrans("", "", "-:."))
    replaced = made.state / REPLACED / f"{stamp}-{secrets.token_hex(2)}"
    for kind in (TRUST, COORDINATOR):  # who was removed is known at every moment
        new, place = made.staging / kind / made.manifest.fleet, made.place(kind)
        if not new.exists():
            continue
        if place.exists():
            if any(entry.name != "lock" for entry in place.iterdir()):
                _move(place, make_folder(replaced / kind) / place.name)
            else:
                shutil.rmtree(place)
        make_folder(place.parent)
        _move(new, place)
        sync_folder(place.parent)
    return replaced if replaced.exists() else None


def _keep_others(present: Path, restored: Path, ended: Collection[str]) -> None:
    """Copy credentials that the backup lacks, but for those of operators that were removed.

    They are those of devices on this machine, and of operators that enrolled after the backup.
    """
    if not present.exists():
        return
    own = {path.name for pattern in OWN_PARTIES for path in present.glob(pattern)}
    left_out = own.intersection(ended).union(REMADE)
    for path in present.iterdir():
        if path.name not in left_out and not (restored / path.name).exists():
            try:
                if path.is_dir():
                    shutil.copytree(path, restored / path.name)
                else:
                    with suppress(FileNotFoundError):
                        shutil.copy2(path, restored / path.name)
            except (OSError, shutil.Error) as error:
                problem = error if isinstance(error, OSError) else OSError(str(error))
                raise storage_error(restored / path.name, problem) from error


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        raise storage_error(target, error) from error
