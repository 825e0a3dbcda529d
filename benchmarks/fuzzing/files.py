"""Targets that read files of every kind that a user may name."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from PIL import Image

from benchmarks.fuzzing.mutations import HUGE, broken
from benchmarks.fuzzing.npy_header import header
from benchmarks.fuzzing.targets import Reader, Target
from edgefed.config.load import load_agent_settings, load_recipe, load_settings
from edgefed.config.settings_files import Surroundings
from edgefed.data.femnist import read_leaf
from edgefed.data.sources import load_device

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


def reading(
    name: str, read: Callable[[Path, bytes], object]
) -> Callable[[Path], AbstractContextManager[Reader]]:
    """Return what writes each input to a file and reads it."""

    @contextmanager
    def opened(folder: Path) -> Iterator[Reader]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)

        def read_one(data: bytes) -> None:
            path.write_bytes(data)
            read(path, data)

        yield read_one

    return opened


# -- samples ----------------------------------------------------------------------------------


def make_npz(draws: random.Random) -> bytes:
    """Return an NPZ file with strange headers, or broken as a whole."""
    buffer = io.BytesIO()
    if draws.random() < 0.4:
        labels = np.arange(6) % 3
        np.savez_compressed(buffer, x=np.zeros((6, 4), np.float32), y=labels)
        return broken(buffer.getvalue(), draws)
    names = ["x", "y", "x_train", "y_train", "classes", "groups_train", "vocabulary", "coarse"]
    names += ["jpeg_train", "offsets_train", "preparation", "x_test", "y_test", "column/site"]
    chosen = ["x", "y", *(name for name in draws.sample(names, draws.randrange(4)))]
    with zipfile.ZipFile(buffer, "w", draws.choice((0, zipfile.ZIP_DEFLATED))) as archive:
        for name in dict.fromkeys(chosen):
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), _member(draws))
    return buffer.getvalue()


def _member(draws: random.Random) -> bytes:
    sides = [draws.choice((*HUGE, 2, 3, 6, 6, 6)) for _ in range(draws.randrange(4))]
    shape = draws.choice((str(tuple(sides)), str(sides), "(True, 2)", "(" * 99 + ")" * 99, "6"))
    start = header(shape, draws.choice(KINDS))
    if draws.random() < 0.3:
        start = broken(start, draws)
    return start + draws.randbytes(draws.choice((0, 6, 24, 48, 192, 4096)))


def make_jpeg(draws: random.Random) -> bytes:
    """Return an NPZ file of packed images, of which bytes or offsets are wrong."""
    packed = _picture("JPEG", 8)
    offsets = [0, len(packed), 2 * len(packed)]
    if draws.random() < 0.5:
        offsets[draws.randrange(3)] = draws.choice([n for n in HUGE if abs(n) < 2**63])
    both = packed + broken(packed, draws)
    buffer = io.BytesIO()
    np.savez(
        buffer,
        jpeg_train=np.frombuffer(both, np.uint8),
        offsets_train=np.array(offsets, np.int64),
        y_train=[0, 1],
    )
    return buffer.getvalue()


@lru_cache
def _picture(kind: str, side: int) -> bytes:
    buffer = io.BytesIO()
    pixels = (np.arange(side * side) % 256).astype(np.uint8).reshape(side, side)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def make_image(draws: random.Random) -> bytes:
    """Return an image that is broken."""
    return broken(_picture(draws.choice(IMAGES), 16), draws)


def read_image(path: Path, data: bytes) -> None:
    """Read a folder with the image, and one that is not broken."""
    whole = path.with_name("a.png")
    if not whole.exists():
        whole.write_bytes(_picture("PNG", 16))
    load_device(f"folder:{path.parent.parent}?size={(0, 8)[crc32(data) % 2]}", 0.1)


def make_leaf(draws: random.Random) -> bytes:
    """Return a JSON file of LEAF's that is broken, or parts in any order."""
    user: dict[str, Any] = {"x": [[0.0] * 4] * 3, "y": [0, 1, 2]}
    content: dict[str, Any] = {"users": ["a", "b"], "user_data": {"a": user, "b": user}}
    how = draws.random()
    if how < 0.5:
        user[draws.choice("xy")] = draws.choice(STRANGE)
        return json.dumps(content).encode()
    if how < 0.75:
        return broken(json.dumps(content).encode(), draws)
    return "".join(draws.choice(JSON_PARTS) for _ in range(60)).encode()


