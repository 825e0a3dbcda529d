"""Releases of the agent at the coordinator: stored as they are signed, and offered to devices.

The coordinator verifies no signature and has no key: each device verifies an offer from the root
that its owner pinned. The coordinator checks hashes only, to report a damaged repository.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.rollouts.staging import Status, next_step, progress_text
from edgefed.coordinator.updates.staged_update import StagedUpdate, planned, read_staged
from edgefed.errors import NotAllowedError, StorageError, UnknownNameError
from edgefed.files.writing import storage_error, write_atomic
from edgefed.wire.blobs import BlobCache
from edgefed.wire.limits import MAX_BLOB_BYTES
from edgefed.wire.messages import BlobRef
from edgefed.wire.tensors import digest
from edgefed.wire.update_messages import UpdateOffer, UpdateState

LOOK_EVERY = 1.0
"""Seconds between two looks at a rollout that goes on."""

SETTLE = 5.0
"""Seconds after the coordinator's start in which no stage begins: devices are about to connect."""


@dataclass
class _Stored:
    """What outlives the process.

    Attributes:
        metadata: digest and size of each file.
        releases: release, number, wheels and bytes of each, the newest first.
        blobs: digests of the blobs of the repository.
        offers: by device: id, release, whether it may change within a run, or is withdrawn.
        states: the last report of each device.
        staged: the newest staged rollout; empty for none.
    """

    metadata: dict[str, tuple[str, int]] = field(default_factory=dict)
    releases: list[dict[str, Any]] = field(default_factory=list)
    blobs: list[str] = field(default_factory=list)
    offers: dict[str, dict[str, Any]] = field(default_factory=dict)
    states: dict[str, dict[str, str]] = field(default_factory=dict)
    staged: dict[str, Any] = field(default_factory=dict)


