"""Verify an offered release: TUF metadata from the pinned root, and the wheels for this board."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename
from tuf.api.exceptions import DownloadError, DownloadHTTPError, RepositoryError
from tuf.api.metadata import Metadata, Root, TargetFile
from tuf.ngclient import FetcherInterface, Updater

from edgefed.version import BUILT

SIGNED_AT = "x-edgefed-signed"
"""Field of ``timestamp.json``: the UTC time of its signature."""

NEVER = re.compile(r"(torch|torchvision|torchaudio|triton|nvidia[-_.].+)")
"""Distributions that stay as the board has them, whatever a release says."""


class RefusedReleaseError(Exception):
    """An offered release is not to be installed; the text says why."""


@dataclass(frozen=True)
class VerifiedRelease:
    """A release that the release manager has signed.

    Attributes:
        number: counts releases.
        files: SHA-256 and size of the lock, ``lock.txt``, and of the wheels for this board.
        versions: version of each wheel's distribution.
        signed_at: time of the newest signature; also a lower bound for the clock.
    """

    release: str
    number: int
    files: dict[str, tuple[str, int]]
    versions: dict[str, str]
    signed_at: str


class BlobFetcher(FetcherInterface):  # type: ignore[misc,unused-ignore]
    """Reads metadata from received blobs, in place of a download.

    Args:
        find: returns the file of a name such as ``2.targets.json``; None for none.
    """

    def __init__(self, find: Callable[[str], Path | None]) -> None:
        self._find = find

    def _fetch(self, url: str) -> Iterator[bytes]:
        path = self._find(url.rpartition("/")[2])
        if path is None or not path.is_file():
            raise DownloadHTTPError("not offered", 404)
        return iter([path.read_bytes()])


def check_root(path: Path) -> None:
    """Check that a file is root metadata, signed by the keys that it names.

    Raises:
        RefusedReleaseError: it is not, or cannot be read.
    """
    try:
        made = Metadata[Root].from_bytes(path.read_bytes())
        if made.signed.type != "root":
            raise RefusedReleaseError(f"it is of the role {made.signed.type}")
        made.signed.verify_delegate("root", made.signed_bytes, made.signatures)
    except (OSError, RepositoryError, ValueError) as error:
        raise RefusedReleaseError(str(error)) from error


def verify(
    release: str,
    find: Callable[[str], Path | None],
    folder: Path,
    root: bytes,
    clock: datetime,
    signed_at: str,
) -> VerifiedRelease:
    """Return an offered release, verified with the metadata that it comes with.

    Expiry counts from the latest of the board's clock, the build of this program, and the last
    verified signature: a clock that is behind does not revive old metadata.

    Args:
        release: its name.
        find: returns the file of each offered metadata.
        folder: of the metadata that was verified before; older metadata is refused.
        root: the pinned root metadata.
        clock: the UTC time of the board.
        signed_at: time of the last verified signature; empty for none.

    Raises:
        RefusedReleaseError: the metadata is tampered with, older, expired or incomplete, or there
            is no such release for this board.
    """
    known = [clock, _moment(BUILT), *([_moment(signed_at)] if signed_at else [])]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        updater = Updater(str(folder), "offer:/", fetcher=BlobFetcher(find), bootstrap=root)
        updater._trusted_set.reference_time = max(known)
        updater.refresh()
        lock = updater.get_targetinfo(f"releases/{release}.txt")
        if lock is None:
            raise RefusedReleaseError(f"there is no release {release} any more")
        signed = str(updater._trusted_set.timestamp.unrecognized_fields.get(SIGNED_AT, ""))
        return _release(release, lock, updater.get_targetinfo, max(signed, signed_at))
    except (RepositoryError, DownloadError) as error:
        raise RefusedReleaseError(f"its metadata is refused: {error}") from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise RefusedReleaseError(f"its metadata cannot be read: {error}") from error


def _release(
    release: str, lock: TargetFile, target: Callable[[str], TargetFile | None], signed_at: str
) -> VerifiedRelease:
    custom: Mapping[str, Any] = lock.custom or {}
    files = {"lock.txt": _digest(lock)}
    versions = {}
    for wheel, version in _chosen(custom["wheels"]).items():
        info = target(f"wheels/{wheel}")
        if info is None:
            raise RefusedReleaseError(f"its wheel {wheel} is missing")
        files[wheel], versions[wheel] = _digest(info), version
    _moment(signed_at)
    return VerifiedRelease(release, int(custom["number"]), files, versions, signed_at)


def _chosen(wheels: list[str]) -> dict[str, str]:
    """Return the best wheel for this board of each distribution, with its version."""
    ranks = {tag: rank for rank, tag in enumerate(sys_tags())}
    best: dict[str, tuple[int, str, str]] = {}
    for wheel in wheels:
        name, version, _, tags = parse_wheel_filename(wheel)
        if NEVER.fullmatch(name):
            raise RefusedReleaseError(f"it would replace {name}")
        fitting = [ranks[tag] for tag in tags if tag in ranks]
        best.setdefault(name, (len(ranks), "", ""))
        if fitting:
            best[name] = min(best[name], (min(fitting), wheel, str(version)))
    for distribution, (_, wheel, _) in best.items():
        if not wheel:
            raise RefusedReleaseError(f"it has no wheel of {distribution} for this board")
    return {wheel: version for _, wheel, version in best.values()}


def _digest(target: TargetFile) -> tuple[str, int]:
    digest = str(target.hashes["sha256"])
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise RefusedReleaseError("a hash of it is none")
    return digest, int(target.length)


def _moment(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).astimezone(timezone.utc)
