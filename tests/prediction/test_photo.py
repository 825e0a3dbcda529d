"""A photo that was taken upright and is not square gets one answer, wherever it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

from edgefed.data.images.image_decoding import read_pixels
from edgefed.data.images.image_options import ImageOptions
from edgefed.data.sets.folder import read_folder
from edgefed.learn.training.trainer import Trainer
from edgefed.prediction.export import onnx_run, torch_run
from edgefed.prediction.export_check import TOLERANCE
from edgefed.prediction.load import load_model
from tests.cli.commands import edgefed
from tests.prediction.model_files import NAMES, SCALE, described, network

ORIENTATION = 0x0112
TO_THE_RIGHT = 6
"""The camera was held upright: the image is to be turned by 90 degrees to the right."""


def take_photo(path: Path) -> None:
    """Write a photo of a gradient with a bright corner, as a camera that was turned does."""
    rows, columns = np.mgrid[0:90, 0:160]
    pixels = np.stack([rows * 2, columns, 255 - rows - columns // 2], axis=-1).astype(np.uint8)
    pixels[:25, :60] = 250
    exif = Image.Exif()
    exif[ORIENTATION] = TO_THE_RIGHT
    path.parent.mkdir(parents=True)
    Image.fromarray(pixels).save(path, quality=95, exif=exif)


def evaluated(folder: Path) -> Any:
    """What a device's evaluation computes of the photo: a folder's samples, and a trainer."""
    description = described()
    model, weights = network(description)
    samples = read_folder(folder, ImageOptions(size=32), folder.parent / "decoded").samples
    if samples.inputs.dtype == np.uint8:
        inputs = SCALE.inputs(np.ascontiguousarray(samples.inputs))
    else:
        inputs = SCALE.inputs(np.rint(samples.inputs * 255).astype(np.uint8))
    scores = torch.from_numpy(Trainer(model, "cpu").predict(weights, inputs))
    return torch.softmax(scores, dim=1).numpy()[0]


def test_a_rotated_photo_gets_equal_probabilities_everywhere(
    tmp_path: Path, programs: Path
) -> None:
    photo = tmp_path / "photos" / "bee" / "photo.jpg"
    take_photo(photo)
    path = programs / "model.safetensors"
    right = evaluated(tmp_path / "photos")
    told = edgefed("predict", path, photo, "--top", "3", "--json")
    assert (told.code, told.err) == (0, "")
    top = {each["label"]: each["probability"] for each in told.lines[0]["top"]}
    assert np.abs([top[name] for name in NAMES] - right).max() < TOLERANCE
    model = load_model(path, device="cpu")
    upright = np.asarray(ImageOps.exif_transpose(Image.open(photo)))[None]
    assert upright.shape == (1, 160, 90, 3)
    for run in (onnx_run(programs / "onnx"), torch_run(programs / "torch-export")):
        assert np.abs(run(upright)[0] - right).max() < TOLERANCE
    lying = model.predict(np.asarray(Image.open(photo))[None]).probabilities[0]
    assert np.abs(lying - right).max() > 100 * TOLERANCE
    assert told.lines[0]["label"] == NAMES[int(right.argmax())]


def test_pixels_of_an_image_are_upright(tmp_path: Path) -> None:
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[0, :] = 200
    exif = Image.Exif()
    exif[ORIENTATION] = TO_THE_RIGHT
    Image.fromarray(pixels).save(tmp_path / "photo.png", exif=exif)
    assert read_pixels(tmp_path / "photo.png").tolist() == np.rot90(pixels, -1).tolist()