class AgentReleases:
    """The releases, and the reports of devices; safe from any thread.

    Args:
        folder: for its files.
        send: sends a device an offer.
        registry: the connected devices and their sessions.
        gateway_of: returns the gateway that speaks for a device; empty for none.
        journal: receives the outcomes of updates.
        new_id: returns a random id.

    Attributes:
        next_due: the monotonic second of the next look.

    Raises:
        StorageError: the folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        send: Callable[[str, UpdateOffer], None],
        registry: DeviceRegistry,
        gateway_of: Callable[[str], str],
        journal: EventJournal,
        new_id: Callable[[], str],
    ) -> None:
        self._path = folder / "releases.json"
        self._send, self._registry, self._gateway_of = send, registry, gateway_of
        self._journal, self._new_id = journal, new_id
        self._lock = threading.RLock()
        self.next_due = -math.inf
        try:
            self._stored = _Stored(**json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            self._stored = _Stored()
        except (OSError, ValueError, TypeError) as error:
            raise StorageError(f"{self._path} is damaged.", code="storage.damaged") from error
        self._cache = BlobCache(folder / "blobs", MAX_BLOB_BYTES, pinned=self._stored.blobs)

    # -- orders -------------------------------------------------------------------------------

    def add(self, folder: Path) -> list[dict[str, Any]]:
        """Store a signed repository in place of the one before; return its releases.

        Raises:
            UnknownNameError: ``release.unknown``: the folder has none.
            StorageError: ``release.damaged``, or the disk does not take it.
        """
        try:
            names, targets = _newest(folder / "metadata")
            metadata = {name: self._put(folder / "metadata" / name) for name in names}
            files = {path: self._put_target(folder, path, targets[path]) for path in targets}
        except FileNotFoundError as error:
            raise UnknownNameError(
                f"There are no releases in {folder}: {error.filename} is missing.",
                code="release.unknown",
                hint="name a folder on the coordinator's machine that edgefed release made",
            ) from error
        except OSError as error:
            raise storage_error(folder, error) from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StorageError(f"{folder} is damaged: {error}", code="release.damaged") from error
        with self._lock:
            self._stored.metadata, self._stored.releases = metadata, list(_releases(targets))
            for blob in self._stored.blobs:
                self._cache.unpin(blob)
            self._stored.blobs = [name for name, _ in (*metadata.values(), *files.values())]
            for blob in self._stored.blobs:
                self._cache.pin(blob)
            self._save()
            self._cache.shed()
            return self._stored.releases

    def releases(self) -> list[dict[str, Any]]:
        """Return release, number, wheels and bytes of each, the newest first."""
        with self._lock:
            return list(self._stored.releases)

    def offer(self, release: str, devices: Collection[str], *, during_run: bool) -> dict[str, Any]:
        """Offer a release to devices, and again to those that are not there when they come.

        Raises:
            UnknownNameError: ``release.unknown``, ``device.unknown``.
            NotAllowedError: ``release.site``: a device is at a site, behind a gateway.
        """
        self._check_devices(devices)
        with self._lock:
            self._check_release(release)
            made = {"id": self._new_id(), "release": release, "during_run": during_run}
            self._stored.offers.update(dict.fromkeys(devices, made))
            self._save()
        for device in devices:
            self.joined(device)
        return {"offer": made["id"], "release": release, "devices": sorted(devices)}

    def roll_out(
        self,
        release: str,
        devices: Collection[str],
        *,
        first: Sequence[str] = (),
        shares: Sequence[float],
        stop_at: float,
        during_run: bool,
    ) -> dict[str, Any]:
        """Offer a release in stages; a rollout that goes on is replaced.

        Args:
            release: its name.
            devices: all that get it; empty for every device that is not at a site.
            first: devices that are the first stage by themselves.
            shares: of the devices that each stage asks, with those before; the last one is 1.
            stop_at: share of devices that went back from it above which it stops.
            during_run: whether versions may change within a run.

        Raises:
            UnknownNameError, NotAllowedError: as of ``offer``.
        """
        names = [*devices] or sorted(
            view.device
            for view in self._journal.snapshot.devices
            if not self._gateway_of(view.device)
        )
        names = sorted({*names, *first})
        self._check_devices(names)
        with self._lock:
            self._check_release(release)
            if not names:
                raise UnknownNameError(
                    "No device has joined this fleet.",
                    code="device.unknown",
                    hint="edgefed-agent run",
                )
            changed = self._ended(self._staged(), "replaced")
            identity = self._new_id()
            stages = planned(identity, names, self._online(), first, shares, stop_at)
            made = StagedUpdate(identity, release, during_run, stages)
            changed += self._asked(made, 0)
            self._keep(made)
        for device in dict.fromkeys(changed):
            self.joined(device)
        return made.to_json()

    def progress(self) -> dict[str, Any]:
        """Return the newest staged rollout.

        Raises:
            UnknownNameError: ``release.rollout``: there is none.
        """
        with self._lock:
            staged = self._staged()
            if staged is None:
                raise UnknownNameError(
                    "No release was rolled out yet.",
                    code="release.rollout",
                    hint="edgefed agent-update rollout RELEASE",
                )
            return staged.with_reports(self._stored.offers, self._stored.states).to_json()

    def due(self, now: float) -> None:
        """Take a rollout to its next stage, or stop it, if the reports allow or demand it.

        Args:
            now: the monotonic second.
        """
        if self.next_due == -math.inf:
            self.next_due = now + SETTLE
        if now < self.next_due:
            return
        self.next_due = now + LOOK_EVERY
        with self._lock:
            before = self._staged()
            if before is None or before.stages.status != "active":
                return
            seen = before.with_reports(self._stored.offers, self._stored.states)
            busy = seen.at_work(self._stored.states)
            after = replace(seen, stages=next_step(seen.stages, {*self._online(), *busy}))
            if after == before:
                return
            changed = self._asked(after, len(before.stages.asked))
            if after.stages.status == "stopped":
                changed = self._ended(after, "stopped")
            shown = (after.stages.stage, after.stages.status)
            self._keep(after, quiet=shown == (before.stages.stage, before.stages.status))
        for device in changed:
            self.joined(device)

    def status(self) -> list[dict[str, str]]:
        """Return the version and the update of each device that has either, sorted by name."""
        with self._lock:
            names = sorted({*self._stored.offers, *self._stored.states})
            return [self._row(name) for name in names]

    # -- with the lock held -------------------------------------------------------------------

    def _staged(self) -> StagedUpdate | None:
        return read_staged(self._stored.staged) if self._stored.staged else None

    def _online(self) -> set[str]:
        return {device for device in self._registry.devices() if self._registry.online(device)}

    def _asked(self, staged: StagedUpdate, since: int) -> list[str]:
        """Offer a rollout's release to the devices that were not asked yet; return them."""
        made = {
            "id": staged.offer,
            "release": staged.release,
            "during_run": staged.during_run,
        }
        new = list(staged.stages.asked[since:])
        self._stored.offers.update(dict.fromkeys(new, made))
        return new

    def _ended(self, staged: StagedUpdate | None, status: Status) -> list[str]:
        """Withdraw the release of a rollout that ends from the devices that have not decided."""
        if staged is None or staged.stages.status not in ("active", status):
            return []
        changed = [
            device
            for device in staged.undecided
            if self._stored.offers.get(device, {}).get("id") == staged.offer
        ]
        for device in changed:
            self._stored.offers[device] = {
                **self._stored.offers[device],
                "id": self._new_id(),
                "withdraw": True,
            }
        return changed

    def _keep(self, staged: StagedUpdate, *, quiet: bool = False) -> None:
        """Write a rollout, and note its progress."""
        self._stored.staged = staged.stored()
        self._save()
        if not quiet:
            level, text = progress_text(staged.about, staged.stages)
            self._journal.emit("note", level=level, text=text)

    def _check_devices(self, devices: Collection[str]) -> None:
        known = {view.device for view in self._journal.snapshot.devices}
        for device in sorted({*devices} - known):
            hint = "edgefed device list"
            raise UnknownNameError(f"No device {device}.", code="device.unknown", hint=hint)
        for device in devices:
            if self._gateway_of(device):
                raise NotAllowedError(
                    f"Device {device} is at site {self._gateway_of(device)}.",
                    code="release.site",
                    hint="add the releases at its gateway, and offer them there with --fleet SITE",
                )

    def _check_release(self, release: str) -> None:
        if release not in (stored["release"] for stored in self._stored.releases):
            raise UnknownNameError(
                f"There is no release {release}.",
                code="release.unknown",
                hint="edgefed agent-update list",
            )

    def _row(self, device: str) -> dict[str, str]:
        offer = self._stored.offers.get(device, {})
        state = self._stored.states.get(device, {})
        seen = state.get("offer") == offer.get("id")
        release = str(offer.get("release", ""))
        # It failed its trial or was refused, or the owner went back from it: never installed again
        ended = seen and state["phase"] == "idle" and state["release"] != release
        return {
            "device": device,
            "release": state.get("release", ""),
            "offered": "" if ended or offer.get("withdraw") else release,
            "phase": state.get("phase", "") if seen or not offer else "offered",
            "reason": state.get("reason", "") if seen or not offer else "",
        }

    # -- devices ------------------------------------------------------------------------------

    def joined(self, device: str) -> None:
        """Send a device that is there the offer that it has not looked at."""
        session = self._registry.session(device)
        with self._lock:
            offer = self._stored.offers.get(device)
            state = self._stored.states.get(device, {})
            if offer is None or not session or state.get("offer") == offer["id"]:
                return
            withdraw = bool(offer.get("withdraw"))
            refs = {
                name: BlobRef(digest=blob, size=size)
                for name, (blob, size) in self._stored.metadata.items()
                if not withdraw
            }
        self._send(
            device,
            UpdateOffer(
                session=session,
                offer=offer["id"],
                release=offer["release"],
                metadata=refs,
                during_run=offer["during_run"],
                withdraw=withdraw,
            ),
        )

    def take(self, device: str, state: UpdateState) -> None:
        """Take a device's report; an outcome that is new is noted as an event."""
        fields = state.model_dump(exclude={"session"})
        with self._lock:
            before = self._stored.states.get(device, {})
            if fields == before:
                return
            self._stored.states[device] = fields
            self._save()
        ended = state.phase == "idle" and state.reason and state.reason != before.get("reason")
        if ended:
            level = "info" if "has passed" in state.reason else "warning"
            self._journal.emit("note", level=level, text=f"agent of {device}: {state.reason}")

    def forget(self, device: str) -> None:
        """Forget a device."""
        with self._lock:
            for kept in (self._stored.offers, self._stored.states):
                kept.pop(device, None)
            self._save()

    def serves(self, device: str, blob: str) -> bool:
        """Whether a device may have a blob: one of the repository, while it has an offer."""
        with self._lock:
            return device in self._stored.offers and blob in self._stored.blobs

    def size(self, blob: str) -> int:
        """Return the bytes of a blob; 0 if it is not here."""
        return self._cache.size(blob) or 0

    def chunk(self, blob: str, number: int) -> bytes | None:
        """Return a chunk of a blob; None if it is not here."""
        return self._cache.chunk(blob, number)

    # -- files --------------------------------------------------------------------------------

    def _save(self) -> None:
        write_atomic(self._path, json.dumps(asdict(self._stored)).encode())

    def _put(self, path: Path) -> tuple[str, int]:
        data = path.read_bytes()
        return self._cache.put(data), len(data)

    def _put_target(self, folder: Path, path: str, target: dict[str, Any]) -> tuple[str, int]:
        name, expected = path.rpartition("/"), str(target["hashes"]["sha256"])
        file = folder / "targets" / name[0] / f"{expected}.{name[2]}"
        if digest(file.read_bytes()) != expected:
            raise ValueError(f"{file.name} has another hash")
        return self._put(file)


def _newest(folder: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the newest metadata, with all roots, and the targets in it."""
    snapshot = _signed(folder / "timestamp.json")["meta"]["snapshot.json"]["version"]
    targets = _signed(folder / f"{snapshot}.snapshot.json")["meta"]["targets.json"]["version"]
    names = [f"{snapshot}.snapshot.json", f"{targets}.targets.json", "timestamp.json"]
    roots = sorted(path.name for path in folder.glob("*.root.json"))
    return [*roots, *names], dict(_signed(folder / names[1])["targets"])


def _signed(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_bytes())["signed"])


def _releases(targets: dict[str, Any]) -> Iterator[dict[str, Any]]:
    locks = {name: one for name, one in targets.items() if name.startswith("releases/")}
    for path, lock in sorted(locks.items(), key=lambda one: -one[1]["custom"]["number"]):
        wheels = lock["custom"]["wheels"]
        yield {
            "release": path.removeprefix("releases/").removesuffix(".txt"),
            "number": lock["custom"]["number"],
            "wheels": wheels,
            "bytes": sum(targets[f"wheels/{wheel}"]["length"] for wheel in wheels),
        }
