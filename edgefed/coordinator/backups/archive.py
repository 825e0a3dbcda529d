"""The file of a backup: a tar archive whose last member lists the digests of all others.

Every member but the manifest is a regular file below ``coordinator/`` or ``trust/``. The manifest
comes last, so that an archive that was cut off has none. A reader checks every member: names, sizes
and digests must be those of the manifest, and nothing is written outside of the given folder.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefed.config.recipes.recipe import NAME_PATTERN
from edgefed.errors import StorageError
from edgefed.files.writing import make_folder, open_private, private_output, storage_error
from edgefed.version import PROTOCOL, VERSION

MANIFEST = "manifest.json"
MAX_MANIFEST = 64 * 1024**2
COORDINATOR, TRUST = "coordinator", "trust"
PIECE = 1 << 20

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ListedFile(_Strict):
    """A file of a backup.

    Attributes:
        size: in bytes.
        sha256: digest of its contents.
    """

    size: Annotated[int, Field(ge=0)]
    sha256: Digest


class Manifest(_Strict):
    """The contents of a backup.

    Attributes:
        format: version of the archive.
        version, protocol: of the EdgeFed that wrote it.
        fleet: whose coordinator.
        created: UTC time of the state.
        files: by name in the archive.
    """

    format: Literal[1] = 1
    version: str = VERSION
    protocol: int = PROTOCOL
    fleet: Annotated[str, Field(pattern=NAME_PATTERN)]
    created: Annotated[str, Field(max_length=40)]
    files: dict[str, ListedFile]


class _Digesting(io.RawIOBase):
    """Reads a file and digests the bytes read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.sha = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.sha.update(data)
        return data


def write_archive(path: Path, fleet: str, created: str, files: Mapping[str, Path]) -> Manifest:
    """Write a backup that only the owner can read; a failure leaves no part of it.

    Args:
        path: the new file; one that is there is replaced.
        fleet: whose backup.
        created: UTC time of the state.
        files: its files by name in the archive; one that grows meanwhile is cut off.

    Raises:
        StorageError: a file cannot be read, or the disk does not take the archive.
    """
    listed: dict[str, ListedFile] = {}
    with private_output(path) as out, tarfile.open(fileobj=out, mode="w") as tar:
        for name in sorted(files):
            listed[name] = _add(tar, name, files[name])
        manifest = Manifest(fleet=fleet, created=created, files=listed)
        text = manifest.model_dump_json().encode()
        member = tarfile.TarInfo(MANIFEST)
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    return manifest


def _add(tar: tarfile.TarFile, name: str, path: Path) -> ListedFile:
    try:
        file = path.open("rb")
    except OSError as error:
        raise storage_error(path, error) from error
    with file:
        member = tarfile.TarInfo(name)
        member.size, member.mode = path.stat().st_size, 0o600
        digesting = _Digesting(file)
        tar.addfile(member, digesting)
    return ListedFile(size=member.size, sha256=digesting.sha.hexdigest())


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a backup, without checking the files.

    Raises:
        StorageError: ``backup.damaged``: it is not a backup, or not a whole one; the file cannot
            be read.
    """
    with _readable(path) as tar:
        last = None
        for member in tar:
            last = member
        if last is None or last.name != MANIFEST:
            raise ValueError("its list of files is missing; it was cut off, or is no backup")
        return _manifest(tar, last)


def extract(path: Path, folder: Path) -> Manifest:
    """Write the files of a backup into an empty folder, and return its manifest.

    Raises:
        StorageError: ``backup.damaged``: it is not a whole backup; the disk does not take it. Files
            written so far stay.
    """
    files: dict[str, ListedFile] = {}
    manifest = None
    with _readable(path) as tar:
        for member in tar:
            if manifest is not None:
                raise ValueError("there is more after its list of files")
            if member.name == MANIFEST:
                manifest = _manifest(tar, member)
                continue
            _check_member(member, files)
            files[member.name] = _write(tar, member, folder)
        if manifest is None:
            raise ValueError("its list of files is missing; it was cut off, or is no backup")
        if files != manifest.files:
            wrong = sorted(
                name
                for name in {*files, *manifest.files}
                if files.get(name) != manifest.files.get(name)
            )
            raise ValueError(f"{wrong[0]} is not as it was written")
    return manifest


def _check_member(member: tarfile.TarInfo, files: Mapping[str, ListedFile]) -> None:
    """Refuse a member that is not a regular file in its own place below one of the two folders."""
    parts = PurePosixPath(member.name).parts
    plain = "/".join(parts) == member.name and "\\" not in member.name
    if not plain or ".." in parts or len(parts) < 2 or parts[0] not in (COORDINATOR, TRUST):
        raise ValueError(f"{member.name!r} is not the name of a file of a backup")
    if not member.isreg():
        raise ValueError(f"{member.name} is not a regular file")
    if member.name in files:
        raise ValueError(f"{member.name} is in it twice")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> ListedFile:
    path = folder.joinpath(*PurePosixPath(member.name).parts)
    source = tar.extractfile(member)
    if source is None:
        raise ValueError(f"{member.name} is not a regular file")
    make_folder(path.parent)
    sha = hashlib.sha256()
    try:
        with open_private(path, "xb") as file:
            while piece := source.read(PIECE):
                sha.update(piece)
                file.write(piece)
    except tarfile.TarError:  # some of them are OSErrors
        raise
    except OSError as error:
        raise storage_error(path, error, member.size) from error
    return ListedFile(size=member.size, sha256=sha.hexdigest())


def _manifest(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Manifest:
    source = tar.extractfile(member) if member.isreg() else None
    if source is None or member.size > MAX_MANIFEST:
        raise ValueError("its list of files is damaged")
    text = source.read()
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise ValueError(
            f"its list of files cannot be read ({where or 'no JSON'}); a newer EdgeFed may have"
            " written it"
        ) from error


@contextmanager
def _readable(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive; turn errors of a damaged one into an EdgeFed error."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise storage_error(path, error) from error
    try:
        with file, tarfile.open(fileobj=file, mode="r:") as tar:
            yield tar
    except (tarfile.TarError, ValueError, EOFError, RecursionError, OverflowError) as error:
        raise StorageError(
            f"{path} cannot be used as a backup: {' '.join(str(error).split())}.",
            code="backup.damaged",
            hint="use another backup; nothing was changed",
        ) from error
