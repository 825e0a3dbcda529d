"""Releases of the agent: a signed repository of locked wheels (The Update Framework, TUF 1.0).

The keys of the roles ``root`` and ``targets`` are in a folder of the release manager, away from the
fleet: only they make a release. The online keys of ``snapshot`` and ``timestamp`` are beside the
repository: they confirm which metadata is the newest, and for how long.

    FOLDER/metadata/  1.root.json, N.targets.json, N.snapshot.json, timestamp.json
    FOLDER/targets/   releases/SHA256.NAME.txt, wheels/SHA256.NAME.whl
    FOLDER/online/    snapshot.pem, timestamp.pem
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from securesystemslib.signer import CryptoSigner
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import (
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)

from edgefed.errors import NotAllowedError, StorageError, UnknownNameError, UsageError
from edgefed.files.writing import storage_error, write_atomic, write_output
from edgefed.process.clock import timestamp

OFFLINE, ONLINE = ("root", "targets"), ("snapshot", "timestamp")

YEAR = timedelta(days=365)
"""Life of the metadata that offline keys sign."""

RELEASE_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")

NEVER = re.compile(r"(torch|torchvision|torchaudio|triton|nvidia[-_.].+)")
"""Distributions that stay as a board has them."""

SIGNED_AT = "x-edgefed-signed"
"""Field of ``timestamp.json``: the UTC time of the signature, a lower bound for a board's clock."""


@dataclass(frozen=True)
class Release:
    """A release in a repository.

    Attributes:
        number: counts releases; a device never goes to a lower one.
        wheels: names of their files.
        size: bytes of all wheels.
    """

    release: str
    number: int
    wheels: tuple[str, ...]
    size: int

    @property
    def version(self) -> str:
        """Version of EdgeFed's wheel."""
        parsed = (parse_wheel_filename(wheel) for wheel in self.wheels)
        return next(str(version) for name, version, *_ in parsed if name == "edgefed")

    @property
    def is_misnamed(self) -> bool:
        """Whether the name is another version than that of EdgeFed's wheel."""
        try:
            return Version(self.release).release != Version(self.version).release
        except InvalidVersion:  # any other name is free
            return False


def create(folder: Path, keys: Path, now: datetime, days: float) -> Path:
    """Make an empty repository and its keys; return the root metadata that devices pin.

    Args:
        folder: of the repository.
        keys: folder for the private keys of ``root`` and ``targets``.
        now: the UTC time.
        days: life of ``timestamp.json``.

    Raises:
        NotAllowedError: ``release.exists``: either has files of this kind already.
    """
    online = folder / "online"
    for path in (folder / "metadata", online, *(keys / f"{role}.pem" for role in OFFLINE)):
        if path.exists():
            raise NotAllowedError(f"{path} exists already.", code="release.exists")
    root = Root(expires=now + YEAR, consistent_snapshot=True)
    for place, roles in ((keys, OFFLINE), (online, ONLINE)):
        for role in roles:
            signer = CryptoSigner.generate_ed25519()
            write_atomic(place / f"{role}.pem", signer.private_bytes)
            root.add_key(signer.public_key, role)
    repository = ReleaseRepository(folder, now)
    repository.write("root", root, keys)
    repository.write("targets", Targets(expires=now + YEAR), keys)
    repository.sign(days)
    return folder / "metadata" / "1.root.json"


