"""The data source of a real device, from its settings: loaded and checked.

| source | contents |
| --- | --- |
| ``npz:FILE`` | ``x_train, y_train[, x_test, y_test]`` or ``x, y``; see `edgefed.data.sets.npz` |
| ``folder:FOLDER`` | ``FOLDER/CLASS/*.png``; ``?size=64&greyscale=true`` scales the images |
| ``text:FILE`` | a ``.txt`` or ``.jsonl`` file, or a folder; see `edgefed.data.sets.shakespeare` |
| ``mnist:FOLDER`` | MNIST, downloaded into ``FOLDER`` if it is missing; likewise |
| | ``fashion-mnist``, ``emnist``, ``cifar10``, ``cifar100`` and ``svhn`` |
| ``huggingface:PATH`` | a folder or file of Hugging Face's ``datasets``; see |
| | `edgefed.data.sets.hugging_face` |
| ``NAME:PATH`` | data of an installed package; see `edgefed.data.sets.dataset_reader` |

After a ``?``, each source accepts options that prepare its inputs, such as
``npz:FILE?normalize=true&mean=0.1307&std=0.3081``; a user's own files also accept ``max_bytes``.
The run defines crops and flips.

A test part of a source is used as it is. Without one, the same samples are held out each time. An
agent's split stays the same when its data grow; see `edgefed.data.devices.growing_split`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from pydantic import Field

from edgefed.data.base.alphabets import AlphabetName
from edgefed.data.base.checks import count_classes, require_samples
from edgefed.data.base.holdout import hold_out
from edgefed.data.base.limits import SizedOptions
from edgefed.data.base.paths import DECODED
from edgefed.data.base.preparation import Moments, PreparationOptions, prepare
from edgefed.data.base.types import UNPREPARED, ClassNames, DeviceData, Preparation
from edgefed.data.images.image_options import ImageOptions
from edgefed.data.sets.dataset_reader import SourceReader, read_guarded
from edgefed.data.sets.datasets import DATASET_PLUGINS
from edgefed.data.sets.folder import read_folder
from edgefed.data.sets.folder_listing import Ignored
from edgefed.data.sets.hugging_face import ColumnOptions, read_table
from edgefed.data.sets.npz import read_npz
from edgefed.data.sets.options import checked_options, nearest
from edgefed.data.sets.shakespeare import TextOptions, load_shakespeare
from edgefed.data.sets.vision import VISION_SETS, read_vision
from edgefed.errors import RecipeError, UsageError
from edgefed.files.samples import Samples
from edgefed.seeds import generator


@dataclass(frozen=True)
class Source:
    """The place of a device's data.

    Attributes:
        kind: a name of the table above.
        path: the file or folder; a relative one starts at the working folder.
        options: the keys after the ``?``.
    """

    kind: str
    path: Path
    options: dict[str, str]


class _NpzSource(SizedOptions, PreparationOptions):
    """Options of an NPZ file."""


class _FolderSource(ImageOptions, PreparationOptions):
    """Options of a folder of images."""


class _HuggingFaceSource(ColumnOptions, SizedOptions, PreparationOptions):
    """Options of a table of Hugging Face's ``datasets``."""


class _TextSource(SizedOptions, PreparationOptions):
    """Options of a text."""

    window: Annotated[int, Field(ge=1, le=10_000)] = 80
    """Number of characters of an input; the label is the next character."""

    stride: Annotated[int, Field(ge=1)] = 1
    """Characters from the start of one sample to that of the next."""

    alphabet: AlphabetName = "80"
    """Which characters have numbers; the same on every device."""


class _VisionSource(PreparationOptions):
    """Options of a data set that torchvision downloads."""


class _EmnistSource(_VisionSource):
    """Options of EMNIST."""

    split: Literal["balanced", "byclass", "letters", "digits"] = "balanced"
    """Which of its parts."""


@dataclass(frozen=True, eq=False)
class _Content:
    train: Samples
    test: Samples | None
    classes: int
    warnings: tuple[str, ...] = ()
    preparation: Preparation = UNPREPARED
    class_names: ClassNames = ()
    ignored: tuple[Ignored, ...] = ()


@dataclass(frozen=True)
class _Kind:
    """A kind of source: its options, how it is read, and the moments that papers use with it."""

    options: type[PreparationOptions]
    read: Callable[[Source, Any, float, Path], _Content]
    published: Moments | None = None


Divide = Callable[[Samples, ClassNames], tuple[Samples, Samples]]
"""Divides samples, with the names of their labels, into (train, test)."""


def parse_source(text: str) -> Source:
    """Parse ``KIND:PATH[?KEY=VALUE&…]``; nothing is opened.

    Raises:
        UsageError: the text is not a source.
        PluginError: packages offer the kind, but none of them can be used.
    """
    kind, colon, rest = text.strip().partition(":")
    path, _, options = rest.partition("?")
    if not colon or not path:
        raise UsageError(
            f"'{text}' does not name a path to the data." if text else "No data is named.",
            code="data.source",
            hint="set data to npz:FILE, folder:FOLDER, text:FILE or mnist:FOLDER",
        )
    if kind not in _KINDS and kind not in DATASET_PLUGINS.names():
        DATASET_PLUGINS.find(kind)  # a package may offer it in vain
        raise UsageError(
            f"There is no kind of data '{kind}'.",
            code="data.source",
            hint=nearest(kind, [*_KINDS, *DATASET_PLUGINS.names()]),
        )
    return Source(kind, Path(path).expanduser(), dict(parse_qsl(options, keep_blank_values=True)))