STRANGE: tuple[Any, ...] = (
    *(None, True, [], {}, "b" * 999, [[[[1]]]], [["a"]], 2**70, [2**70, -1], [0.5] * 3),
)
"""What a user's samples are not."""


def make_text(draws: random.Random) -> bytes:
    """Return records of roles and their texts, broken."""
    record = json.dumps({"role": "A", "text": "to be or not to be " * 9}) + "\n"
    return broken((record * 3).encode(), draws)


def read_text(path: Path, data: bytes) -> None:
    """Read records with one alphabet or another."""
    alphabet = ("80", "84", "data")[crc32(data) % 3]
    load_device(f"text:{path}?window=8&alphabet={alphabet}", 0.1)


# -- recipes and settings ---------------------------------------------------------------------

VALID = (
    "[rounds]\ncount = 3\n[model]\nname = 'mlp'\nhidden = [8]\n[training]\nepochs = 2\n",
    "broker = 'mqtt://127.0.0.1:1883'\nfleet = 'x'\nstate = '/tmp/x'\n[agent]\nname = 'a'\n",
    "[algorithm]\nname = 'fedprox'\nmu = 0.1\n[data]\nname = 'digits'\nlimit = 20\n",
)


def make_toml(draws: random.Random) -> bytes:
    """Return TOML of parts in any order, or a valid file that is broken."""
    if draws.random() < 0.3:
        return broken(draws.choice(VALID).encode(), draws)
    parts = [draws.choice(TOML_PARTS) for _ in range(draws.choice((3, 10, 40)))]
    text = "".join(parts) * draws.choice((1, 1, 1, 1, 1, 1000))
    return (draws.choice(("", "[training]\n", "[algorithm]\na = ")) + text).encode()


def read_recipe(path: Path, data: bytes) -> None:
    """Read a recipe."""
    del data
    load_recipe(path, Surroundings({}, path.parent, None, True))


def read_settings(path: Path, data: bytes) -> None:
    """Read the settings of the commands, or of an agent."""
    around = Surroundings({}, path.parent, path, system=path.parent)
    load = load_settings if crc32(data) % 2 else load_agent_settings
    load(around)


# -- models -----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _model() -> bytes:
    from safetensors.numpy import save

    description = {"edgefed": "1", "model": json.dumps({"name": "mlp", "hidden": [4]})}
    weights = {"hidden.weight": np.zeros((4, 4), np.float32), "bias": np.ones(4, np.float32)}
    return save(weights, description)


def make_safetensors(draws: random.Random) -> bytes:
    """Return a file of weights that is broken, or whose header is of parts in any order."""
    data = _model()
    if draws.random() < 0.6:
        return broken(data, draws)
    parts = [draws.choice((*JSON_PARTS, '"dtype":"F32"', '"shape":[4]', '"data_offsets":[0,16]'))]
    parts += [draws.choice(JSON_PARTS) for _ in range(draws.choice((1, 5, 20)))]
    text = "".join(parts).encode()
    size = draws.choice((len(text), len(text), *(n for n in HUGE if 0 <= n < 2**64)))
    return size.to_bytes(8, "little") + text + bytes(draws.choice((0, 16, 64)))


def read_safetensors(path: Path, data: bytes) -> None:
    """Read a model to predict with, or pretrained weights for a run."""
    if crc32(data) % 2:
        from edgefed.prediction.model_file import read_model_file

        read_model_file(path)
    else:
        from edgefed.config.recipe import ModelSection
        from edgefed.coordinator.pretrained_weights import pretrained
        from edgefed.learn.model_building import build

        section = ModelSection.model_validate({"name": "mlp", "hidden": [4]})
        pretrained(build(section, (4,), 2, 5), path)


def _npz(path: Path, data: bytes) -> None:
    del data
    load_device(f"npz:{path}", 0.1)


def _leaf(path: Path, data: bytes) -> None:
    del data
    read_leaf(path)


TARGETS = (
    Target("npz", make_npz, reading("file.npz", _npz), 3, "file"),
    Target("image", make_image, reading("images/cat/b.png", read_image), 1, "file"),
    Target("jpeg", make_jpeg, reading("packed.npz", _npz), 2, "file"),
    Target("recipe", make_toml, reading("recipe.toml", read_recipe), 3, "file"),
    Target("settings", make_toml, reading("edgefed.toml", read_settings), 3, "file"),
    Target("leaf", make_leaf, reading("leaf.json", _leaf), 2, "file"),
    Target("text", make_text, reading("text.jsonl", read_text), 2, "file"),
    Target("safetensors", make_safetensors, reading("m.safetensors", read_safetensors), 3, "file"),
)