class ReleaseRepository:
    """A repository, to be read and extended.

    Args:
        folder: of the repository.
        now: the UTC time.
    """

    def __init__(self, folder: Path, now: datetime) -> None:
        self._folder = folder
        self._metadata = folder / "metadata"
        self._now = now.replace(microsecond=0)

    def releases(self) -> list[Release]:
        """Return the releases, the newest first.

        Raises:
            StorageError: ``release.damaged``.
        """
        targets = self._newest("targets").targets
        releases = [
            Release(
                path.removeprefix("releases/").removesuffix(".txt"),
                int(target.custom["number"]),
                tuple(target.custom["wheels"]),
                sum(targets[f"wheels/{name}"].length for name in target.custom["wheels"]),
            )
            for path, target in targets.items()
            if path.startswith("releases/") and target.custom
        ]
        return sorted(releases, key=lambda release: -release.number)

    def expiries(self) -> dict[str, str]:
        """Return the UTC time until which each role's metadata is valid."""
        return {role: timestamp(self._newest(role).expires) for role in (*OFFLINE, *ONLINE)}

    def add(self, release: str, wheels: Path, keys: Path) -> tuple[Release, list[str]]:
        """Add a release of the wheels in a folder; ``sign`` then publishes it.

        Args:
            release: its name; usually the version of EdgeFed in it.
            wheels: the folder. Wheels of torch and NVIDIA are left out.
            keys: folder with the key of ``targets``.

        Returns:
            The release, and the files that were left out.

        Raises:
            UsageError: ``release.name``, ``release.wheels``.
            StorageError: a file cannot be read or written.
        """
        if not RELEASE_NAME.fullmatch(release):
            raise UsageError(f"'{release}' cannot name a release.", code="release.name")
        before = self.releases()
        if release in (other.release for other in before):
            raise UsageError(
                f"There is a release {release}.",
                code="release.name",
                hint="to go back to old content, add it under a new name",
            )
        chosen, left_out = _chosen(sorted(wheels.glob("*.whl")))
        targets = self._next("targets", Targets)
        files = {path: TargetFile.from_file(f"wheels/{path.name}", str(path)) for path in chosen}
        for path, target in files.items():
            place, data = self._place(target), path.read_bytes()
            if not place.exists() or place.read_bytes() != data:
                write_output(place, data)
            targets.targets[target.path] = target
        text = _lock(chosen, files)
        lock = TargetFile.from_data(f"releases/{release}.txt", text.encode())
        number = 1 + max((other.number for other in before), default=0)
        names = sorted(path.name for path in chosen)
        lock.unrecognized_fields["custom"] = {"number": number, "wheels": names}
        write_output(self._place(lock), text.encode())
        targets.targets[lock.path] = lock
        targets.expires = self._now + YEAR
        self.write("targets", targets, keys)
        size = sum(file.length for file in files.values())
        return Release(release, number, tuple(names), size), left_out

    def sign(self, days: float) -> None:
        """Publish the newest metadata: sign snapshot and timestamp with the online keys.

        Args:
            days: for which devices accept them.
        """
        online = self._folder / "online"
        until = self._now + timedelta(days=days)
        snapshot, stamp = self._next("snapshot", Snapshot), self._next("timestamp", Timestamp)
        snapshot.expires = stamp.expires = until
        snapshot.meta["targets.json"] = MetaFile(self._newest("targets").version)
        self.write("snapshot", snapshot, online)
        stamp.snapshot_meta = MetaFile(snapshot.version)
        stamp.unrecognized_fields[SIGNED_AT] = timestamp(self._now)
        self.write("timestamp", stamp, online)

    def renew(self, keys: Path, days: float, replaced: Sequence[str] = ()) -> None:
        """Sign root and targets for another year, and give roles new keys.

        Devices follow from the root that they have pinned to the new one, which the old key of
        ``root`` has signed, too. Each new key is stored beside the old one until the metadata that
        names it is: a renewal that is interrupted loses none, and the next one removes those
        that no metadata names.

        Args:
            keys: folder with the key of ``root``; that of ``targets`` may be lost if it is
                replaced.
            days: as for ``sign``.
            replaced: the roles that get a new key.

        Raises:
            UsageError: ``release.role``: there is no such role.
            NotAllowedError: ``release.key``.
            StorageError: a file cannot be read or written.
        """
        for role in replaced:
            if role not in (*OFFLINE, *ONLINE):
                hint = f"the roles are {', '.join((*OFFLINE, *ONLINE))}"
                raise UsageError(f"There is no role '{role}'.", code="release.role", hint=hint)
        signers = [self._signer("root", keys)]
        root = self._next("root", Root)
        for role in replaced:
            path = self._key_path(role, keys)
            for key in list(root.roles[role].keyids):
                root.revoke_key(key, role)
            signer = CryptoSigner.generate_ed25519()
            write_atomic(_beside(path), signer.private_bytes)
            root.add_key(signer.public_key, role)
            signers += [signer] if role == "root" else []
        root.expires = self._now + YEAR
        self._write("root", root, signers)
        for role in (*OFFLINE, *ONLINE):
            left = _beside(self._key_path(role, keys))  # of a renewal that was cut short
            with contextlib.suppress(OSError):  # the medium may be read-only
                left.unlink()
        targets = self._next("targets", Targets)
        targets.expires = self._now + YEAR
        self.write("targets", targets, keys)
        self.sign(days)

    def write(self, role: str, signed: Root | Targets | Snapshot | Timestamp, keys: Path) -> None:
        """Sign metadata with the key of its role, and write it.

        Raises:
            NotAllowedError: ``release.key``: the folder has no key of the role, or another one.
        """
        root = signed if isinstance(signed, Root) else None
        self._write(role, signed, [self._signer(role, keys, root)])

    def _write(self, role: str, signed: Any, signers: Iterable[CryptoSigner]) -> None:
        made = Metadata[Any](signed)
        for signer in signers:
            made.sign(signer, append=True)
        name = f"{role}.json" if role == "timestamp" else f"{signed.version}.{role}.json"
        write_output(self._metadata / name, made.to_bytes())

    def _signer(self, role: str, keys: Path, root: Root | None = None) -> CryptoSigner:
        """Return the key of a role, which ``root`` or the newest root names.

        Raises:
            NotAllowedError: ``release.key``.
        """
        path = self._key_path(role, keys) if root is None else keys / f"{role}.pem"
        try:
            signer = _read_key(path)
        except (OSError, ValueError) as error:
            raise NotAllowedError(
                f"The key of the role {role} cannot be read from {path}.",
                code="release.key",
                hint="name the folder of the release manager's keys with --keys",
            ) from error
        if signer.public_key.keyid not in (root or self._newest("root")).roles[role].keyids:
            raise NotAllowedError(
                f"{path} is not the key of {role}: it was replaced, or is of another repository.",
                code="release.key",
                hint="name the folder of the newest keys with --keys",
            )
        return signer

    def _key_path(self, role: str, keys: Path) -> Path:
        """Return the file of a role's key; a new key that the root names is put into its place."""
        path = (self._folder / "online" if role in ONLINE else keys) / f"{role}.pem"
        new = _beside(path)
        with contextlib.suppress(FileNotFoundError):
            if _read_key(new).public_key.keyid in self._newest("root").roles[role].keyids:
                new.replace(path)
        return path

    def _next(self, role: str, of: type[Any]) -> Any:
        """Return a copy of a role's newest metadata with the next version; of none, the first."""
        if not self._files(role):
            return of()
        made = self._newest(role)
        made.version += 1
        return made

    def _files(self, role: str) -> list[Path]:
        """Return the files of a role, the newest last."""
        files = self._metadata.glob("timestamp.json" if role == "timestamp" else f"*.{role}.json")
        return sorted(files, key=lambda path: (len(path.name), path.name))

    def _newest(self, role: str) -> Any:  # of the class of the role
        paths = self._files(role)
        if not paths:
            raise UnknownNameError(
                f"There are no releases in {self._folder}.",
                code="release.unknown",
                hint="edgefed release init FOLDER --keys KEYS",
            )
        try:
            return Metadata[Root].from_bytes(paths[-1].read_bytes()).signed
        except OSError as error:
            raise storage_error(paths[-1], error) from error
        except (RepositoryError, ValueError) as error:
            raise StorageError(f"{paths[-1]} is damaged.", code="release.damaged") from error

    def _place(self, target: TargetFile) -> Path:
        folder, _, name = target.path.rpartition("/")
        return self._folder / "targets" / folder / f"{target.hashes['sha256']}.{name}"


