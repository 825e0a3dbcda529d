"""Files of every kind that a user may name, broken at random from a seed, and what reads them."""

from __future__ import annotations

import contextlib
import io
import json
import random
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from edgefed.config.load import load_recipe
from edgefed.config.settings_files import Surroundings
from edgefed.data.femnist import read_leaf
from edgefed.data.sources import load_device
from edgefed.errors import EdgeFedError
from tests.data.bombs import header

HUGE = (0, 1, -1, 7, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63, 2**64, 10**30)
"""Numbers at which something tends to break."""

IMAGES = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")

KINDS = ("f4", "<f8", "|u1", "<i8", "|b1", "|S0", "<U3", "<U99999999", "|O", "<c8", "|V9", "<M8[s]")

TOML_PARTS = (
    *("a", "b.c", '"q"', "'l'", "[", "]", "[[", "]]", "{", "}", "=", ",", ".", "\n", " ", "#"),
    *(
        '"""',
        "'''",
        "\\",
        "\\u0041",
        "1",
        "-0.5",
        "1e999",
        "0x" + "f" * 900,
        "0x" + "f" * 5000,
        "9" * 5000,
        "inf",
    ),
    *("nan", "true", "2024-01-01", "training", "epochs", "[training]\n", "name = ", "é", "\x00"),
    *("[model]\nhidden = ", "[1, 2]", "{x = 1}", "a." * 20, "[" * 20, "]" * 20),
)

JSON_PARTS = (
    *("{", "}", "[", "]", ",", ":", '"users"', '"user_data"', '"x"', '"y"', '"a"', "1", "0.5"),
    *("-1", "1e999", "NaN", "null", "true", "9" * 5000, '"' + "b" * 999 + '"', "[" * 500, "\\u00"),
)


def broken(data: bytes, draws: random.Random) -> bytes:
    """Return bytes with a few changed, cut out, doubled, or replaced by a number."""
    changed = bytearray(data)
    for _ in range(draws.choice((1, 1, 2, 5, 20))):
        at = draws.randrange(len(changed) + 1)
        what = draws.randrange(4)
        if what == 0 and at < len(changed):
            changed[at] = draws.randrange(256)
        elif what == 1:
            number = draws.choice(HUGE) & (2**32 - 1)
            changed[at : at + 4] = struct.pack(draws.choice("<>") + "I", number)
        elif what == 2:
            del changed[at : at + draws.randrange(1, 40)]
        else:
            changed[at:at] = changed[at : at + draws.randrange(1, 40)]
    return bytes(changed)


def npz(path: Path, draws: random.Random) -> Callable[[], Any]:
    """An NPZ file with strange headers, or broken as a whole."""
    labels = np.arange(6) % 3
    buffer = io.BytesIO()
    if draws.random() < 0.4:
        np.savez_compressed(buffer, x=np.zeros((6, 4), np.float32), y=labels)
        path.write_bytes(broken(buffer.getvalue(), draws))
        return lambda: load_device(f"npz:{path}", 0.1)
    names = ["x", "y", "x_train", "y_train", "classes", "groups_train", "vocabulary", "coarse"]
    names += ["jpeg_train", "offsets_train", "preparation", "x_test", "y_test", "column/site"]
    with zipfile.ZipFile(buffer, "w", draws.choice((0, zipfile.ZIP_DEFLATED))) as archive:
        for name in {"x", "y", *draws.sample(names, draws.randrange(4))}:
            archive.writestr(f"{name}.npy", _member(draws))
    path.write_bytes(buffer.getvalue())
    return lambda: load_device(f"npz:{path}", 0.1)


def _member(draws: random.Random) -> bytes:
    sides = [draws.choice((*HUGE, 2, 3, 6, 6, 6)) for _ in range(draws.randrange(4))]
    shape = draws.choice((str(tuple(sides)), str(sides), "(True, 2)", "(" * 99 + ")" * 99, "6"))
    start = header(shape, draws.choice(KINDS))
    if draws.random() < 0.3:
        start = broken(start, draws)
    return start + draws.randbytes(draws.choice((0, 6, 24, 48, 192, 4096)))


