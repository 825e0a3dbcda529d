"""The updater: runs the agent, and changes its version step by step; each step is stored first.

    idle → waiting (the owner) → fetching → installing → ready (hours, a run) → trial → idle
                                                                                  ↘ restoring → idle

After a kill or a power loss at any moment the next process goes on: a version is never half
installed, and state that a failed version has changed is replaced by the copy made before.
"""

from __future__ import annotations

import fcntl
import logging
import re
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from device_agent.updater.agent_process import AgentProcess
from device_agent.updater.disk import copy_folder, digest_of, point, read_json, remove, rename
from device_agent.updater.slots import Slots, base_has
from device_agent.updater.state import StateFile, UpdaterSettings
from device_agent.updater.trial import PASSED, VersionTrial, answers
from device_agent.updater.verification import RefusedReleaseError, VerifiedRelease, verify

log = logging.getLogger("updater")

TURN = 0.25
"""Seconds between two turns."""

LOOK_EVERY = 2.0
"""Seconds between two looks at whether the broker answers."""

MAX_TRIALS = 3
"""Starts of a trial, of which a power loss or a crash of the board may end some."""

USAGE = 2
"""Exit code of an agent that a person has to help."""

RESTART = (1.0, 5.0, 30.0, 60.0)
"""Seconds until an agent that ended is started again."""

MODELS = "models"
"""Folder of the device's models, which no trial changes and an inference program may be reading."""

_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")


