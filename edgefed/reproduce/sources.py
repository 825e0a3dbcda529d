"""Where the data of a table is: on disk under ``--data``, or in the download folder.

The smallest scale of a table needs no file: its digits are scikit-learn's, drawn in a random hue
that says nothing about the label, and in its texts each role uses words of a few syllables of its
own, so that roles differ and the next character can be learned.
"""

from __future__ import annotations

import colorsys
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefed.config.recipes.recipe import DataSection
from edgefed.data.base.types import Array
from edgefed.data.sets.datasets import load
from edgefed.data.sets.vision import VISION_SETS
from edgefed.errors import MissingDataError
from edgefed.files.samples import Samples
from edgefed.files.writing import write_atomic
from edgefed.reproduce.table import Settings
from edgefed.seeds import generator

ROLES = 8
WORDS = 60
VOWELS, CONSONANTS = "aeiou", "bdfgklmnprst"


def made_texts(path: Path) -> Path:
    """Write the same texts as every time, unless they are there, and return their path.

    Raises:
        StorageError: the disk does not take them.
    """
    text = "".join(f"{json.dumps(_role(number))}\n" for number in range(ROLES)).encode()
    if not path.is_file() or path.read_bytes() != text:
        write_atomic(path, text)
    return path


def _role(number: int) -> dict[str, str]:
    rng = generator(0, "reproduce", "made", number)
    syllables = [str(rng.choice(list(CONSONANTS))) + str(rng.choice(list(VOWELS))) for _ in "four"]
    words = ["".join(rng.choice(syllables, size=rng.integers(1, 4))) for _ in range(WORDS)]
    return {"role": f"made/{number}", "text": " ".join(words)}


def coloured_digits(path: Path) -> Path:
    """Write the same images as every time, unless they are there, and return their path.

    Raises:
        MissingDataError: scikit-learn is not installed.
        StorageError: the disk does not take them.
    """
    digits = load(DataSection(name="digits"), None, 0)
    content = io.BytesIO()
    np.savez(
        content,
        x_train=_coloured(digits.train, "train"),
        y_train=digits.train.targets,
        x_test=_coloured(digits.test, "test"),
        y_test=digits.test.targets,
    )
    if not path.is_file() or path.read_bytes() != content.getvalue():
        write_atomic(path, content.getvalue())
    return path


def _coloured(samples: Samples, part: str) -> Array:
    """Return images as uint8 (n, height, width, 3)."""
    rng = generator(0, "reproduce", "coloured", part)
    hues = rng.random(len(samples))
    colours = np.array([colorsys.hsv_to_rgb(hue, 1.0, 1.0) for hue in hues])
    images = samples.inputs[:, 0, :, :, None] * colours[:, None, None, :]
    coloured: Array = np.round(255 * images).astype(np.uint8)
    return coloured


@dataclass(frozen=True)
class Place:
    """A way in which a data set may lie in a folder.

    Attributes:
        pattern: of the searched path, from the folder.
        name: the recipe's data set that reads it.
        root: the part of the folder that the recipe names; None for the found path.
        beside: a path that must exist beside the found one.
    """

    pattern: str
    name: str
    root: str | None = None
    beside: str = ""


@dataclass(frozen=True)
class Made:
    """A data set that is made here.

    Attributes:
        file: its name.
        name: the recipe's data set that reads it.
        make: writes it to a path, unless it is there, and returns the path.
    """

    file: str
    name: str
    make: Callable[[Path], Path]


MADE: Mapping[str, Made] = {
    "made-texts": Made("made.jsonl", "shakespeare", made_texts),
    "made-colours": Made("coloured-digits.npz", "npz", coloured_digits),
}


@dataclass(frozen=True)
class PaperSource:
    """A data set as the tables call it.

    Attributes:
        get: how to come by it.
        moments: the torchvision set whose mean and deviation it is normalised with.
    """

    title: str
    places: tuple[Place, ...]
    get: str
    moments: str = ""


@dataclass(frozen=True)
class Located:
    """Recipe keys that name data on this machine, with notes about them."""

    settings: Settings
    note: str = ""


def _vision(name: str, title: str, *files: str) -> PaperSource:
    """Return one of torchvision's sets, which may also lie there as an NPZ file."""
    folder = VISION_SETS[name].place
    subfolder = files[0].partition("/")[0]
    places = (
        *(Place(file, "npz") for file in files),
        Place(folder, name, root=""),
        Place(f"{subfolder}/{folder}", name, root=subfolder),
    )
    return PaperSource(title, places, "leave --data out, and it is downloaded", name)