def image(path: Path, draws: random.Random) -> Callable[[], Any]:
    """A folder with an image that is broken, and one that is not."""
    folder = path.with_suffix(".images")
    (folder / "cat").mkdir(parents=True, exist_ok=True)
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    Image.fromarray(pixels).save(folder / "cat" / "a.png")
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, draws.choice(IMAGES))
    (folder / "cat" / "b.png").write_bytes(broken(buffer.getvalue(), draws))
    return lambda: load_device(f"folder:{folder}?size={draws.choice((0, 8))}", 0.1)


def jpeg(path: Path, draws: random.Random) -> Callable[[], Any]:
    """Packed images, of which bytes or offsets are wrong."""
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(buffer, "JPEG")
    packed = buffer.getvalue()
    offsets = [0, len(packed), 2 * len(packed)]
    if draws.random() < 0.5:
        offsets[draws.randrange(3)] = draws.choice([n for n in HUGE if abs(n) < 2**63])
    both = packed + broken(packed, draws)
    np.savez(
        path.with_suffix(".npz"),
        jpeg_train=np.frombuffer(both, np.uint8),
        offsets_train=np.array(offsets, draws.choice((np.int64, np.uint64, object)[:1])),
        y_train=[0, 1],
    )
    return lambda: load_device(f"npz:{path.with_suffix('.npz')}", 0.1)


def toml(path: Path, draws: random.Random) -> Callable[[], Any]:
    """A recipe of parts in any order."""
    parts = [draws.choice(TOML_PARTS) for _ in range(draws.choice((3, 10, 40)))]
    text = "".join(parts) * draws.choice((1, 1, 1, 1000))
    path.write_text(draws.choice(("", "[training]\n", "[algorithm]\na = ")) + text)
    return lambda: load_recipe(path, Surroundings({}, path.parent, None, True))


def leaf(path: Path, draws: random.Random) -> Callable[[], Any]:
    """A JSON file of LEAF's that is broken, or parts in any order."""
    user: dict[str, Any] = {"x": [[0.0] * 4] * 3, "y": [0, 1, 2]}
    content: dict[str, Any] = {"users": ["a", "b"], "user_data": {"a": user, "b": user}}
    text = json.dumps(content).encode()
    if draws.random() < 0.5:
        strange: list[Any] = [
            None,
            True,
            [],
            {},
            "b" * 999,
            [[[[1]]]],
            [["a"]],
            2**70,
            [2**70, -1],
            [0.5] * 3,
        ]
        user[draws.choice("xy")] = draws.choice(strange)
        text = json.dumps(content).encode()
    elif draws.random() < 0.5:
        text = broken(text, draws)
    else:
        text = "".join(draws.choice(JSON_PARTS) for _ in range(60)).encode()
    path.with_suffix(".json").write_bytes(text)
    return lambda: read_leaf(path.with_suffix(".json"))


def text(path: Path, draws: random.Random) -> Callable[[], Any]:
    """Records of roles and their texts, broken."""
    record = json.dumps({"role": "A", "text": "to be or not to be " * 9}) + "\n"
    given = path.with_suffix(".jsonl")
    given.write_bytes(broken((record * 3).encode(), draws))
    alphabet = draws.choice(("80", "84", "data"))
    return lambda: load_device(f"text:{given}?window=8&alphabet={alphabet}", 0.1)


WRITERS = {writer.__name__: writer for writer in (npz, image, jpeg, toml, leaf, text)}


def fuzz(name: str, seeds: range, folder: Path) -> None:
    """Read a file of each seed; nothing may come of it but data or an error of ours."""
    warnings.simplefilter("ignore")
    for seed in seeds:
        read = WRITERS[name](folder / "file", random.Random(f"{name} {seed}"))
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                read()
        except EdgeFedError as error:
            if not error.message or isinstance(error.__cause__, MemoryError):
                raise AssertionError(f"{name} {seed}: {error!r}") from error
        except BaseException as error:
            raise AssertionError(f"{name} {seed}: {error!r}"[:1000]) from error
