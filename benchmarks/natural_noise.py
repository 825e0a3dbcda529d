"""Natural noise at 64 pixels: images per second on one core, in three implementations.

``kernels`` and ``numpy`` compute one map for each layer, compiled or not, and a new instance of
the generator for each 400 images. ``literal`` computes all 512 channels with torch in float32, as
the published recipe says, from the same draws, in one instance that is drawn before. ``draws``
makes the random numbers only, which limits the others. CPU time; the best of several repeats in
turn, as other programs slow all of them.

    python -m benchmarks.natural_noise [--images 400] [--literal 4] [--repeats 3] [--json]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.shared.harness import cpu_seconds, in_turn, parser, show
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


def figures(best: dict[str, float]) -> dict[str, Any]:
    """Return images per second, and how many times faster than ``literal``."""
    ratios = {name: speed / best["literal"] for name, speed in best.items() if name != "draws"}
    used = best.get("kernels", best["numpy"])
    speeds = {f"{name}_images_per_s_64": speed for name, speed in best.items()}
    return {"images_per_s_64": used, **speeds, "ratios": ratios}


def main() -> None:
    """Measure and print."""
    options = parser("natural_noise", __doc__, images=400, literal=4, repeats=3).parse_args()
    set_threads(1)
    instance = draw_instance(generator(1, "instance"), layer_shapes(SIZE))
    works: dict[str, tuple[Callable[[int], None], int]] = {
        "draws": (only_draws, options.images),
        "numpy": (partial(one_map, synthesis), options.images),
        "literal": (partial(every_channel, instance), options.literal),
    }
    if native().library is not None:
        works["kernels"] = (partial(one_map, compiled_synthesis), options.images)
    seconds = in_turn(
        {n: partial(cpu_seconds, partial(work, count)) for n, (work, count) in works.items()},
        options.repeats,
    )
    best = {name: count / min(seconds[name]) for name, (_, count) in works.items()}
    show(options, figures(best))


if __name__ == "__main__":
    main()
