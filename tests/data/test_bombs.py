"""Small files that would need all memory are refused before it is allocated."""

from __future__ import annotations

import io
import json
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.fuzzing.file_targets import npy_header
from edgefed.data.base.limits import MAX_BYTES, MAX_PIXELS
from edgefed.data.devices.sources import load_device
from edgefed.errors import DataError
from tests.data.bombs import (
    repacked,
    write_lzma,
    write_members,
    write_packed,
    write_png,
    write_zeros,
)
from tests.data.helpers import write_image, write_npz
from tests.memory_limit import Ended, bounded

IMPORTS = """
from edgefed.data.devices.sources import load_device
from edgefed.data.sets.femnist import read_leaf
import PIL.Image, numpy
PIL.Image.init()
"""


def loaded(source: str, megabytes: int = 256) -> Ended:
    """Load a device's data within so much memory."""
    return bounded(IMPORTS, "load_device(sys.argv[1], 0.1)", source, megabytes=megabytes)


def assert_refused(ended: Ended, path: Path, *words: str, code: str = "data.too_large") -> None:
    assert ended.trouble == ""
    assert ended.said.startswith(f"refused {code} "), ended
    assert str(path) in ended.said
    assert "try: " in ended.said
    for word in words:
        assert word in ended.said


def test_an_npz_file_that_declares_a_million_million_values(tmp_path: Path) -> None:
    path = tmp_path / "declares.npz"
    write_members(path, x=npy_header("(1000000000, 1000)"), y=npy_header("(1000000000,)", "|u1"))
    assert path.stat().st_size < 700
    assert_refused(
        loaded(f"npz:{path}"), path, "declares", "the file holds", code="data.unreadable"
    )


@pytest.mark.slow
def test_an_npz_file_that_unpacks_to_more_than_its_limit(tmp_path: Path) -> None:
    path = write_zeros(tmp_path / "zeros.npz", 30, 10**6)
    assert path.stat().st_size < 10**6
    limited = f"npz:{path}?max_bytes={2**26}"
    assert_refused(loaded(limited, 64), path, "114.4 MiB", "64.0 MiB", "max_bytes")


@pytest.mark.slow
def test_lzma_that_unpacks_to_more_than_it_declares_fills_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "lzma.npz"
    packed = lzma.compress(
        npy_header("(100, 3000)") + np.random.default_rng(0).bytes(30_000) + bytes(2**26),
        lzma.FORMAT_RAW,
        filters=[{"id": lzma.FILTER_LZMA1, "preset": 0, "dict_size": 2**16}],
    )
    write_lzma(path, packed, declared=len(npy_header("(100, 3000)")) + 1_200_000)
    assert path.stat().st_size < 100_000
    # What is too much ends at its checksum, long before memory does.
    assert_refused(loaded(f"npz:{path}", 48), path, "CRC-32", code="data.unreadable")


def test_bzip2_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz", x=np.zeros((4, 2)), y=np.zeros(4, np.uint8))
    path = repacked(path, tmp_path / "b.npz", zipfile.ZIP_BZIP2)
    with pytest.raises(DataError, match="neither stored, deflated nor LZMA") as caught:
        load_device(f"npz:{path}", 0.1)
    assert caught.value.code == "data.unreadable"


def test_max_bytes_is_the_limit_and_is_counted_as_float32(tmp_path: Path) -> None:
    pixels = np.zeros((100, 10, 10), np.uint8)
    path = write_npz(tmp_path / "a.npz", x=pixels, y=np.arange(100) % 3)
    needed = pixels.size * 4 + 800
    assert load_device(f"npz:{path}?max_bytes={needed}", 0.1).classes == 3
    with pytest.raises(DataError, match="at most") as caught:
        load_device(f"npz:{path}?max_bytes={needed - 1}", 0.1)
    assert caught.value.code == "data.too_large"


@pytest.mark.parametrize("kind", ["<U0", "|V1000000000"])
def test_values_of_no_or_of_great_length(tmp_path: Path, kind: str) -> None:
    labels = np.zeros(4, np.uint8)
    path = write_npz(tmp_path / "a.npz", x=np.zeros((4, 2)), y=labels)
    write_members(
        path,
        x=npy_header("(4, 2)", "|u1") + bytes(8),
        y=npy_header("(4,)", "|u1") + bytes(4),
        classes=npy_header("(1000000000000,)" if kind.endswith("0") else "(1000,)", kind),
    )
    ended = loaded(f"npz:{path}")
    assert ended.trouble == ""
    assert ended.said.startswith("refused data.")
    assert "allocate" not in ended.said


def test_a_header_that_is_a_bomb_itself(tmp_path: Path) -> None:
    long = b"\x93NUMPY\x02\x00" + (2**26).to_bytes(4, "little") + b"(" * 2**26
    path = write_members(tmp_path / "a.npz", x=long, y=b"")
    assert_refused(loaded(f"npz:{path}", 32), path, code="data.unreadable")
    deep = npy_header("(" * 4000 + ")" * 4000)
    path = write_members(tmp_path / "b.npz", x=deep, y=b"")
    assert_refused(loaded(f"npz:{path}", 64), path, code="data.unreadable")