SOURCES: Mapping[str, PaperSource] = {
    "mnist-writers": PaperSource(
        "MNIST by writer",
        (
            Place("mnist/mnist.npz", "npz", beside="mnist_writers.npz"),
            Place("mnist.npz", "npz", beside="mnist_writers.npz"),
        ),
        "QMNIST's labels tell who wrote each digit; docs/data.md has the arrays",
    ),
    "mnist": _vision("mnist", "MNIST", "mnist/mnist.npz"),
    "fashion-mnist": _vision("fashion-mnist", "Fashion-MNIST", "fashion_mnist/fashion_mnist.npz"),
    "cifar10": _vision("cifar10", "CIFAR-10", "cifar10/cifar10.npz", "cifar10/cifar10_jpeg.npz"),
    "cifar10-images": PaperSource(
        "CIFAR-10 as image files",
        (Place("cifar10/images", "folder"),),
        "docs/scale.md has the lines that write them",
    ),
    "cifar100": _vision(
        "cifar100", "CIFAR-100", "cifar100/cifar100.npz", "cifar100/cifar100_jpeg.npz"
    ),
    "svhn": _vision("svhn", "SVHN", "svhn/svhn.npz"),
    "femnist": PaperSource(
        "FEMNIST",
        (
            Place("femnist/train/*.json", "femnist", root="femnist"),
            Place("femnist/*.json", "femnist", root="femnist"),
            Place("femnist/femnist.npz", "npz"),
        ),
        "LEAF's preprocess.sh makes its files",
    ),
    "shakespeare": PaperSource(
        "Shakespeare by role",
        (
            Place("shakespeare/*.jsonl", "shakespeare"),
            Place("shakespeare/roles/*.txt", "shakespeare", root="shakespeare/roles"),
        ),
        'a .jsonl file of {"role": …, "text": …}, as docs/data.md has it',
    ),
}


def locate(settings: Settings, folder: Path | None, scratch: Path) -> Located:
    """Return a recipe's keys with the places of their data.

    Args:
        settings: ``data.name`` is a set's name as the tables have it.
        folder: the only folder to search; None to download the data if possible.
        scratch: folder for generated data.

    Raises:
        DataError: it is missing, or cannot be downloaded.
        StorageError: generated data cannot be written.
    """
    name = str(settings.get("data.name", "digits"))
    made = MADE.get(name)
    if made is not None:
        path = str(made.make(scratch / made.file))
        return Located({**settings, "data.name": made.name, "data.path": path})
    source = SOURCES.get(name)
    if source is None or (folder is None and source.moments):
        return Located(settings)
    if folder is None:
        raise MissingDataError(
            f"{source.title} cannot be downloaded; name a folder with it by --data FOLDER.",
            code="data.missing",
            hint=f"{_asked(source)}; {source.get}",
        )
    return _found(source, settings, folder)


def fetch(section: DataSection, folder: Path) -> None:
    """Download a recipe's data set, if it is one of torchvision's and missing.

    Raises:
        DataError: it cannot be downloaded.
    """
    known = VISION_SETS.get(section.name)
    path = folder / str(section.settings().get("path", ""))
    if known is not None and not any(path.glob(known.place)):
        load(section, folder, 0)


def _found(source: PaperSource, settings: Settings, folder: Path) -> Located:
    root = folder.expanduser().absolute()
    if not root.is_dir():
        raise MissingDataError(
            f"--data {folder}: no such folder.", code="data.missing", hint="check the path"
        )
    for place in source.places:
        for path in sorted(root.glob(place.pattern)):
            if place.beside and not path.with_name(place.beside).is_file():
                continue
            named = path if place.root is None else root / place.root
            values = {**settings, "data.name": place.name, "data.path": str(named)}
            note = f"{source.title} is {path.name}: compressed with loss" if _lossy(path) else ""
            return Located({**values, **_moments(source, place, settings)}, note)
    raise MissingDataError(
        f"{source.title} is not in {folder}.",
        code="data.missing",
        hint=f"searched for {_asked(source)}; {source.get}",
    )


def _asked(source: PaperSource) -> str:
    patterns = [f"{p.pattern} with {p.beside}" if p.beside else p.pattern for p in source.places]
    return ", ".join(patterns)


def _lossy(path: Path) -> bool:
    return path.stem.endswith("_jpeg")


def _moments(source: PaperSource, place: Place, settings: Settings) -> Settings:
    """Return the mean and deviation that torchvision's own files would be normalised with."""
    known = VISION_SETS.get(source.moments)
    if place.name != "npz" or not settings.get("data.normalize") or known is None:
        return {}
    if known.moments is None:
        return {}
    return {"data.mean": list(known.moments.mean), "data.std": list(known.moments.std)}
