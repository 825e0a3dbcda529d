"""The data sets that a recipe can name, and how to load one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from edgefed.config.recipes.recipe import DataSection
from edgefed.config.recipes.sections import Section
from edgefed.data.base.class_names import with_classes
from edgefed.data.base.paths import DECODED
from edgefed.data.base.preparation import Moments, prepared
from edgefed.data.base.types import Dataset, take
from edgefed.data.partitioners.keys import dataset_keys_of
from edgefed.data.partitioners.options import PartitionOptions
from edgefed.data.sets.dataset_cache import CachedSource, cached
from edgefed.data.sets.dataset_reader import DatasetReader, dataset_plugins, read_guarded
from edgefed.data.sets.digits import DigitsOptions, load_digits
from edgefed.data.sets.femnist import FemnistOptions, femnist_files, load_femnist
from edgefed.data.sets.folder import FolderOptions, load_folder
from edgefed.data.sets.hugging_face import (
    HuggingFaceOptions,
    hugging_face_files,
    load_hugging_face,
)
from edgefed.data.sets.memory import MEMORY, MemoryOptions, load_memory
from edgefed.data.sets.none import NoneOptions, load_none
from edgefed.data.sets.npz import NpzOptions, load_npz, npz_files
from edgefed.data.sets.options import DataOptions, checked_options, nearest
from edgefed.data.sets.shakespeare import TextOptions, load_shakespeare, text_files
from edgefed.data.sets.vision import (
    VISION_SETS,
    EmnistOptions,
    VisionOptions,
    load_vision,
    vision_files,
)
from edgefed.data.transforms.apply import transform_test
from edgefed.data.transforms.options import TransformOptions
from edgefed.errors import RecipeError
from edgefed.seeds import generator

__all__ = ["Dataset", "complete", "dataset_keys", "dataset_names", "load"]

Options = TypeVar("Options", bound=Section)

_AFTER_READING = frozenset(
    (*PartitionOptions.model_fields, *TransformOptions.model_fields, "limit")
)
"""The keys that apply to a data set once it is read and prepared."""

_READ = frozenset({"min_samples"})
"""Those of them that also decide what is read."""


class _Loader(Generic[Options]):
    """A data set's keys, and the function that they are for.

    Args:
        options: the model of the keys.
        read: reads the data set.
        summary: one line for lists.
        published: moments that papers use.
        files: lists the files that are read; None for data that are not cached.
    """

    def __init__(
        self,
        options: type[Options],
        read: Callable[[Options, Path | None], Dataset],
        summary: str,
        published: Moments | None = None,
        files: Callable[[Options, Path | None], Sequence[Path]] | None = None,
    ) -> None:
        self.summary = summary
        self.options = options
        self.read = read
        self.published = published
        self.files = files

    def load(self, section: DataSection, folder: Path | None, seed: int) -> Dataset:
        where = f"Data set '{section.name}'"
        options = checked_options(self.options, dataset_keys_of(section, self.options), where)
        if not isinstance(options, DataOptions):
            return with_classes(self.read(options, folder), section)
        dataset = with_classes(self._prepared(section.name, options, folder), section)
        return _finished(dataset, options, seed)

    def _prepared(self, name: str, options: Options, folder: Path | None) -> Dataset:
        """Return the data set as it was read and prepared, from the cache if it has one."""
        fields = type(options).model_fields
        unused = {key: fields[key].get_default() for key in _AFTER_READING - _READ if key in fields}
        reading = options.model_copy(update=unused)

        def read() -> Dataset:
            dataset = self.read(reading, folder)
            assert isinstance(reading, DataOptions)
            return prepared(dataset, reading, self.published)

        files = self.files
        if files is None or folder is None:
            return read()
        key = (name, reading.model_dump_json(), str(folder.absolute()))
        return cached(CachedSource(folder / DECODED, key, lambda: files(reading, folder)), read)


_LOADERS: dict[str, _Loader[Any]] = {
    "digits": _Loader(
        DigitsOptions, load_digits, "scikit-learn's handwritten digits, without a download"
    ),
    "npz": _Loader(NpzOptions, load_npz, "arrays in a file of the coordinator's", files=npz_files),
    "folder": _Loader(
        FolderOptions, load_folder, "images of the coordinator's, a folder for each class"
    ),
    **{
        name: _Loader(
            EmnistOptions if name == "emnist" else VisionOptions,
            partial(load_vision, which),
            f"{which.title}, which the coordinator downloads",
            which.moments,
            partial(vision_files, which),
        )
        for name, which in VISION_SETS.items()
    },
    "huggingface": _Loader(
        HuggingFaceOptions,
        load_hugging_face,
        "a data set of Hugging Face's hub, or a saved one",
        files=hugging_face_files,
    ),
    "femnist": _Loader(
        FemnistOptions,
        load_femnist,
        "characters by writer, from LEAF's files",
        files=femnist_files,
    ),
    "shakespeare": _Loader(
        TextOptions,
        load_shakespeare,
        "the next character of plays, from LEAF's files",
        files=text_files,
    ),
    MEMORY: _Loader(MemoryOptions, load_memory, "data that a Python program passes"),
    "none": _Loader(NoneOptions, load_none, "no data here: devices test on their own"),
}


DATASET_PLUGINS = dataset_plugins(lambda: (*_LOADERS, "text"))
"""The data sets of installed packages; ``text`` is a source of devices."""


def dataset_names() -> tuple[str, ...]:
    """Return the names that ``[data] name`` may have."""
    return (*_LOADERS, *DATASET_PLUGINS.names())


def dataset_keys() -> dict[str, type[Section]]:
    """Return the model of each built-in data set's own keys, by the data set's name."""
    return {name: loader.options for name, loader in _LOADERS.items()}


def dataset_summaries() -> dict[str, str]:
    """Return a description of each built-in data set in a line, by the data set's name."""
    return {name: loader.summary for name, loader in _LOADERS.items()}