def test_a_png_of_177_million_pixels(tmp_path: Path) -> None:
    path = write_png(tmp_path / "cat" / "a.png", 13300, 13300)
    write_image(tmp_path / "cat" / "b.png", (8, 8), 3)
    assert path.stat().st_size < 200_000
    act = "print(load_device(sys.argv[1], 0.0).warnings)"
    ended = bounded(IMPORTS, act, f"folder:{tmp_path}", megabytes=128)
    assert ended.trouble == ""
    assert f"1 of 2 image files in {tmp_path} have more than {MAX_PIXELS} pixels" in ended.said


def test_a_png_between_our_limit_and_pillows(tmp_path: Path) -> None:
    write_png(tmp_path / "cat" / "a.png", 8193, 8192)
    ended = loaded(f"folder:{tmp_path}", 2048)  # memory would suffice
    assert_refused(ended, tmp_path, str(MAX_PIXELS), "cat/a.png", "scale them", code="data.empty")


def test_many_images_that_are_too_much_together(tmp_path: Path) -> None:
    for number in range(12):
        write_png(tmp_path / "cat" / f"{number}.png", 2000, 2000)
    with pytest.raises(DataError, match=r"take 137\.3 MiB on disk") as caught:
        load_device(f"folder:{tmp_path}?max_bytes={2 * 2000 * 2000 * 3 * 4}", 0.1)
    assert caught.value.code == "data.too_large"


def test_a_file_that_pillow_would_hand_to_another_program_is_no_image(tmp_path: Path) -> None:
    write_image(tmp_path / "cat" / "a.png", (8, 8), 3)
    page = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    (tmp_path / "cat" / "b.png").write_bytes(page)
    interpreter = tmp_path / "bin" / "gs"
    interpreter.parent.mkdir()
    interpreter.write_text(f"#!/bin/sh\necho run >> {tmp_path}/was-run\n")
    interpreter.chmod(0o755)
    act = "print(load_device(sys.argv[1], 0.0).warnings)"
    path = f"import os; os.environ['PATH'] = '{interpreter.parent}:' + os.environ['PATH']\n"
    ended = bounded(path + IMPORTS, act, f"folder:{tmp_path}")
    assert ended.trouble == ""
    assert "1 of 2 image files" in ended.said
    assert not (tmp_path / "was-run").exists()


def test_millions_of_packed_images_of_which_only_the_first_is_there(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((500, 500), np.uint8)).save(buffer, "JPEG")
    jpeg = buffer.getvalue()
    path = write_packed(tmp_path / "a.npz", jpeg, [0, *[len(jpeg)] * 10**6])
    assert path.stat().st_size < 100_000
    assert_refused(loaded(f"npz:{path}"), path, "GiB in memory")


def test_pixels_that_were_kept_and_then_damaged_are_decoded_anew(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(buffer, "JPEG")
    jpeg = buffer.getvalue()
    path = write_packed(tmp_path / "a.npz", jpeg, [0, len(jpeg)])
    first = load_device(f"npz:{path}", 0.0)
    (kept,) = (tmp_path / "decoded").glob("*.npy")
    kept.write_bytes(npy_header("(1, 1000000, 1000000)", "|u1"))
    ended = loaded(f"npz:{path}")
    assert (ended.said, ended.trouble) == ("ok", "")
    assert np.array_equal(load_device(f"npz:{path}", 0.0).train.inputs, first.train.inputs)


def leaf(tmp_path: Path, text: str, megabytes: int = 256, most: int = MAX_BYTES) -> Ended:
    path = tmp_path / "all.json"
    path.write_text(text)
    act = "read_leaf(Path(sys.argv[1]), int(sys.argv[2]))"
    return bounded(IMPORTS, act, path, most, megabytes=megabytes)


def test_a_json_file_of_lists_of_nothing(tmp_path: Path) -> None:
    text = '{"users": [' + "[]," * 4_000_000 + "[]]}"
    ended = leaf(tmp_path, text, 64, 100 * 2**20)
    assert_refused(ended, tmp_path / "all.json", "in memory")


def test_labels_of_which_one_is_a_long_text(tmp_path: Path) -> None:
    many = 100_000
    content = {"users": ["a"], "user_data": {"a": {"x": [[0.0]] * many, "y": ["b" * many] * many}}}
    content["user_data"]["a"]["y"][1:] = ["b"] * (many - 1)  # type: ignore[index]
    ended = leaf(tmp_path, json.dumps(content))
    assert_refused(ended, tmp_path / "all.json", "lists of numbers", code="data.unreadable")


def test_a_text_cut_into_too_many_samples(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text("to be or not " * 100_000)
    assert_refused(loaded(f"text:{path}?window=9999"), path, "cut into samples", "max_bytes")
    path.write_text("to be or not " * 500_000)
    assert_refused(loaded(f"text:{path}?stride=9999&max_bytes={2**22}"), path, "max_bytes")


def test_a_list_of_class_names_of_a_gigabyte(tmp_path: Path) -> None:
    write_image(tmp_path / "cat" / "a.png", (8, 8), 3)
    with (tmp_path / "classes.txt").open("wb") as file:
        file.truncate(2**30)
    assert_refused(loaded(f"folder:{tmp_path}"), tmp_path / "classes.txt", "1.0 MiB")


def test_an_image_whose_chunk_says_that_it_is_longer_than_memory(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    damaged = (Path(__file__).parent.parent / "corpus" / "image" / "ok-png-chunk").read_bytes()
    (tmp_path / "cat" / "a.png").write_bytes(damaged)
    assert len(damaged) == 80
    ended = loaded(f"folder:{tmp_path}")
    assert (ended.said, ended.trouble) == ("ok", "")
