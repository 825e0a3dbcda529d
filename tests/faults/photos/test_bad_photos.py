"""Agents with bad photos or too little memory, in a real fleet: the others train on."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from edgefed.config.recipes.recipe import Recipe
from tests.data.bombs import write_png
from tests.faults.fleet_processes import FleetProcesses, fleet, wait_until
from tests.faults.photos.photo_folders import CLASSES, NETWORK, SIDE, write_photos, write_weights

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

GOOD, EMPTIED = "good", "emptied"
GREY, STRANGE, SMALL, BOMB, SHRINKING = "grey", "strange", "small", "bomb", "shrinking"
MODES = ("L", "LA", "P", "1")
"""Of Pillow's images that are grey, with or without transparency, or have a palette."""

LARGE = 80
"""Photos of a device that take a while to decode."""


def recipe(weights: Path) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "bad-photos",
            "seed": 1,
            "model": {"name": f"torchvision:{NETWORK}", "weights": str(weights), "train": "head"},
            "data": {"name": "none", "classes": list(CLASSES)},
            "training": {"batch_size": 8},
            "rounds": {"count": 1, "min_devices": 3, "quorum": 0.3},
            "evaluation": {"on": "devices", "every": 0},
        }
    )


def folders(root: Path) -> dict[str, Path]:
    """Write the photos of all devices."""
    names = (GOOD, EMPTIED, GREY, SMALL, SHRINKING)
    made = {name: write_photos(root / name, seed) for seed, name in enumerate(names)}
    for mode in MODES:
        Image.linear_gradient("L").convert(mode).save(made[GOOD] / "ants" / f"{mode}.png")
    made[STRANGE] = write_photos(root / STRANGE, 7, (*CLASSES, "wasps"))
    made[BOMB] = write_photos(root / BOMB, 8)
    write_png(made[BOMB] / "bees" / "photo.png", 13300, 13300)
    large = root / "large.png"
    Image.effect_noise((1200, 1200), 60).save(large)
    for number in range(LARGE):
        (made[SHRINKING] / "cats" / f"large-{number:02d}.png").symlink_to(large)
    return made


class Photos:
    """A fleet of one device without fault, and one for each fault."""

    def __init__(self, home: FleetProcesses, made: dict[str, Path]) -> None:
        self.home = home
        self.made = made

    def shrink(self) -> None:
        """Start an agent, and delete photos of its folder while it decodes them."""
        decoded = self.home.folder / "state" / "data" / "decoded"
        before = set(decoded.glob("*/pixels-*"))
        self.home.start(SHRINKING)
        pid = self.home.processes[SHRINKING].pid
        wait_until(lambda: set(decoded.glob("*/pixels-*")) > before, "the build", self.home.logs)
        os.kill(pid, signal.SIGSTOP)
        for path in (self.made[SHRINKING] / "cats").glob("large-*"):
            path.unlink()
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Photos]:
    root = tmp_path_factory.mktemp("photos")
    made = folders(root)
    sources = {name: f"folder:{folder}?size={SIDE}" for name, folder in made.items()}
    sources[GREY] += "&greyscale=true"
    differences: dict[str, Any] = {
        "sources": sources,
        "settings": {SMALL: {"memory": "20000"}},
        "absent": (SHRINKING,),
    }
    with fleet(root / "home", recipe(root / "weights.pth"), **differences) as home:
        home.wait_for_devices(6)
        shown = Photos(home, made)
        shown.shrink()
        home.wait_for_devices(7)
        for path in made[EMPTIED].glob("*/*.png"):
            path.unlink()
        write_weights(root / "weights.pth")
        yield shown


@pytest.fixture(scope="module")
def run(photos: Photos) -> str:
    """A run of all devices that are there."""
    run = photos.home.begin()
    record = photos.home.finish(run)
    assert (record["status"], record["round"]) == ("finished", 1), record
    return run


def outcomes(photos: Photos, run: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for reply in photos.home.events(run, "reply", question="fit"):
        found.setdefault(reply["device"], set()).add(reply["outcome"])
    return found


def notes(photos: Photos, run: str) -> list[str]:
    return [note["text"] for note in photos.home.events(run, "note", level="warning")]


def test_the_round_goes_on_without_those_that_cannot_take_part(photos: Photos, run: str) -> None:
    assert outcomes(photos, run) == {
        GOOD: {"accepted"},
        EMPTIED: {"accepted"},
        SHRINKING: {"accepted"},
        BOMB: {"accepted"},
        SMALL: {"refused"},
    }


def test_a_device_with_grey_images_is_excluded_from_a_run_in_colour(
    photos: Photos, run: str
) -> None:
    assert (
        "grey is excluded: its inputs are 1x32x32, the run's are 3x32x32; images have three"
        " channels without greyscale=true in folder:FOLDER"
    ) in notes(photos, run)


def test_grey_files_in_a_folder_are_trained_on_in_colour(photos: Photos, run: str) -> None:
    assert outcomes(photos, run)[GOOD] == {"accepted"}
    assert photos.home.devices()[GOOD]["samples"] == 15 + len(MODES)


def test_a_device_with_a_class_that_is_not_listed_is_excluded(photos: Photos, run: str) -> None:
    assert (
        "strange is excluded: it has classes that data.classes does not list: 'wasps'"
    ) in notes(photos, run)


def test_a_model_that_one_device_has_no_memory_for_is_refused_by_that_one(
    photos: Photos, run: str
) -> None:
    (said,) = {each["reason"] for each in photos.home.events(run, "reply", device=SMALL)}
    assert f"Training the model torchvision:{NETWORK} takes about" in said
    assert "19.5 KiB (20000 bytes) are available here" in said
    assert "[model.too_large]; try: choose a smaller model, or raise memory" in said
    log = (photos.home.folder / "coordinator.log").read_text()
    assert f"WARNING device {SMALL} refused: {' '.join(said.split())}" in log


def test_an_image_bomb_is_skipped_and_its_device_trains(photos: Photos, run: str) -> None:
    assert outcomes(photos, run)[BOMB] == {"accepted"}
    assert photos.home.devices()[BOMB]["ignored"] == 1
    said = (photos.home.folder / f"{BOMB}.log").read_text()
    assert (
        said.count("have more than 67108864 pixels and were skipped, such as bees/photo.png") == 1
    )


def test_a_folder_that_shrinks_while_it_is_read_is_trained_on_as_far_as_it_was_read(
    photos: Photos, run: str
) -> None:
    assert outcomes(photos, run)[SHRINKING] == {"accepted"}
    said = (photos.home.folder / f"{SHRINKING}.log").read_text()
    skipped = re.search(rf"(\d+) of {15 + LARGE} image files in .* were skipped", said)
    assert skipped is not None, said
    lost = int(skipped[1])
    assert 0 < lost <= LARGE
    replies = photos.home.events(run, "reply", device=SHRINKING, question="fit")
    assert {each["samples"] for each in replies} == {15 + LARGE - lost}


def test_photos_that_are_deleted_while_the_agent_runs_are_missed_at_its_next_start(
    photos: Photos, run: str
) -> None:
    assert outcomes(photos, run)[EMPTIED] == {"accepted"}, "it trains on what it has decoded"
    photos.home.kill(EMPTIED)
    photos.home.start(EMPTIED)
    process = photos.home.processes[EMPTIED]
    wait_until(lambda: process.poll() is not None, "the end of the agent")
    said = (photos.home.folder / f"{EMPTIED}.log").read_text()
    assert "no image file in them" in said and "[data.empty]" in said
