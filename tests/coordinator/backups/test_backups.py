"""Backups: taken at any moment, put back beside devices that are ahead, refused when damaged."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import stat
import sys
import tarfile
from collections.abc import Callable, Iterable
from contextlib import closing
from copy import copy
from dataclasses import replace
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from edgefed.algorithms.interface.exchange import Relay
from edgefed.cli.printed.run_text import _privacy
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.alerts.open_alerts import OpenAlerts
from edgefed.coordinator.backups import archive
from edgefed.coordinator.backups.archive import extract, read_manifest, write_archive
from edgefed.coordinator.backups.restore import install, unpacked
from edgefed.coordinator.backups.snapshot import back_up
from edgefed.coordinator.devices.device_pauses import DevicePauses, OperatorPause
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.exchanges.buffered_answers import settled_in
from edgefed.coordinator.exchanges.relayed_blobs import open_blobs
from edgefed.coordinator.process.run_views import whole_run
from edgefed.coordinator.rounds.run_beginning import check_resumable
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import OpenExchange, RunRecord
from edgefed.errors import EdgeFedError, NotAllowedError, StorageError, UnknownNameError, UsageError
from edgefed.events.history.known_runs import RunDetails
from edgefed.events.history.run_comparison import compare
from edgefed.events.state.alerts import Alert
from edgefed.files.writing import make_folder
from edgefed.process.clock import SystemClock
from edgefed.process.lock import FolderLock
from edgefed.report.page import _numbers
from tests.cli.commands import edgefed
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_replies, cut_in_time
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import EXACT, World, recipe, shards

CLOCK = SystemClock()
FLEET = "tests"
LOSSY_DOWN = {"downlink": "int8", "uplink": "fp32"}


def make_backup(here: World, path: Path) -> Path:
    back_up(here.folder, here.folder / "no-trust", FLEET, path, CLOCK)
    return path


def no_access(trust: Path, users: Iterable[str], revoked: bytes) -> None:
    raise AssertionError("a fleet without certificates has no rules")


def put_back(backup: Path, state: Path) -> Path:
    with unpacked(backup, state, None, CLOCK) as made:
        install(made, (), CLOCK, timedelta(days=1), no_access)
    return state / "coordinator" / FLEET


class Moved:
    """A world that goes on in another folder, with the devices of the old one."""

    def __init__(self, here: World, folder: Path) -> None:
        self.world = copy(here)
        self.world.folder, self.world.stores, self.world.events = folder, [], []
        relays = self.world.store().relays()
        self.world.cache, self.world.relays = open_blobs(folder, 1 << 30, relays)
        here.devices._cache = self.world.cache
        self.asked: list[OpenExchange] = []

    def run(self) -> RunRecord:
        fleet = TamperedFleet(self.world.devices)
        self.asked = fleet.asked
        try:
            return self.world.engine(fleet).run()
        finally:
            self.world.close()


def cut(here: World, how: Callable[[World, Fuse], None], passes: int) -> bool:
    try:
        how(here, Fuse(passes))
    except PowerCut:
        return True
    return False


def plan(wire: dict[str, Any], **sections: Any) -> Recipe:
    return recipe(wire=wire, rounds={"count": 3, "cohort": 3}, **sections)


@pytest.mark.parametrize(
    ("how", "wire"), [(cut_in_replies, EXACT), (cut_in_time, LOSSY_DOWN)], ids=["fp32", "int8"]
)
def test_a_run_of_a_backup_ends_in_the_same_bits_beside_devices_that_are_ahead(
    world: MakeWorld, wire: dict[str, Any], how: Any, tmp_path: Path
) -> None:
    straight = world(plan(wire), shards((5, 9, 6, 4)))
    digest = straight.engine().run().weights_digest
    taken = 0
    for passes in range(0, 90, 27 if how is cut_in_time else 2):
        here = world(plan(wire), shards((5, 9, 6, 4)))
        if not cut(here, how, passes):
            break
        backup = make_backup(here, tmp_path / f"{passes}.tar")
        before = here.store().checkpoint(here.run)
        ahead = Moved(here, here.folder)
        assert ahead.run().status == "finished"
        moved = Moved(here, put_back(backup, tmp_path / f"state-{passes}"))
        record = moved.run()
        assert (record.status, record.reason) == ("finished", "")
        assert record.weights_digest == digest, passes
        assert record.restored == read_manifest(backup).created
        known = {each.exchange for each in (*ahead.asked, *(before.open if before else ()))}
        assert not known & {each.exchange for each in moved.asked}
        assert all(each.index > 10**12 for each in moved.asked)  # devices closed all smaller ones
        nonces = {task.nonce for each in ahead.asked for task in each.tasks}
        assert not nonces & {task.nonce for each in moved.asked for task in each.tasks}
        taken += 1
    assert taken >= 4


def test_buffered_rounds_of_a_backup_merge_nothing_twice_beside_devices_that_are_ahead(
    world: MakeWorld, tmp_path: Path
) -> None:
    """Several questions are open, each an exchange of its own, and were answered since."""
    chosen = recipe(
        wire=LOSSY_DOWN, rounds={"count": 6, "mode": "buffered", "buffer": 2, "max_staleness": 1}
    )
    straight = world(chosen, shards((5, 9, 6, 4))).engine().run()
    here = world(chosen, shards((5, 9, 6, 4)))
    assert cut(here, cut_in_time, 130)
    before = here.store().checkpoint(here.run)
    assert before is not None
    assert len(before.open) >= 2
    backup = make_backup(here, tmp_path / "b.tar")
    ahead = Moved(here, here.folder)
    assert ahead.run().weights_digest == straight.weights_digest
    moved = Moved(here, put_back(backup, tmp_path / "state"))
    record = moved.run()
    assert (record.status, record.weights_digest) == ("finished", straight.weights_digest)
    assert not {each.exchange for each in ahead.asked} & {each.exchange for each in moved.asked}
    with closing(Store(moved.world.folder)) as store:
        rows = store.rounds(record.run, details=True)
    settled = [(each.device, each.number) for row in rows for each in settled_in(row)]
    assert len(settled) == len(set(settled)) >= 12


def test_one_backup_that_is_put_back_twice_gives_no_id_twice(
    world: MakeWorld, tmp_path: Path
) -> None:
    here = world(plan(EXACT), shards((5, 9, 6, 4)))
    assert cut(here, cut_in_replies, 4)
    backup = make_backup(here, tmp_path / "b.tar")
    first = Moved(here, put_back(backup, tmp_path / "a"))
    digest = first.run().weights_digest
    second = Moved(here, put_back(backup, tmp_path / "b"))
    assert second.run().weights_digest == digest != ""
    assert not {e.exchange for e in first.asked} & {e.exchange for e in second.asked}


def test_a_secure_round_of_a_backup_begins_anew_with_later_keys(
    world: MakeWorld, tmp_path: Path
) -> None:
    chosen = recipe(secure_aggregation={"enabled": True}, wire=EXACT)
    here = world(chosen, shards((5, 9, 6, 4)))
    assert cut(here, cut_in_replies, 9)
    backup = make_backup(here, tmp_path / "b.tar")
    assert Moved(here, here.folder).run().status == "finished"
    moved = Moved(here, put_back(backup, tmp_path / "state"))
    record = moved.run()
    assert (record.status, record.reason) == ("finished", "")
    assert {each.attempt for each in moved.asked} == {0}  # no device refused its keys
    assert moved.asked[0].name == "secure_keys"


@pytest.mark.parametrize("private", [True, False])
def test_a_run_of_a_backup_says_that_its_epsilon_is_a_lower_bound(
    world: MakeWorld, private: bool, tmp_path: Path
) -> None:
    table = {"mechanism": "central", "noise_multiplier": 1.5, "epsilon": 50.0} if private else {}
    here = world(plan(EXACT, privacy=table), shards((5, 9, 6, 4)))
    assert cut(here, cut_in_replies, 4)
    moved = Moved(here, put_back(make_backup(here, tmp_path / "b.tar"), tmp_path / "state"))
    record = moved.run()
    assert record.status == "finished"
    notes = [each["text"] for each in moved.world.seen("note", level="warning")]
    (told,) = [each for each in notes if "restored from the backup of" in each]
    assert record.restored in told
    assert ("epsilon is at least the number that is shown" in told) is private
    assert {each["restored"] for each in moved.world.seen("run")} == {record.restored}
    store = Store(moved.world.folder)
    whole = whole_run(store, record.run)
    store.close()
    least = f"at least {record.epsilon:.4g}" if private else ""
    assert _privacy(whole).startswith(f"epsilon {least} of 50 at delta" if private else "")
    assert bool(_privacy(whole)) is private
    assert dict(_numbers(whole)).get("epsilon", "") == least
    compared = {
        name: cells for name, *cells in compare([RunDetails.model_validate(whole)]).results()
    }
    assert compared.get("epsilon", [""]) == [least]


def test_blobs_between_devices_and_a_finished_run_are_kept(
    world: MakeWorld, tmp_path: Path
) -> None:
    here = world(plan(EXACT), shards((5, 9, 6, 4)))
    ended = here.engine().run()
    store = here.store()
    sent = Relay("r-1", "device-00", "device-01", here.cache.put(b"a secret"), 8)
    record = replace(ended, run="r-0002-beef", status="running")
    store.commit(record, store.checkpoint(ended.run).state, {}, (sent,))  # type: ignore[union-attr]
    moved = Moved(here, put_back(make_backup(here, tmp_path / "b.tar"), tmp_path / "state"))
    again = moved.world.stores[0]
    assert again.relays() == [sent]
    assert moved.world.cache.get(sent.digest) == b"a secret"
    found = again.run(ended.run)
    assert replace(found, first_index=0) == ended  # not restored: its accounting is complete
    assert found.first_index > 10**12  # devices may have answered later tests of its model
    assert again.check_checkpoint(ended.run)
    files = [p.name for p in again.run_folder(ended.run).iterdir()]
    assert "model.safetensors" in files
    moved.world.close()


def test_the_number_of_a_deleted_run_is_not_reused_after_a_restore(
    world: MakeWorld, tmp_path: Path
) -> None:
    here = world(plan(EXACT), shards((5, 9, 6, 4)))
    here.store().delete_run(replace(here.store().run(here.run), status="aborted"))
    folder = put_back(make_backup(here, tmp_path / "b.tar"), tmp_path / "state")
    after = Store(folder)
    assert after.next_number() == here.store().next_number() == 2
    after.close()


def test_a_run_whose_folder_was_deleted_does_not_keep_the_others_from_being_restored(
    world: MakeWorld, tmp_path: Path
) -> None:
    here = world(plan(EXACT), shards((5, 9, 6, 4)))
    assert cut(here, cut_in_replies, 4)
    store = here.store()
    store.save_run(replace(store.run(here.run), status="aborted"))
    shutil.rmtree(store.run_folder(here.run))
    backup = make_backup(here, tmp_path / "b.tar")
    with unpacked(backup, tmp_path / "state", None, CLOCK) as made:
        (warning,) = made.warnings
        assert warning.startswith(f"run {here.run} cannot be resumed: ")
        install(made, (), CLOCK, timedelta(days=1), no_access)
    after = Store(tmp_path / "state" / "coordinator" / FLEET)
    with pytest.raises(StorageError) as refused:
        check_resumable(after, after.run(here.run))
    assert refused.value.code == "run.checkpoint"
    after.close()


def test_a_recipe_that_cannot_be_read_does_not_keep_a_backup_from_being_restored(
    world: MakeWorld, tmp_path: Path
) -> None:
    here = world(plan(EXACT), shards((5, 9, 6, 4)))
    assert cut(here, cut_in_replies, 4)
    store = here.store()
    store.save_run(replace(store.run(here.run), recipe='{"of a later version": 1}'))
    with unpacked(make_backup(here, tmp_path / "b.tar"), tmp_path, None, CLOCK) as made:
        (warning,) = made.warnings
        assert warning.startswith(f"run {here.run} cannot be resumed: its recipe cannot be read")
        install(made, (), CLOCK, timedelta(days=1), no_access)


def test_open_alerts_are_kept(world: MakeWorld, tmp_path: Path) -> None:
    here = world(plan(EXACT), shards((5, 9, 6, 4)))
    here.engine().run()
    alert = Alert("run_failed", "it failed", here.run)
    with closing(OpenAlerts(here.folder)) as alerts:
        alerts.begin(alert, "now")
    folder = put_back(make_backup(here, tmp_path / "b.tar"), tmp_path / "state")
    with closing(OpenAlerts(folder)) as alerts:
        assert alerts.alerts() == (alert,)


def test_a_run_may_be_deleted_while_a_backup_is_made(
    world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world(plan(EXACT), shards((5, 9, 6, 4)))
    folder = here.store().run_folder(here.engine().run().run)
    gone = make_folder(folder / "checkpoints")
    listing = os.scandir

    def scandir(path: Any) -> Any:
        if path in (gone, str(gone)):
            gone.rmdir()
        return listing(path)

    monkeypatch.setattr(os, "scandir", scandir)
    backup = make_backup(here, tmp_path / "b.tar")
    assert "coordinator/edgefed.db" in read_manifest(backup).files


def test_present_quarantines_and_pauses_stay(world: MakeWorld, tmp_path: Path) -> None:
    here = world(plan(EXACT), shards((5, 9, 6, 4)))
    state = tmp_path / "state"
    folder = put_back(make_backup(here, tmp_path / "b.tar"), state)
    scores, pauses = TrustScores(folder), DevicePauses(folder)
    scores.quarantine("device-01", "operator.ann", "now")
    pauses.pause(OperatorPause("device-02", "maria", "", "now"))
    scores.close()
    pauses.close()
    put_back(tmp_path / "b.tar", state)
    scores, pauses = TrustScores(folder), DevicePauses(folder)
    assert scores.is_quarantined("device-01")
    assert "device-02" in pauses
    scores.close()
    pauses.close()


# -- the file -------------------------------------------------------------------------------------


@pytest.fixture
def backup(world: MakeWorld, tmp_path: Path) -> Path:
    here = world(plan(EXACT), shards((5, 9, 6, 4)))
    assert cut(here, cut_in_replies, 4)
    return make_backup(here, tmp_path / "b.tar")


def test_only_the_owner_can_read_a_backup_and_what_is_put_back(
    backup: Path, tmp_path: Path
) -> None:
    folder = put_back(backup, tmp_path / "state")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert {stat.S_IMODE(p.stat().st_mode) for p in folder.rglob("*") if p.is_file()} == {0o600}
    assert not (tmp_path / "state" / ".restore").exists()
    assert not list(tmp_path.rglob("backup/files"))


def refused(path: Path, state: Path) -> str:
    """Return why a backup is refused, in one line, after which nothing is there."""
    with pytest.raises(StorageError) as caught, unpacked(path, state, None, CLOCK):
        pass
    assert caught.value.code == "backup.damaged"
    assert "\n" not in caught.value.as_line()
    left = {p.name for p in state.rglob("*") if p.is_file()} if state.exists() else set()
    assert left <= {"lock"}
    return caught.value.message


def test_a_backup_that_was_cut_off_is_refused(backup: Path, tmp_path: Path) -> None:
    data = backup.read_bytes()
    for length in (0, 100, 512, 1024, len(data) // 3, len(data) // 2, len(data.rstrip(b"\0")) - 10):
        backup.write_bytes(data[:length])
        refused(backup, tmp_path / "state")


def test_each_changed_byte_of_a_file_is_noticed(backup: Path, tmp_path: Path) -> None:
    data = backup.read_bytes()
    with tarfile.open(backup) as tar:
        places = [(m.name, m.offset_data + m.size // 2) for m in tar if m.size]
    for name, place in places:
        changed = bytearray(data)
        changed[place] ^= 1
        backup.write_bytes(changed)
        told = refused(backup, tmp_path / "state")
        assert name in told or name == "manifest.json"


def rebuilt(backup: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], object]) -> None:
    """Write an archive again, with other members, its manifest as it was."""
    with tarfile.open(backup) as tar:
        members = [(each, tar.extractfile(each).read()) for each in tar]  # type: ignore[union-attr]
    change(members)
    with tarfile.open(backup, "w") as tar:
        for member, data in members:
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    "bad",
    [
        member("../escaped"),
        member("../../../../escaped"),
        member("coordinator/../../escaped"),
        member("/escaped"),
        member("coordinator/./escaped"),
        member("coordinator//escaped"),
        member("escaped"),
        member("coordinator\\escaped/x"),
        member("coordinator/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("coordinator/link", tarfile.LNKTYPE, "coordinator/edgefed.db"),
        member("coordinator/fifo", tarfile.FIFOTYPE),
        member("coordinator/folder", tarfile.DIRTYPE),
        member("coordinator/edgefed.db"),
        member("coordinator/edgefed.db/below"),
        member("coordinator/unlisted"),
    ],
    ids=lambda each: f"{each.name} {each.type!r}",
)
def test_no_member_leaves_the_folder(bad: tarfile.TarInfo, backup: Path, tmp_path: Path) -> None:
    rebuilt(backup, lambda members: members.insert(len(members) - 1, (bad, b"")))
    outside = "escaped" in bad.name
    try:
        told = refused(backup, tmp_path / "deep" / "state")
        assert ("is not the name of a file" in told) is outside  # before anything is written
    except AssertionError:  # a file where a folder has to be
        assert "below" in bad.name
        with pytest.raises(StorageError) as caught:
            extract(backup, tmp_path / "deep" / "other")
        assert caught.value.code.startswith("storage")
    assert not list(tmp_path.rglob("*escaped*"))
    assert not Path("/escaped").exists()


def test_a_member_after_the_list_or_a_missing_one_is_refused(backup: Path, tmp_path: Path) -> None:
    whole = backup.read_bytes()
    rebuilt(backup, lambda members: members.append((member("coordinator/more"), b"")))
    refused(backup, tmp_path / "state")
    backup.write_bytes(whole)
    rebuilt(backup, lambda members: members.pop(0))
    assert "is not as it was written" in refused(backup, tmp_path / "state")


def test_a_backup_of_a_later_format_is_refused(backup: Path, tmp_path: Path) -> None:
    def later(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        made, data = members.pop()
        text = json.dumps({**json.loads(data), "format": 2}).encode()
        made.size = len(text)
        members.append((made, text))

    rebuilt(backup, later)
    assert "a newer EdgeFed" in refused(backup, tmp_path / "state")


def test_what_is_no_backup_of_this_fleet_is_refused(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a backup of fleet tests, not of plant-a") as caught:
        unpacked(backup, tmp_path / "state", "plant-a", CLOCK).__enter__()
    assert caught.value.code == "restore.fleet"
    with pytest.raises(UnknownNameError) as nothing:
        back_up(tmp_path / "no", tmp_path / "none", FLEET, tmp_path / "c.tar", CLOCK)
    assert nothing.value.code == "backup.nothing"
    assert not (tmp_path / "c.tar").exists()


def test_a_missing_backup_is_a_wrong_path(tmp_path: Path) -> None:
    told = edgefed("restore", tmp_path / "none.tar", "--yes", state=tmp_path)
    told.failed(2, "data.missing", str(tmp_path / "none.tar"))
    assert list(tmp_path.iterdir()) == []


def test_a_restore_is_refused_while_the_folder_is_in_use(backup: Path, tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "coordinator" / FLEET, "a coordinator")
    with pytest.raises(NotAllowedError, match="in use by a coordinator") as caught:
        put_back(backup, tmp_path)
    assert caught.value.code == "state.locked"
    lock.release()
    put_back(backup, tmp_path)


def test_the_state_that_is_replaced_is_kept(backup: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    folder = put_back(backup, state)
    (folder / "mine").write_text("newer")
    put_back(backup, state)
    assert not (folder / "mine").exists()
    (kept,) = (state / "replaced").glob("*/coordinator/tests/mine")
    assert kept.read_text() == "newer"


# -- interrupted ----------------------------------------------------------------------------------


def _killed_in_the_middle(folder: Path, target: Path) -> None:
    add, count = archive._add, 0

    def adding(tar: tarfile.TarFile, name: str, path: Path) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return add(tar, name, path)

    archive._add = adding
    back_up(folder, folder / "no-trust", FLEET, target, CLOCK)


def _limited(folder: Path, target: Path, told: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (118_000, 118_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        back_up(folder, folder / "no-trust", FLEET, target, CLOCK)
    except EdgeFedError as error:
        told.write_text(error.as_line())


def in_process(act: Callable[..., None], *arguments: Path) -> int | None:
    process = get_context("fork").Process(target=act, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def test_a_backup_that_is_killed_leaves_the_earlier_file(world: MakeWorld, tmp_path: Path) -> None:
    here = world(plan(EXACT), shards((5, 9, 6, 4)))
    target = make_backup(here, tmp_path / "b.tar")
    before = target.read_bytes()
    assert cut(here, cut_in_replies, 4)
    assert in_process(_killed_in_the_middle, here.folder, target) == -signal.SIGKILL
    assert target.read_bytes() == before
    make_backup(here, target)
    assert not list(here.folder.glob("backup")), "the next backup removes what was left"
    put_back(target, tmp_path / "state")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on file sizes")
def test_a_disk_that_takes_no_more_gives_one_line_and_no_file(
    world: MakeWorld, tmp_path: Path
) -> None:
    here = world(plan(EXACT), shards((5, 9, 6, 4)))
    here.engine().run()
    told = tmp_path / "told"
    in_process(_limited, here.folder, tmp_path / "b.tar", told)
    assert "[storage.limit]" in told.read_text()
    assert "\n" not in told.read_text()
    assert [p.name for p in tmp_path.glob("*b.tar*")] == []
    assert not (here.folder / "backup").exists()


def test_a_list_of_files_tells_a_cut_off_log_from_a_changed_one(tmp_path: Path) -> None:
    """A log grows while the backup is made; what was there at the beginning is in it."""
    log = tmp_path / "events.jsonl"
    log.write_text("one\n")
    made = write_archive(tmp_path / "b.tar", FLEET, "now", {"coordinator/events.jsonl": log})
    assert made.files["coordinator/events.jsonl"].size == 4
    assert extract(tmp_path / "b.tar", tmp_path / "out") == made
