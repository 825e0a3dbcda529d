"""What of a folder of photos is not used: a line for each reason, with counts and an example."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from device_agent.commands.cli import app as agent_app
from edgefed.cli.main import app
from edgefed.data.images.image_options import ImageOptions
from edgefed.data.sets.folder import FolderContent, read_folder
from edgefed.errors import DataError
from tests.data.helpers import write_image

NOBODY = 65534


def read(folder: Path) -> FolderContent:
    return read_folder(folder, ImageOptions(), folder / ".decoded")


def counts(content: FolderContent) -> dict[str, int]:
    return {each.reason: each.count for each in content.ignored}


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    for index in range(5):
        write_image(tmp_path / "cat" / f"{index}.png", (6, 4, 3), 51)
    return tmp_path


def heic(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        (folder / f"IMG_{index:04d}.HEIC").write_bytes(b"\0\0\0\x24ftypheic")


def test_a_class_of_heic_photos_is_told_with_what_to_do(pets: Path) -> None:
    heic(pets / "dog", 12)
    content = read(pets)
    assert (content.class_names, len(content.samples)) == (("cat", "dog"), 5)
    assert counts(content) == {"unsupported": 12, "unusable": 1}
    formats, unusable = content.warnings
    assert formats == (
        f"12 files in {pets} of formats that are not read: 12 .heic, such as dog/IMG_0000.HEIC;"
        " convert photos to JPEG or PNG, for HEIC such as heif-convert IMAGE.HEIC IMAGE.jpg"
    )
    assert unusable == (
        f"1 of 2 classes in {pets} has no image that can be used: 'dog' (12 .heic);"
        " add images, or remove the folder if this device has none of the class"
    )


def test_nested_folders_are_counted_with_what_is_in_them(pets: Path) -> None:
    for year, count in (("2023", 2), ("2024/may", 3)):
        for index in range(count):
            write_image(pets / "dog" / year / f"{index}.png", (6, 4, 3), 9)
    (pets / "dog" / "2023" / ".DS_Store").write_bytes(b"x")
    (pets / "cat" / "none in it").mkdir()
    heic(pets / "cat" / ".thumbnails", 3)
    content = read(pets)
    assert counts(content) == {"nested": 5, "unusable": 1}
    nested, unusable = content.warnings
    assert f"5 files in {pets} inside 3 folders of class folders are not read" in nested
    assert nested.endswith("; move the images into the class folder itself")
    assert "'dog' (5 files in folders inside it)" in unusable


def test_empty_classes_are_named_and_only_the_first_few(pets: Path) -> None:
    for number in range(10):
        (pets / f"empty-{number}").mkdir()
    content = read(pets)
    assert counts(content) == {"unusable": 10}
    (unusable,) = content.warnings
    assert f"10 of 11 classes in {pets} have no image" in unusable
    assert "'empty-5' (empty) and 4 more;" in unusable


def test_a_class_whose_images_are_all_damaged_is_named(pets: Path) -> None:
    (pets / "dog").mkdir()
    for number in range(2):
        (pets / "dog" / f"{number}.jpg").write_bytes(b"\xff\xd8 no more")
    content = read(pets)
    assert counts(content) == {"unreadable": 2, "unusable": 1}
    assert "such as dog/0.jpg; copy them again, or remove them" in content.warnings[0]
    assert "'dog' (2 images that cannot be read)" in content.warnings[1]


def test_texts_and_hidden_files_are_not_taken_for_photos(pets: Path) -> None:
    for name in ("notes.txt", "Thumbs.db", "IMG_1.AAE", ".DS_Store", ".hidden.heic"):
        (pets / "cat" / name).write_bytes(b"x")
    (pets / "README").write_bytes(b"x")
    assert read(pets).warnings == ()


def test_heic_photos_beside_the_class_folders_are_told(pets: Path) -> None:
    heic(pets, 2)
    (warning,) = read(pets).warnings
    assert "in no class, are not used: 2, such as IMG_0000.HEIC; move them into" in warning


def test_names_of_odd_bytes_are_read_and_shown_harmlessly(pets: Path) -> None:
    odd = os.fsdecode(b"a\xff\x1b[31m\n.png")
    write_image(pets / "cat" / odd, (6, 4, 3), 9)
    (pets / "cat" / os.fsdecode(b"b\xff\x1b.png")).write_bytes(b"no image")
    (pets / "cat" / os.fsdecode(b"c.h\xff\x07")).write_bytes(b"x")
    content = read(pets)
    assert len(content.samples) == 6
    assert counts(content) == {"unreadable": 1, "unsupported": 1}
    assert "such as cat/b??.png;" in content.warnings[0]
    assert "1 .h??, such as cat/c.h??;" in content.warnings[1]


def test_a_class_whose_name_cannot_be_sent_is_named(pets: Path) -> None:
    write_image(pets / os.fsdecode(b"d\xffg") / "a.png", (6, 4, 3), 9)
    with pytest.raises(DataError, match=r"class names that cannot be sent, such as 'd\?g'"):
        read(pets)


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """Give a folder to a user whom permissions bind, and be that user."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        if is_root:
            os.chown(name, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            if is_root:
                os.seteuid(0)


def test_folders_and_files_without_permission_are_told_and_the_others_used() -> None:
    with ordinary_user() as pets:
        for name in ("cat", "dog", "elk"):
            for number in range(2):
                write_image(pets / name / f"{number}.png", (6, 4, 3), 9)
        (pets / "dog").chmod(0o000)
        (pets / "elk").chmod(0o400)  # its names can be listed, and nothing in it looked at
        (pets / "cat" / "0.png").chmod(0o000)
        content = read(pets)
        assert len(content.samples) == 1
        assert counts(content) == {"unreadable": 3, "closed": 1, "unusable": 2}
        unreadable, closed, unusable = content.warnings
        assert unreadable.startswith(f"3 of 4 image files in {pets} cannot be read")
        assert "cannot be listed (Permission denied), such as dog; let the user of" in closed
        assert "'dog' (cannot be listed), 'elk' (2 images that cannot be read)" in unusable
        for name in ("dog", "elk"):
            (pets / name).chmod(0o700)


@pytest.mark.parametrize("kind", ["heic", "nested", "heic beside"])
def test_nothing_that_can_be_used_is_an_error_with_the_reasons(tmp_path: Path, kind: str) -> None:
    if kind == "nested":
        write_image(tmp_path / "cat" / "2024" / "a.png", (6, 4, 3), 9)
    else:
        heic(tmp_path / "cat" if kind == "heic" else tmp_path, 3)
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    assert caught.value.code == "data.empty"
    said = {
        "heic": "3 files in .* of formats that are not read: 3 .heic",
        "nested": "1 file in .* inside 1 folder of class folders are not read",
        "heic beside": "image files that lie in .* itself, and so in no class, are not used: 3",
    }
    caught.match(said[kind])
    hints = {"heic": "heif-convert", "nested": "move the images", "heic beside": "of their class"}
    assert hints[kind] in caught.value.hint


@pytest.mark.parametrize(
    ("program", "words"),
    [(agent_app, ["data", "--data"]), (app, ["data", "show"])],
    ids=["edgefed-agent data", "edgefed data show"],
)
def test_the_commands_tell_the_lines_and_their_json_has_the_counts(
    pets: Path, monkeypatch: pytest.MonkeyPatch, program: object, words: list[str]
) -> None:
    heic(pets / "dog", 3)
    monkeypatch.setenv("EDGEFED_NO_CONFIG", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(pets / ".state"))
    for _ in range(2):  # also when nothing has to be decoded
        done = CliRunner().invoke(program, [*words, f"folder:{pets}", "--json"])  # type: ignore[arg-type]
        assert done.exit_code == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["ignored"] == {"unsupported": 3, "unusable": 1}
        assert ["3 .heic" in line for line in found["warnings"]] == [True, True]
        assert [line[:2] for line in done.stderr.splitlines()] == ["! ", "! "]