def find_options(name: str) -> type[Section] | None:
    """Return the model of a data set's own keys; None if there is no such data set.

    Raises:
        PluginError: a package offers it, but it cannot be used.
    """
    loader = _find(name)
    return None if loader is None else loader.options


def load(section: DataSection, folder: Path | None, seed: int) -> Dataset:
    """Return the data set that a recipe names.

    Args:
        section: its name, and the keys of that data set.
        folder: base of relative paths, and place of downloads; None for the working folder.
        seed: the run's; decides only which samples stay when ``limit`` is set. The samples held out
            for testing are the same in every run, so that runs can be compared.

    Raises:
        RecipeError: there is no such data set, or no such key.
        PluginError: a package offers it, but it cannot be used.
        DataError: the data is missing or cannot be trained on.
    """
    loader = _find(section.name)
    if loader is None:
        raise RecipeError(
            f"There is no data set '{section.name}'.",
            code="recipe.data",
            hint=nearest(section.name, list(dataset_names())),
        )
    return loader.load(section, folder, seed)


def complete(dataset: Dataset, section: DataSection, options: DataOptions, seed: int) -> Dataset:
    """Return a data set that was not loaded by name, with the classes and keys of a recipe.

    Raises:
        RecipeError: it cannot be prepared like that.
        DataError: it has other classes, or targets, than the recipe needs.
    """
    return _finished(prepared(with_classes(dataset, section), options, None), options, seed)


def _finished(dataset: Dataset, options: DataOptions, seed: int) -> Dataset:
    """Return a data set, prepared before, with the keys that apply after it was read."""
    return _limited(transform_test(dataset, options), options.limit, seed)


def _find(name: str) -> _Loader[Any] | None:
    """Return the loader of a data set, built in or of a package."""
    if name in _LOADERS:
        return _LOADERS[name]
    reader = DATASET_PLUGINS.find(name)
    return None if reader is None else _guarded(name, reader)


def _guarded(name: str, reader: DatasetReader) -> _Loader[Any]:
    """Return the loader of a package's data set, whose errors are ours."""

    def read(options: Any, folder: Path | None) -> Dataset:
        return read_guarded(name, lambda: reader.read(options, folder))

    return _Loader(reader.options, read, reader.summary)


def _limited(dataset: Dataset, limit: int, seed: int) -> Dataset:
    if not 0 < limit < len(dataset.train):
        return dataset
    rng = generator(seed, "data", "limit")
    kept = np.sort(rng.choice(len(dataset.train), size=limit, replace=False))
    groups = None if dataset.groups is None else dataset.groups[kept]
    return replace(dataset, train=take(dataset.train, kept), groups=groups)
