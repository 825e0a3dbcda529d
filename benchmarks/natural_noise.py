"""Natural noise at 64 pixels: images per second on one core, in three implementations.

``kernels`` and ``numpy`` compute one map for each layer, compiled or not, and a new instance of
the generator for each 400 images. ``literal`` computes all 512 channels with torch in float32, as
the published recipe says, from the same draws, in one instance that is drawn before. ``draws``
makes the random numbers only, which limits the others. CPU time; the best of several repeats in
turn, as other programs slow all of them.

    python -m benchmarks.natural_noise [--images 400] [--literal 4] [--repeats 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import torch

from edgefed.learn.base.processors import set_threads
from edgefed.native.library import native
from edgefed.natural_noise.colours import as_bytes
from edgefed.natural_noise.oriented import (
    PER_INSTANCE,
    Synthesis,
    compiled_synthesis,
    draw_oriented,
    synthesis,
)
from edgefed.natural_noise.oriented_draws import (
    Instance,
    draw_image,
    draw_instance,
    layer_shapes,
)
from edgefed.seeds import generator
from tests.natural_noise.literal import coloured, literal

SIZE = 64


def one_map(draw: Synthesis, count: int) -> None:
    """Draw images, with an instance of the generator for each 400."""
    for image in draw_oriented(1, 0, count, SIZE, draw):
        as_bytes(image)


def only_draws(count: int) -> None:
    """Draw the random numbers of images and of their instances."""
    shapes = layer_shapes(SIZE)
    for number in range(count):
        if number % PER_INSTANCE == 0:
            draw_instance(generator(1, "instance"), shapes)
        draw_image(generator(1, "image", number), shapes)


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
    works: dict[str, tuple[Callable[[int], None], int]] = {
        "draws": (only_draws, arguments.images),
        "numpy": (partial(one_map, synthesis), arguments.images),
        "literal": (partial(every_channel, instance), arguments.literal),
    }
    if native().library is not None:
        works["kernels"] = (partial(one_map, compiled_synthesis), arguments.images)
    best = dict.fromkeys(works, 0.0)
    for _ in range(arguments.repeats):
        for name, (work, count) in works.items():
            best[name] = max(best[name], speed(work, count))
    report(best, as_json=arguments.json)


def report(best: dict[str, float], *, as_json: bool) -> None:
    """Print images per second, and how many times faster than ``literal``."""
    ratios = {name: value / best["literal"] for name, value in best.items() if name != "draws"}
    if as_json:
        used = best.get("kernels", best["numpy"])
        told = {f"{name}_images_per_s_64": value for name, value in best.items()}
        print(json.dumps({"images_per_s_64": used, **told, "ratios": ratios}))
        return
    print(f"{'':<10}{'images/s':>10}{'x literal':>11}")
    for name, value in best.items():
        ratio = f"{ratios[name]:>11.1f}" if name in ratios else ""
        print(f"{name:<10}{value:>10.1f}{ratio}")


if __name__ == "__main__":
    main()
