"""Targets that read files: samples, recipes, settings, models, tokens and credentials."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from benchmarks.fuzzing import fleet
from benchmarks.fuzzing.fleet import certificate_of
from benchmarks.fuzzing.running import Reader, Target
from benchmarks.fuzzing.strategies import (
    NUMBERS,
    STRANGE,
    TEXTS,
    broken,
    joined,
    mostly_broken,
    siblings,
)
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import load_agent_settings, load_recipe, load_settings
from edgefed.data.devices.sources import load_device
from edgefed.data.sets.femnist import read_leaf
from edgefed.errors import DataError
from edgefed.trust.authority import load_authority
from edgefed.trust.credentials import load_credentials
from edgefed.trust.tokens import Token, _check, parse_token

TOML_PARTS = (
    *("a", "b.c", '"q"', "'l'", "[", "]", "[[", "]]", "{", "}", "=", ",", ".", "\n", " ", "#"),
    *('"""', "'''", "\\", "\\u0041", "1", "-0.5", "1e999", "0x" + "f" * 900, "0x" + "f" * 5000),
    *("9" * 5000, "inf", "nan", "true", "2024-01-01", "training", "epochs", "[training]\n"),
    *("name = ", "é", "\x00", "[model]\nhidden = ", "[1, 2]", "{x = 1}", "a." * 20, "[" * 20),
    *("]" * 20, "[algorithm]\na = "),
)

JSON_PARTS = (
    *("{", "}", "[", "]", ",", ":", '"users"', '"user_data"', '"x"', '"y"', '"a"', "1", "0.5"),
    *("-1", "1e999", "NaN", "null", "true", "9" * 5000, '"' + "b" * 999 + '"', "[" * 500, "\\u00"),
)


NESTED = st.builds(
    lambda part, count: part * count,
    st.sampled_from(("[", '{"a":', "[1,", "a = [")),
    st.sampled_from((3, 1100, 12_000, 10**6)),
)
"""JSON and TOML that is nested deeply."""


def reading(name: str, read: Callable[[Path, bytes], object], folder: Path) -> Reader:
    """Return a reader that writes each input to a file and reads it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)

    def read_one(data: bytes) -> None:
        path.write_bytes(data)
        read(path, data)

    return read_one


# -- samples ----------------------------------------------------------------------------------

KINDS = ("f4", "<f8", "|u1", "<i8", "|b1", "|S0", "<U3", "<U99999999", "|O", "<c8", "|V9", "<M8[s]")
MEMBERS = (
    *("x_train", "y_train", "classes", "groups_train", "vocabulary", "coarse", "jpeg_train"),
    *("offsets_train", "preparation", "x_test", "y_test", "column/site"),
)


def npy_header(shape: str, kind: str = "<f4") -> bytes:
    """Return the header of an NPY file as NumPy writes it, with a shape of one's choice."""
    text = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def make_npz(names: list[str], draws: random.Random) -> bytes:
    """Return an NPZ file with strange headers."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", draws.choice((0, zipfile.ZIP_DEFLATED))) as archive:
        for name in ("x", "y", *names):
            sides = [draws.choice((*NUMBERS, 2, 3, 6, 6, 6)) for _ in range(draws.randrange(4))]
            strange = str(sides), "(True, 2)", "(" * 99 + ")" * 99, "6"
            start = npy_header(draws.choice((str(tuple(sides)), *strange)), draws.choice(KINDS))
            if draws.random() < 0.3:
                start = broken(start, draws)
            data = draws.randbytes(draws.choice((0, 6, 24, 48, 192, 4096)))
            archive.writestr(f"{name}.npy", start + data)
    return buffer.getvalue()


def npz(**arrays: Any) -> bytes:
    """Return a whole NPZ file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


NPZ = siblings(
    st.lists(st.sampled_from(MEMBERS), max_size=3, unique=True), make_npz
) | mostly_broken(st.builds(npz, x=st.just(np.zeros((6, 4), np.float32)), y=st.just([0, 1, 2] * 2)))


@lru_cache
def picture(kind: str, side: int) -> bytes:
    """Return a small image in a format."""
    buffer = io.BytesIO()
    pixels = (np.arange(side * side) % 256).astype(np.uint8).reshape(side, side)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def make_jpeg(offsets: list[int], draws: random.Random) -> bytes:
    """Return an NPZ file of packed images, of which bytes or offsets are wrong."""
    packed = picture("JPEG", 8)
    if draws.random() < 0.5:
        offsets = [0, len(packed), 2 * len(packed)]
    images = np.frombuffer(packed + broken(packed, draws), np.uint8)
    return npz(jpeg_train=images, offsets_train=np.array(offsets, np.int64), y_train=[0, 1])


