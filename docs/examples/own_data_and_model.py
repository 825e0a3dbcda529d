"""Train a network of your own on images that three cameras keep in torch data sets.

Run it with ``python docs/examples/own_data_and_model.py``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

import edgefed

SIZE = 16


class Shapes(Dataset[tuple[Image.Image, int]]):
    """Images of squares and crosses on noise, in place of a camera's own."""

    classes = ("square", "cross")

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.seed = seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        rng = np.random.default_rng((self.seed, index))
        label = int(rng.integers(2))
        pixels = rng.integers(0, 200, (SIZE, SIZE, 3))
        top, left = rng.integers(0, SIZE - 8, 2)
        part = pixels[top : top + 8, left : left + 8]
        if label == 0:
            part[[0, -1]] = part[:, [0, -1]] = 255
        else:
            part[3:5] = part[:, 3:5] = 255
        return Image.fromarray(pixels.astype(np.uint8)), label


class Network(nn.Module):
    """Two convolutions, the mean over the image, and a linear layer."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 16) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(shape[0], width, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits (batch, classes) of images (batch, 3, height, width)."""
        features: torch.Tensor = self.convolutions(images).amax(dim=(2, 3))
        logits: torch.Tensor = self.head(features)
        return logits


RECIPE = {
    "model": {"name": "__main__:Network", "width": 12},
    "training": {"optimizer": "adam", "learning_rate": 0.003, "epochs": 3},
    "rounds": {"count": 20},
}


def good_enough(result: edgefed.RoundResult) -> bool:
    """Print a round's accuracy, and go on until it is high."""
    print(f"round {result.number:2}  accuracy {result.metrics['accuracy']:.3f}")
    return result.metrics["accuracy"] < 0.97


def main() -> None:
    """Train on three cameras, save the model, and predict the label of an image file."""
    cameras = {f"cam-{number}": Shapes(120, number) for number in (1, 2, 3)}
    result = edgefed.simulate(
        RECIPE, data=cameras, test=Shapes(200, 9), seed=1, callbacks=good_enough
    )
    print(result)
    with tempfile.TemporaryDirectory() as folder:
        photo, label = Shapes(1, 10)[0]
        photo.save(Path(folder) / "photo.png")
        model = edgefed.load_model(
            result.save(Path(folder) / "shapes.safetensors"), user_models=True
        )
        (guesses,) = model.predict(Path(folder) / "photo.png").top(2)
    print("photo.png is a", Shapes.classes[label])
    for guess in guesses:
        print(f"  {guess.label:<8} {guess.probability:.3f}")


if __name__ == "__main__":
    main()