class AgentUpdater:
    """Runs the agent of the current slot, and its updates.

    Args:
        settings: the owner's.
    """

    def __init__(self, settings: UpdaterSettings) -> None:
        self._settings = settings
        self._home = settings.home
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = StateFile(self._home)
        self._slots = Slots(self._home)
        self._agent = AgentProcess(self._home, settings.words)
        self._pip: subprocess.Popen[str] | None = None
        self._trial: VersionTrial | None = None
        self._fails, self._start_at, self._begun = 0, 0.0, 0.0
        self._broker, self._look_at = True, 0.0
        self._stop = threading.Event()
        self._steps: dict[str, Callable[[], None]] = {
            "idle": self._idle,
            "waiting": self._wait_for_owner,
            "fetching": self._fetch,
            "installing": self._install,
            "ready": self._await_quiet,
            "trial": self._try,
            "restoring": self._restore,
        }

    def run(self) -> int:
        """Work until ``stop``, or until the agent needs a person; return the exit code."""
        self._file.change()
        while not self._stop.is_set():
            try:
                self._steps[self._file.state.phase]()
                if self._taken.exists():  # what follows of the order is stored
                    remove(self._taken)
                code = self._run_agent()
            except OSError as error:
                self._give_up(error)
                continue
            if code is not None:
                return code
            self._stop.wait(TURN)
        if self._pip is not None:
            self._pip.kill()
            self._pip.wait()
        return max(0, self._agent.stop())

    def _give_up(self, error: OSError) -> None:
        """End a change that the disk does not take; one on trial is judged or restored later."""
        log.error("%s", error)
        if self._file.state.phase not in ("trial", "restoring"):
            with suppress(OSError):
                self._end(f"release {self._file.state.release} was not installed: {error}")
        self._stop.wait(RESTART[1])

    def stop(self) -> None:
        """End ``run`` soon."""
        self._stop.set()

    # -- the agent ----------------------------------------------------------------------------

    def _run_agent(self) -> int | None:
        """Start the agent where none runs; return the exit code of one that needs a person."""
        state, now = self._file.state, time.monotonic()
        if state.phase == "restoring" or now < self._start_at:
            return None
        if not self._agent.started:
            if _in_use(self._settings.folder):  # by the agent of an updater that was killed
                return None
            if state.phase == "trial":
                if state.trials >= MAX_TRIALS:  # each was cut short with this process
                    why = self._failed("its trial never ended")
                    self._file.change(phase="restoring", reason=why)
                    return None
                self._file.change(trials=state.trials + 1)
                self._trial = VersionTrial(self._settings.limits, now)
            self._begun = now
            point(self._home / "current", f"slots/{state.running}")
            self._agent.start(self._slots.python(state.running))
            return None
        code = self._agent.code()
        if code is None or state.phase == "trial":
            return None
        self._agent.stop()
        if code == USAGE:
            return code
        self._fails = 0 if now - self._begun > 2 * RESTART[-1] else self._fails
        self._start_at = now + RESTART[min(self._fails, len(RESTART) - 1)]
        self._fails += 1
        log.warning("the agent ended with exit code %d and is started again", code)
        return None

    # -- offers -------------------------------------------------------------------------------

    def _idle(self) -> None:
        state = self._file.state
        order = self._take_order()
        if order == "rollback" and self._slots.is_complete(state.previous):
            self._file.change(
                phase="ready",
                release=state.previous,
                release_number=0,
                wheels={},
                during_run=True,
                reason=f"the owner goes back from {state.current}",
            )
            return
        offer = read_json(self._home / "offer.json")
        identity = str(offer.get("id", ""))
        if not identity or identity == state.offer:
            return
        self._trial = None
        if offer.get("withdraw") is True:
            self._end(f"release {offer.get('release')} was withdrawn", offer=identity)
            return
        try:
            made = self._verified(offer)
        except RefusedReleaseError as error:
            self._end(f"release {offer.get('release')} was refused: {error}", offer=identity)
            return
        waits, sizes = self._settings.mode == "ask", dict(made.files.values())
        missing = {wheel: size for wheel, size in sizes.items() if not self._slots.stored(wheel)}
        self._file.change(
            phase="waiting" if waits else "fetching",
            release=made.release,
            release_number=made.number,
            wheels={name: digest for name, (digest, _) in made.files.items()},
            sizes=sizes,
            needs={} if waits else missing,
            offer=identity,
            during_run=offer.get("during_run") is True,
            signed_at=made.signed_at,
            reason="the owner has to approve it" if waits else "",
        )

    def _verified(self, offer: dict[str, object]) -> VerifiedRelease:
        """Return what is offered, without the wheels that the board has.

        Raises:
            RefusedReleaseError: it is not to be installed.
        """
        release, metadata, state = (
            str(offer.get("release")),
            offer.get("metadata"),
            self._file.state,
        )
        if self._settings.mode == "off":
            raise RefusedReleaseError("the owner has switched updates off")
        if not _NAME.fullmatch(release) or not isinstance(metadata, dict):
            raise RefusedReleaseError("the offer cannot be read")
        incoming = {name: self._incoming(str(digest)) for name, digest in metadata.items()}
        try:
            root = self._settings.root.read_bytes()
        except OSError as error:
            raise RefusedReleaseError(f"the pinned root cannot be read: {error}") from error
        made = verify(release, incoming.get, self._home / "metadata", root, _now(), state.signed_at)
        self._file.change(signed_at=made.signed_at)
        if made.number < state.number or release == "base":
            raise RefusedReleaseError(f"its number {made.number} is lower than {state.number}")
        if release == state.current:
            raise RefusedReleaseError("it is installed")
        files = {
            name: file
            for name, file in made.files.items()
            if name == "lock.txt" or not base_has(name, made.versions[name])
        }
        return VerifiedRelease(release, made.number, files, made.versions, made.signed_at)

    def _wait_for_owner(self) -> None:
        if not self._superseded() and self._take_order() == "approve":
            self._file.change(phase="fetching", needs=self._missing(), reason="")

    def _superseded(self) -> bool:
        """End the change at work if another release was offered meanwhile."""
        newest = str(read_json(self._home / "offer.json").get("id", ""))
        if not newest or newest == self._file.state.offer:
            return False
        self._end("another release was offered")
        return True

    # -- download and installation ------------------------------------------------------------

    def _fetch(self) -> None:
        if self._superseded():
            return
        for digest in self._missing():
            path = self._incoming(digest)
            if path.is_file() and digest_of(path) == digest:
                self._slots.store(path, digest)
        if not self._missing():
            self._file.change(phase="installing", needs={})

    def _missing(self) -> dict[str, int]:
        """Return the files of the release that no slot has."""
        sizes = self._file.state.sizes.items()
        return {digest: size for digest, size in sizes if not self._slots.stored(digest)}

    def _incoming(self, digest: str) -> Path:
        """Return where the agent puts a received blob."""
        name = digest if re.fullmatch("[0-9a-f]{64}", digest) else "none"
        return self._home / "incoming" / "blobs" / name

    def _install(self) -> None:
        state = self._file.state
        if self._pip is None:
            if self._slots.is_complete(state.release, state.wheels):
                self._file.change(phase="ready")
                return
            self._pip = self._slots.install(state.release, state.wheels)
        elif self._pip.poll() is not None:
            pip, self._pip = self._pip, None
            _, said = pip.communicate()
            if pip.returncode:
                lines = (said.strip() or "no message").splitlines()
                self._end(f"release {state.release} could not be installed: {lines[-1][:300]}")
                return
            self._slots.complete(state.release, state.wheels)
            self._file.change(phase="ready")

    # -- the change ---------------------------------------------------------------------------

    def _await_quiet(self) -> None:
        """Change the version within the owner's hours, and between two runs."""
        state = self._file.state
        if self._superseded():
            return
        if not self._settings.allows_change(time.localtime()):
            self._file.change(reason=f"it waits for the maintenance hours, {self._settings.hours}")
            return
        running = self._agent.started and self._agent.code() is None
        if running and not state.during_run and not self._agent.signs().quiet:
            self._file.change(reason="it waits for the end of the run")
            return
        self._agent.stop()
        if self._settings.folder.is_dir():
            copy_folder(self._settings.folder, self._backup, self._left_out)
        self._start_at = 0.0
        self._file.change(phase="trial", trials=0, reason="")

    @property
    def _backup(self) -> Path:
        return self._home / "backup"

    def _try(self) -> None:
        """Judge the version that runs; a trial that was cut short is begun again."""
        state, trial = self._file.state, self._trial
        if trial is None:
            return
        now, signs = time.monotonic(), self._agent.signs()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            self._broker = signs.connected or answers(self._settings.host, self._settings.port)
        verdict = trial.verdict(signs, self._agent.code(), self._broker, now)
        if verdict == PASSED:
            number = max(state.number, state.release_number)
            reason = f"release {state.release} has passed its trial"
            if not state.release_number:
                reason += f": the owner went back from {state.current}"
            self._end(reason, current=state.release, previous=state.current, number=number)
        elif verdict:
            self._agent.stop()
            line = self._agent.last_line
            said = f"{verdict}: {line}" if line and "exit code" in verdict else verdict
            self._file.change(phase="restoring", reason=self._failed(said))

    def _left_out(self, folder: str, names: list[str]) -> set[str]:
        """Return what a copy of the state leaves out: blobs half received, and models."""
        models = {MODELS} if Path(folder) == self._settings.folder else set()
        return ({"staging"} | models) & set(names)

    def _failed(self, why: str) -> str:
        state = self._file.state
        return f"release {state.release} failed its trial, and {state.current} is back: {why}"

    def _restore(self) -> None:
        """Bring the agent's state back as it was before the trial; may be done several times."""
        self._agent.stop()
        folder, broken = self._settings.folder, self._home / "broken"
        if self._backup.is_dir():
            if (folder / MODELS).is_dir() and not (self._backup / MODELS).exists():
                rename(folder / MODELS, self._backup / MODELS)
            remove(broken)
            if folder.exists():
                rename(folder, broken)
            rename(self._backup, folder)
        remove(broken)
        self._fails, self._start_at = 0, 0.0
        self._end(self._file.state.reason)

    def _end(self, reason: str, **changes: object) -> None:
        """End the change at work, and delete what only it needed."""
        log.warning("%s", reason)
        self._trial = None
        at_rest = {"release": "", "release_number": 0, "wheels": {}, "sizes": {}, "needs": {}}
        self._file.change(phase="idle", reason=reason, **{**at_rest, **changes})
        remove(self._backup)
        self._slots.prune({self._file.state.current, self._file.state.previous})

    @property
    def _taken(self) -> Path:
        return self._home / "order.taken"

    def _take_order(self) -> str:
        """Return the owner's order, also one whose consequence a kill kept from being stored."""
        path = self._home / "order.json"
        if path.exists():
            rename(path, self._taken)
        return str(read_json(self._taken).get("order", ""))


def _in_use(folder: Path) -> bool:
    """Whether an agent holds the lock of its state folder."""
    try:
        with (folder / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _now() -> datetime:
    return datetime.now(timezone.utc)