OFFSETS = st.lists(
    st.sampled_from([n for n in (*NUMBERS, 600) if abs(n) < 2**63]), min_size=3, max_size=3
)
IMAGES = st.builds(
    picture, st.sampled_from(("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")), st.just(16)
)


def read_image(path: Path, data: bytes) -> None:
    """Read a folder with the image, and one that is not broken."""
    whole = path.with_name("a.png")
    if not whole.exists():
        whole.write_bytes(picture("PNG", 16))
    source = f"folder:{path.parent.parent}?size={(0, 8)[crc32(data) % 2]}"
    if load_device(source, 0.1).warnings:
        raise DataError("It was skipped.", code="data.skipped")


def leaf(field: str, value: Any) -> bytes:
    """Return a JSON file of LEAF's with a wrong field."""
    user = {"x": [[0.0] * 4] * 3, "y": [0, 1, 2], field: value}
    return json.dumps({"users": ["a", "b"], "user_data": {"a": user, "b": user}}).encode()


UNFIT = (*(value for value in STRANGE if "b'" not in repr(value)), [[[[1]]]], 2**70, [2**70, -1])
"""What a user's samples are not."""

LEAVES = st.builds(leaf, st.sampled_from(("z", "x", "y")), st.sampled_from(UNFIT))
GRAMMAR = (joined(JSON_PARTS, 60) | NESTED).map(lambda text: text.encode())
LEAF = LEAVES.map(lambda data: [data]) | mostly_broken(LEAVES) | mostly_broken(GRAMMAR)

RECORD = json.dumps({"role": "A", "text": "to be or not to be " * 9}) + "\n"


def read_text(path: Path, data: bytes) -> None:
    """Read records with one alphabet or another."""
    alphabet = ("80", "84", "data")[crc32(data) % 3]
    load_device(f"text:{path}?window=8&alphabet={alphabet}", 0.1)


# -- recipes, settings and models -------------------------------------------------------------

WHOLE = (
    "[rounds]\ncount = 3\n[model]\nname = 'mlp'\nhidden = [8]\n[training]\nepochs = 2\n",
    "broker = 'mqtt://127.0.0.1:1883'\nfleet = 'x'\nstate = '/tmp/x'\n[agent]\nname = 'a'\n",
    "[algorithm]\nname = 'fedprox'\nmu = 0.1\n[data]\nname = 'digits'\nlimit = 20\n",
)


TOML = mostly_broken(st.sampled_from(WHOLE).map(str.encode)) | mostly_broken(
    (joined(TOML_PARTS, 20) | NESTED).map(str.encode)
)


def read_settings(path: Path, data: bytes) -> None:
    """Read the settings of the commands, or of an agent."""
    around = Surroundings({}, path.parent, path, system=path.parent)
    load = load_settings if crc32(data) % 2 else load_agent_settings
    load(around)


def _model() -> bytes:
    from safetensors.numpy import save

    description = {"edgefed": "1", "model": json.dumps({"name": "mlp", "hidden": [4]})}
    weights = {"hidden.weight": np.zeros((4, 4), np.float32), "bias": np.ones(4, np.float32)}
    return save(weights, description)


HEADERS = st.builds(
    lambda size, text: size.to_bytes(8, "little") + text.encode() + bytes(16),
    st.integers(0, 99) | st.sampled_from([n for n in NUMBERS if 0 <= n < 2**64]),
    joined((*JSON_PARTS, '"dtype":"F32"', '"shape":[4]', '"data_offsets":[0,16]'), 20),
)
SAFETENSORS = mostly_broken(st.deferred(lambda: st.just(_model())) | HEADERS)


def read_safetensors(path: Path, data: bytes) -> None:
    """Read a model to predict with, or pretrained weights for a run."""
    if crc32(data) % 2:
        from edgefed.prediction.model_file import read_model_file

        read_model_file(path)
    else:
        from edgefed.config.recipes.recipe import ModelSection
        from edgefed.coordinator.models.pretrained_weights import pretrained
        from edgefed.learn.modeling.model_building import build

        section = ModelSection.model_validate({"name": "mlp", "hidden": [4]})
        pretrained(build(section, (4,), 2, 5), path)


# -- tokens -----------------------------------------------------------------------------------

HOSTS = (
    *("192.0.2.7", "2001:db8::1", "hub", "a" * 253, "example.org", "h") * 3,
    *("ä", "x\x1b[2J", "", "\u202ehub", "a b"),
)
NAMES = (*("cam-1", "plant", "x" * 64, "a") * 4, *("", "Ä", "-", "a/b", "authority", "x" * 70))
TOKENS = st.builds(
    Token,
    st.sampled_from((bytes(32), bytes(range(32)))),
    st.just(bytes(range(16))),
    st.sampled_from(HOSTS),
    st.sampled_from((0, 1, 8884, 65535)),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
)