def load_device(
    source: str,
    holdout: float,
    folder: Path | None = None,
    split: Divide | None = None,
) -> DeviceData:
    """Return the device's samples for training and tests.

    Args:
        source: ``KIND:PATH``, as in the table above.
        holdout: share of the samples to keep for evaluation, in [0, 1), where the source has no
            test part of its own.
        folder: keeps the decoded images of an image folder; None for the folder around it.
        split: divides the samples of such a source; None for ``hold_out``.

    Raises:
        DataError: the data is missing, damaged, empty, or cannot be trained on.
        RecipeError: the source has no such option.
        PluginError: a package offers such sources, but cannot be used.
    """
    parsed = parse_source(source)
    kind = _kind(parsed.kind)
    where = f"Data '{parsed.kind}:{parsed.path}'"
    options = checked_options(kind.options, parsed.options, where)
    _check_moments(kind, options, where)
    decoded = (folder or parsed.path.parent) / DECODED
    content = kind.read(parsed, options, holdout, decoded)
    train, test = content.train, content.test
    if test is None:
        rng = generator(0, "data", "device", "holdout")
        train, test = (
            hold_out(train, holdout, rng) if split is None else split(train, content.class_names)
        )
    warnings = content.warnings
    if holdout > 0 and not len(test):
        warnings += (f"{parsed.path} leaves no samples for evaluation on this device",)
    if options.crop or options.flip:
        warnings += (f"crop and flip of {parsed.path} do nothing: each run says its own",)
    shape = train.inputs.shape[1:]
    train, test, preparation = prepare(train, test, options, content.preparation, kind.published)
    name = parsed.path.stem
    return DeviceData(
        train,
        test,
        content.classes,
        shape,
        name,
        warnings,
        preparation,
        content.class_names,
        {entry.reason: entry.count for entry in content.ignored},
        {entry.reason: entry.names for entry in content.ignored if entry.names},
    )


def _kind(name: str) -> _Kind:
    """Return a kind of source, built in or of a package."""
    if name in _KINDS:
        return _KINDS[name]
    reader = DATASET_PLUGINS.find(name)
    source = None if reader is None else reader.source
    if source is None:
        raise UsageError(
            f"The data set '{name}' is for recipes only: a device cannot read it.",
            code="data.source",
            hint=f"choose from: {', '.join(_KINDS)}",
        )
    return _Kind(source.options, partial(_read_plugin, source))


def _read_plugin(
    reader: SourceReader,
    source: Source,
    options: PreparationOptions,
    holdout: float,
    decoded: Path,
) -> _Content:
    del holdout, decoded
    read = read_guarded(source.kind, lambda: reader.read(source.path, options))
    require_samples(read.train, f"{source.kind}:{source.path}")
    test = read.test if len(read.test) else None
    return _Content(
        read.train, test, read.classes, read.warnings, read.preparation, read.class_names
    )


def _check_moments(kind: _Kind, options: PreparationOptions, where: str) -> None:
    if options.normalize and not options.mean and kind.published is None:
        raise RecipeError(
            f"{where}: 'normalize' needs `mean` and `std`, which all devices must share.",
            code="recipe.data",
            hint="edgefed data show RECIPE prints those of the whole data set",
        )


def _read_npz(source: Source, options: _NpzSource, holdout: float, decoded: Path) -> _Content:
    del holdout, decoded
    content = read_npz(source.path, max_bytes=options.max_bytes)
    return _Content(
        content.train,
        content.test,
        content.classes,
        content.warnings,
        content.preparation,
        content.class_names,
    )


def _read_folder(source: Source, options: _FolderSource, holdout: float, decoded: Path) -> _Content:
    del holdout
    content = read_folder(source.path, options, decoded)
    return _Content(
        content.samples,
        None,
        content.classes,
        content.warnings,
        class_names=content.class_names,
        ignored=content.ignored,
    )


def _read_hugging_face(
    source: Source, options: _HuggingFaceSource, holdout: float, decoded: Path
) -> _Content:
    del holdout, decoded
    table = read_table(str(source.path), options, options.split, options.max_bytes)
    classes = len(table.class_names) or count_classes(str(source.path), table.samples)
    return _Content(table.samples, None, classes, class_names=table.class_names)


def _read_text(source: Source, options: _TextSource, holdout: float, decoded: Path) -> _Content:
    del decoded
    keys = options.model_dump(include={"max_bytes", *_TextSource.__annotations__})
    chosen = TextOptions(path=str(source.path), test_share=holdout, **keys)
    dataset = load_shakespeare(chosen, None)
    return _Content(dataset.train, dataset.test, dataset.classes, dataset.warnings)


def _read_vision(source: Source, options: _VisionSource, holdout: float, decoded: Path) -> _Content:
    del holdout, decoded
    split = options.split if isinstance(options, _EmnistSource) else ""
    dataset = read_vision(VISION_SETS[source.kind], source.path, split)
    return _Content(dataset.train, dataset.test, dataset.classes, dataset.warnings)


_KINDS: dict[str, _Kind] = {
    "npz": _Kind(_NpzSource, _read_npz),
    "folder": _Kind(_FolderSource, _read_folder),
    "huggingface": _Kind(_HuggingFaceSource, _read_hugging_face),
    "text": _Kind(_TextSource, _read_text),
    **{
        name: _Kind(
            _EmnistSource if name == "emnist" else _VisionSource, _read_vision, which.moments
        )
        for name, which in VISION_SETS.items()
    },
}
