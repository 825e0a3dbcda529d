"""List the folder of a class: its images, and its ignored files by reason."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from edgefed.data.base.limits import MAX_PIXELS
from edgefed.data.images.image_decoding import SUFFIXES
from edgefed.terminal.printable import printable
from edgefed.terminal.units import counted

SHOWN = 6
"""Formats, or classes, that a warning lists before it only counts."""

MAX_COUNTED = 10_000
"""Files in folders of a class folder that are counted; the rest of them is not looked at."""

MAX_NAMED = 1000
"""Image files of one reason that are named."""

CONVERTIBLE = frozenset(
    {".arw", ".avif", ".cr2", ".cr3", ".dng", ".heic", ".heif", ".jp2", ".jxl", ".nef", ".orf"}
    | {".raf", ".rw2"}
)
"""Suffixes of photos in formats that are not read."""

_BESIDE = frozenset(
    {".aae", ".csv", ".db", ".html", ".ini", ".json", ".log", ".md", ".toml", ".txt", ".xml"}
    | {".xmp", ".yaml", ".yml"}
)
"""Suffixes of files that lie beside photos, and that nobody takes for photos."""

_PROBLEMS = {
    "unreadable": ("cannot be read and were skipped", "copy them again, or remove them"),
    "too_large": (
        f"have more than {MAX_PIXELS} pixels and were skipped",
        "scale them down, or remove them",
    ),
    "unlike": (
        "differ in size from the others and were skipped",
        "scale them all: folder:FOLDER?size=64 on a device, size = 64 in a recipe",
    ),
    "room": (
        "are not used, because the decoded images have no room",
        "free some space, raise max_bytes, or remove old images",
    ),
}
"""Of image files without an image, by reason: a description, and advice."""

_CONVERT = "convert photos to JPEG or PNG, for HEIC such as heif-convert IMAGE.HEIC IMAGE.jpg"


@dataclass(frozen=True)
class Listing:
    """The contents of a folder, without hidden files and folders.

    Attributes:
        images: files in formats that are read.
        unsupported: other files, except texts and the like.
        nested: folders.
        problem: why the folder cannot be listed; empty where it can.
    """

    images: Sequence[Path] = ()
    unsupported: Sequence[Path] = ()
    nested: Sequence[Path] = ()
    problem: str = ""

    @property
    def nested_files(self) -> int:
        """How many files the nested folders have at any depth, up to ``MAX_COUNTED``."""
        return sum(1 for _ in islice(_files_below(self.nested), MAX_COUNTED))


@dataclass(frozen=True)
class Ignored:
    """Files of a folder of classes that are not used, for one reason.

    Attributes:
        reason: ``unreadable``, ``too_large``, ``unlike``, ``room``, ``unsupported``, ``nested``,
            ``unsorted``; or ``closed`` for class folders, and ``unusable`` for classes.
        count: number of files.
        what: description of the files, with an example.
        hint: advice.
        names: paths of the image files among them below the folder, at most ``MAX_NAMED``.
    """

    reason: str
    count: int
    what: str
    hint: str
    names: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """The line for the data's owner."""
        return f"{self.what}; {self.hint}"