def make_token(token: Token, draws: random.Random) -> bytes:
    """Return a token as somebody may type it, or one with wrong parts and the right check."""
    text = token.text()
    if draws.random() < 0.4:
        data = broken(base64.b32decode(text.upper() + "=" * (-len(text) % 8))[:-4], draws)
        text = base64.b32encode(data + _check(data)).decode().rstrip("=").lower()
    if draws.random() < 0.3:
        text = "-".join(text[i : i + 5] for i in range(0, len(text), 5)).upper()
    if draws.random() < 0.3:
        text += draws.choice((*TEXTS, " ", "\n", "=", "ı", "١", "\ud800"))
    typed = text.encode("utf-8", "surrogatepass")
    return broken(typed, draws) if draws.random() < 0.3 else typed


def read_token(path: Path, data: bytes) -> None:
    """Read a token; one that is read is written the same again, and fits into an error's line."""
    del path
    text = data.decode("utf-8", "surrogateescape")
    token = parse_token(text)
    assert token.text() == "".join(text.split()).replace("-", "").lower()
    assert token.host.isprintable()
    assert token.port


# -- credentials ------------------------------------------------------------------------------

NUMBERED = ("key.pem", "encryption.pem", "certificate.pem", "authority.pem", "fleet.json")


OF_AUTHORITY = 128
"""Number of the authority's first file; those of the device come before."""


@lru_cache
def _contents() -> dict[int, bytes]:
    """Return the right content of each file, by its number."""
    with TemporaryDirectory() as folder:
        places = {0: fleet.saved_credentials("dev-1", Path(folder)).folder}
        places[OF_AUTHORITY] = fleet.saved_authority(Path(folder) / "authority")
        files = {
            first + number: place / name
            for first, place in places.items()
            for number, name in enumerate(NUMBERED)
        }
        return {number: path.read_bytes() for number, path in files.items() if path.exists()}


def make_credentials(text: str, draws: random.Random) -> bytes:
    """Return the number of a file, of a device or the authority, and content for it."""
    contents, how = _contents(), draws.random()
    number = draws.choice((*contents,))
    wrong = [certificate_of(name).pem() for name in ("renewed", "stranger", "broker")]
    data = draws.choice((contents[number], *contents.values(), *wrong, text.encode()))
    return bytes([number]) + (broken(contents[number], draws) if how < 0.6 else data)


CREDENTIALS = siblings(joined(JSON_PARTS, 40) | NESTED, make_credentials)


def credentials(folder: Path) -> Reader:
    """Load credentials, or an authority, of which a file is wrong; TLS reads what is loaded."""
    clock = fleet.FuzzClock()
    device = fleet.saved_credentials("dev-1", folder).folder
    authority = fleet.saved_authority(folder / "authority")

    def read(data: bytes) -> None:
        number = data[0] if data else 0
        place = authority if number >= OF_AUTHORITY else device
        path = place / NUMBERED[number % OF_AUTHORITY % len(NUMBERED)]
        whole = path.read_bytes() if path.exists() else None
        try:
            path.write_bytes(data[1:])
            path.chmod(0o600)
            if place is authority:
                load_authority(authority)
            else:
                load_credentials(device, clock.now()).tls_context()
        finally:
            if whole is None:
                path.unlink()
            else:
                path.write_bytes(whole)

    return read


def _alone(read: Callable[[Path], object]) -> Callable[[Path, bytes], object]:
    return lambda path, data: read(path)


read_npz = _alone(lambda path: load_device(f"npz:{path}", 0.1))
read_recipe = _alone(lambda path: load_recipe(path, Surroundings({}, path.parent, None, True)))
FILES: tuple[tuple[str, str, Callable[[Path, bytes], object], Any, float], ...] = (
    ("npz", "file.npz", read_npz, NPZ, 3),
    ("image", "images/cat/b.png", read_image, mostly_broken(IMAGES), 1),
    ("jpeg", "file.npz", read_npz, siblings(OFFSETS, make_jpeg), 2),
    ("recipe", "recipe.toml", read_recipe, TOML, 3),
    ("settings", "edgefed.toml", read_settings, TOML, 3),
    ("leaf", "leaf.json", _alone(read_leaf), LEAF, 2),
    ("text", "text.jsonl", read_text, mostly_broken(st.just((RECORD * 3).encode())), 2),
    ("safetensors", "m.safetensors", read_safetensors, SAFETENSORS, 3),
    ("token", "token", read_token, siblings(TOKENS, make_token), 3),
)
TARGETS = (
    *(
        Target(name, partial(reading, file, read), made, share, "file")
        for name, file, read, made, share in FILES
    ),
    Target("credentials", credentials, CREDENTIALS, 3, "file"),
)