def _beside(path: Path) -> Path:
    return path.with_suffix(".new.pem")


def _read_key(path: Path) -> CryptoSigner:
    key: Any = load_pem_private_key(path.read_bytes(), None)
    return CryptoSigner(key)


def _chosen(paths: Iterable[Path]) -> tuple[dict[Path, str], list[str]]:
    """Return the wheels of a release with their requirements, and the names of the others.

    Raises:
        UsageError: ``release.wheels``.
    """
    chosen: dict[Path, str] = {}
    versions: dict[str, str] = {}
    left_out = []
    for path in paths:
        try:
            name, version, *_ = parse_wheel_filename(path.name)
        except InvalidWheelFilename as error:
            raise UsageError(f"{path} is not a wheel.", code="release.wheels") from error
        if NEVER.fullmatch(name):
            left_out.append(path.name)
            continue
        if versions.setdefault(name, str(version)) != str(version):
            raise UsageError(f"There are two versions of {name}.", code="release.wheels")
        chosen[path] = f"{name}=={version}"
    if "edgefed" not in versions:
        raise UsageError("There is no wheel of edgefed.", code="release.wheels")
    return chosen, left_out


def _lock(chosen: Mapping[Path, str], files: Mapping[Path, TargetFile]) -> str:
    """Return a requirements file with hashes: a line for each distribution."""
    hashes: dict[str, list[str]] = {}
    for path, requirement in chosen.items():
        hashes.setdefault(requirement, []).append(f"--hash=sha256:{files[path].hashes['sha256']}")
    return "".join(f"{name} {' '.join(digests)}\n" for name, digests in sorted(hashes.items()))
