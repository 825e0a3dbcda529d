"""Shakespeare by role: preceding characters as inputs, the next character as the label.

The roles come from a JSONL file of records ``{"role": …, "text": …}``, from a folder of ``.txt``
files, one for each role, or from a single such file. The task of LEAF (Caldas et al., 2018): 80
characters predict the next one. Each role's text is split in order: its end is for testing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from edgefed.data.base.alphabets import Alphabet, AlphabetName, alphabet_of
from edgefed.data.base.limits import MAX_BYTES, check_bytes
from edgefed.data.base.paths import resolve
from edgefed.data.base.types import Array, Dataset
from edgefed.data.sets.options import SplitOptions
from edgefed.errors import DataError, MissingDataError
from edgefed.files.samples import Samples
from edgefed.files.writing import storage_error
from edgefed.wire import limits

TEXT_BYTES, ENCODE_BYTES, TOKEN_BYTES = 8, 48, 8
"""Memory of a byte of a text, of a character that becomes a number, and of its number."""


class TextOptions(SplitOptions):
    """How texts become samples."""

    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Fraction of each role's text, from its end, for testing."""

    window: Annotated[int, Field(ge=1, le=10_000)] = 80
    """Number of characters of an input; the label is the next character."""

    stride: Annotated[int, Field(ge=1)] = 1
    """Characters from the start of one sample to that of the next. A sample takes 8 bytes for each
    character of its window; 1 with a long text therefore takes gigabytes; see ``max_bytes``."""

    alphabet: AlphabetName = "80"
    """The alphabet: LEAF's ``80`` characters; ``84``, these and four special ones; or the
    characters of the ``data``."""

    roles: Annotated[int, Field(ge=0)] = 0
    """Number of roles with at least ``min_samples`` training samples to load, in the file's order;
    0 for all roles with a sample."""


def text_files(options: TextOptions, folder: Path | None) -> list[Path]:
    """Return the files that `load_shakespeare` reads."""
    path = resolve(options.path, folder)
    return _texts(path) if path.is_dir() else [path]


def load_shakespeare(options: TextOptions, folder: Path | None) -> Dataset:
    """Return int64 tokens (n, window) and next characters, each with its role's number.

    Roles too short for a single sample are left out, and a warning states their number.

    Raises:
        DataError: the texts are missing, damaged, or all too short.
        StorageError: a file cannot be read.
    """
    path = resolve(options.path, folder)
    texts = read_roles(path, options.max_bytes)
    alphabet = alphabet_of(options.alphabet, texts.values())
    if alphabet.size > limits.MAX_ITEMS:
        raise DataError(
            f"{path} has {alphabet.size} different characters;"
            f" at most {limits.MAX_ITEMS} are supported.",
            hint='set alphabet = "80"',
        )
    return _cut(texts, alphabet, options, path)


def read_roles(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, str]:
    """Return each role's text, by its name, in the file's order.

    Raises:
        DataError: there is no text, it is too long or not UTF-8, or a record lacks a field.
        StorageError: a file cannot be read.
    """
    try:
        if path.is_dir():
            files = _texts(path)
            total = sum(file.stat().st_size for file in files)
            check_bytes(total * TEXT_BYTES, max_bytes, str(path))
            return _some({str(file.relative_to(path)): _text(file) for file in files}, path)
        if not path.exists():
            raise MissingDataError(
                f"{path} does not exist.", code="data.missing", hint="check the path"
            )
        check_bytes(path.stat().st_size * TEXT_BYTES, max_bytes, str(path))
        if path.suffix == ".jsonl":
            return _some(_records(_text(path), path), path)
        return _some({path.stem: _text(path)}, path)
    except OSError as error:
        raise storage_error(path, error) from error


def _texts(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*.txt") if file.is_file())


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file} is not text in UTF-8.", code="data.unreadable", hint="convert it to UTF-8"
        ) from error


def _records(text: str, path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    # Not splitlines, which also ends a line at characters that JSON leaves as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        fields = record if isinstance(record, dict) else {}
        role, said = fields.get("role"), fields.get("text")
        if not isinstance(role, str) or not isinstance(said, str):
            raise DataError(
                f"{path}, line {number}, is not a record with a role and a text.",
                code="data.unreadable",
                hint='write each role as {"role": "…", "text": "…"} on a separate line',
            )
        texts[role] = f"{texts[role]}\n{said}" if role in texts else said
    return texts


def _some(texts: dict[str, str], path: Path) -> dict[str, str]:
    if not texts:
        raise DataError(
            f"{path} holds no texts.",
            code="data.empty",
            hint="name a .jsonl file, a .txt file, or a folder of .txt files, one for each role",
        )
    return texts


def _cut(texts: dict[str, str], alphabet: Alphabet, options: TextOptions, path: Path) -> Dataset:
    """Return every role's windows, the end of its text for testing."""
    least = options.min_samples if options.roles else 1
    train, test, strange, chosen, needed = [], [], 0, 0, 0
    for text in texts.values():
        if options.roles and chosen == options.roles:
            break
        check_bytes(needed + len(text) * ENCODE_BYTES, options.max_bytes, str(path))
        tokens, unknown = alphabet.encode(text)
        split = len(tokens) - int(len(tokens) * options.test_share)
        own = _windows(tokens[:split], options)
        if len(own) < least:
            continue
        train.append(own)
        test.append(_windows(tokens[split:], options))
        needed += (len(own) + len(test[-1])) * options.window * TOKEN_BYTES
        check_bytes(needed, options.max_bytes, f"{path}, cut into samples,")
        strange += unknown
        chosen += 1
    if chosen < max(1, options.roles):
        raise _too_short(path, chosen, least, options)
    groups = np.repeat(np.arange(chosen), [len(windows) for windows in train])
    first, second = _samples(train), _samples(test)
    warnings = _warnings(path, strange, len(texts) - chosen if not options.roles else 0)
    shape = (options.window,)
    return Dataset(first, second, alphabet.size, shape, warnings, groups=groups)


def _windows(tokens: Array, options: TextOptions) -> Array:
    """Return (n, window + 1) runs of tokens, without copying them."""
    if len(tokens) <= options.window:
        return np.zeros((0, options.window + 1), np.int64)
    return np.lib.stride_tricks.sliding_window_view(tokens, options.window + 1)[:: options.stride]


def _samples(runs: Iterable[Array]) -> Samples:
    """Return runs of tokens as inputs, and the last token of each as its label."""
    runs = list(runs)
    inputs = np.concatenate([run[:, :-1] for run in runs])
    return Samples(inputs, np.concatenate([run[:, -1] for run in runs]))


def _warnings(path: Path, strange: int, short: int) -> tuple[str, ...]:
    warnings = []
    if strange:
        warnings.append(f"characters of {path} that the alphabet lacks: {strange}")
    if short:
        warnings.append(f"roles of {path} omitted as too short for a sample: {short}")
    return tuple(warnings)


def _too_short(path: Path, chosen: int, least: int, options: TextOptions) -> DataError:
    wanted = f", of {options.roles} wanted" if options.roles else ""
    return DataError(
        f"{path} has {chosen} roles with at least {least} samples"
        f" of {options.window} characters and the next{wanted}.",
        code="data.empty",
        hint="lower window, min_samples or roles, or use longer texts",
    )