@dataclass
class IgnoredFiles:
    """Collects the ignored files of a folder of classes.

    Args:
        folder: of the classes' folders.
        classes: contents of each of them.
        loose: contents of the folder itself.
    """

    folder: Path
    classes: Mapping[Path, Listing]
    loose: Listing
    _problems: dict[str, list[Path]] = field(default_factory=dict)

    def note_problems(self, problems: Mapping[Path, str]) -> None:
        """Note the image files without an image, with the reasons."""
        for path, reason in problems.items():
            self._problems.setdefault(reason, []).append(path)

    def before_decoding(self) -> list[Ignored]:
        """Return the files that are ignored without opening any image."""
        return [*self._unsupported(), *self._nested(), *self._closed(), *self._unsorted()]

    def after_decoding(self) -> list[Ignored]:
        """Return everything; after ``note_problems``."""
        lost = Counter(path.parent for paths in self._problems.values() for path in paths)
        return [*self.without_image(), *self.before_decoding(), *self._unusable(lost)]

    def without_image(self) -> Iterator[Ignored]:
        """Yield the image files without an image, by reason."""
        files = sum(len(listing.images) for listing in self.classes.values())
        for reason, (what, hint) in _PROBLEMS.items():
            paths = self._problems.get(reason, ())
            if paths:
                names = tuple(self._named(path) for path in paths[:MAX_NAMED])
                text = f"{len(paths)} of {files} image files in {self.folder} {what}"
                yield Ignored(reason, len(paths), f"{text}, such as {names[0]}", hint, names)

    def _unsupported(self) -> Iterator[Ignored]:
        paths = [path for listing in self.classes.values() for path in listing.unsupported]
        if paths:
            what = (
                f"{counted(len(paths), 'file')} in {self.folder} of formats that are not read:"
                f" {_formats(paths)}, such as {self._named(paths[0])}"
            )
            yield Ignored("unsupported", len(paths), what, _CONVERT)

    def _nested(self) -> Iterator[Ignored]:
        listings = [listing for listing in self.classes.values() if listing.nested]
        files = sum(listing.nested_files for listing in listings)
        if files:
            nested = [folder for listing in listings for folder in listing.nested]
            what = (
                f"{counted(files, 'file')} in {self.folder} inside {counted(len(nested), 'folder')}"
                f" of class folders are not read, such as those in {self._named(nested[0])}"
            )
            yield Ignored("nested", files, what, "move the images into the class folder itself")

    def _closed(self) -> Iterator[Ignored]:
        closed = [folder for folder, listing in self.classes.items() if listing.problem]
        if closed:
            what = (
                f"{counted(len(closed), 'class folder')} of {self.folder} cannot be listed"
                f" ({self.classes[closed[0]].problem}), such as {self._named(closed[0])}"
            )
            hint = "let the user of this program read it: chmod u+rx FOLDER"
            yield Ignored("closed", len(closed), what, hint)

    def _unsorted(self) -> Iterator[Ignored]:
        photos = [path for path in self.loose.unsupported if _suffix(path) in CONVERTIBLE]
        loose = sorted([*self.loose.images, *photos])
        if loose:
            what = (
                f"image files that lie in {self.folder} itself, and so in no class, are not used:"
                f" {len(loose)}, such as {self._named(loose[0])}"
            )
            hint = "move them into the folder of their class"
            yield Ignored("unsorted", len(loose), what, hint)

    def _unusable(self, unreadable: Mapping[Path, int]) -> Iterator[Ignored]:
        """Name the classes that end without any image."""
        names = [
            f"'{printable(folder.name, '?')}' ({_why(listing)})"
            for folder, listing in self.classes.items()
            if unreadable.get(folder, 0) == len(listing.images)
        ]
        if names:
            what = (
                f"{len(names)} of {counted(len(self.classes), 'class', 'classes')} in {self.folder}"
                f" {'has' if len(names) == 1 else 'have'} no image that can be used:"
                f" {_first(names)}"
            )
            hint = "add images, or remove the folder if this device has none of the class"
            yield Ignored("unusable", len(names), what, hint)

    def _named(self, path: Path) -> str:
        """Return the path below the folder, as it can be shown."""
        return printable(str(path.relative_to(self.folder)), "?")


def list_folder(folder: Path) -> Listing:
    """Return the contents of a folder, sorted by name; empty if the folder is gone."""
    images: list[Path] = []
    unsupported: list[Path] = []
    nested: list[Path] = []
    try:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            path = folder / entry.name
            hidden = entry.name.startswith(".")
            if _is_folder(entry):
                nested += [] if hidden else [path]
            elif _suffix(path) in SUFFIXES:
                images.append(path)
            elif not hidden and _suffix(path) not in _BESIDE:
                unsupported.append(path)
    except FileNotFoundError:
        return Listing()
    except OSError as error:
        return Listing(problem=error.strerror or type(error).__name__)
    return Listing(images, unsupported, nested)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to where this program may not look
        return False


def _files_below(folders: Sequence[Path]) -> Iterator[str]:
    for folder in folders:
        for _, _, files in os.walk(folder):
            yield from (name for name in files if not name.startswith("."))


def _why(listing: Listing) -> str:
    """Return why a class has no image that can be used."""
    nested = listing.nested_files
    reasons = (
        "cannot be listed" if listing.problem else "",
        f"{counted(len(listing.images), 'image')} that cannot be read" if listing.images else "",
        _formats(listing.unsupported),
        f"{counted(nested, 'file')} in folders inside it" if nested else "",
    )
    return ", ".join(filter(None, reasons)) or "empty"


def _formats(paths: Sequence[Path]) -> str:
    """Return how many files have which suffix, such as ``12 .heic, 1 .mov``."""
    counts = Counter(printable(_suffix(path), "?")[:12] or "without suffix" for path in paths)
    return _first([f"{count} {suffix}" for suffix, count in counts.most_common()])


def _first(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return ", ".join(texts[:SHOWN]) + more


def _suffix(path: Path) -> str:
    return path.suffix.lower()
