"""Natural noise at 64 pixels: images per second on one core, ours and every channel written out.

``ours`` computes one map for each layer, with numpy, and a new instance of the generator for each
400 images. ``literal`` computes all 512 channels with torch in float32, as the published recipe
says, from the same draws, in one instance that is drawn before. CPU time; the best of several
repeats in turn, as other programs slow both.

    python -m benchmarks.natural_noise [--images 400] [--literal 4] [--repeats 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import torch

from edgefed.learn.devices import set_threads
from edgefed.natural_noise.colours import as_bytes
from edgefed.natural_noise.generators import noise_images
from edgefed.natural_noise.oriented_draws import (
    Instance,
    draw_image,
    draw_instance,
    layer_shapes,
)
from edgefed.seeds import generator
from tests.natural_noise.literal import coloured, literal

SIZE = 64


def ours(count: int) -> None:
    """Draw images, with an instance of the generator for each 400."""
    noise_images(1, count, size=SIZE)


def every_channel(instance: Instance, count: int) -> None:
    """Draw images of an instance with all of their channels."""
    shapes = layer_shapes(SIZE)
    for number in range(count):
        image = draw_image(generator(1, "image", number), shapes)
        whole = literal(shapes, instance, image, torch.float32)
        as_bytes(coloured(whole, image.colours))


def speed(work: Callable[[int], None], count: int) -> float:
    """Return images per second of CPU time."""
    began = time.process_time()
    work(count)
    return count / (time.process_time() - began)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.natural_noise", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--literal", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    set_threads(1)
    instance = draw_instance(generator(1, "instance"), layer_shapes(SIZE))
    quick, slow = 0.0, 0.0
    for _ in range(arguments.repeats):
        quick = max(quick, speed(ours, arguments.images))
        slow = max(slow, speed(partial(every_channel, instance), arguments.literal))
    if arguments.json:
        told = {"images_per_s_64": quick, "literal_images_per_s_64": slow}
        print(json.dumps({**told, "ratio": quick / slow}))
        return
    print(f"{'':<10}{'images/s':>10}{'x literal':>11}")
    print(f"{'ours':<10}{quick:>10.1f}{quick / slow:>11.1f}")
    print(f"{'literal':<10}{slow:>10.1f}{1:>11.1f}")


if __name__ == "__main__":
    main()
