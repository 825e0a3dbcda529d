"""Images of natural noise from a seed: three generators behind one function.

Image i of a seed and size does not depend on other images or the process, given the same processor
and numpy version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import numpy as np

from edgefed.errors import UsageError
from edgefed.natural_noise.colours import as_bytes, coloured, draw_colours
from edgefed.natural_noise.oriented import draw_oriented
from edgefed.natural_noise.pink_noise import draw_pink, pink_map
from edgefed.natural_noise.types import COLOURS, SIZES, Array, GeneratorName
from edgefed.seeds import derive, generator

MOST_IMAGES = 2**32
"""Images that a seed has."""


def noise_images(
    seed: int, count: int, *, kind: GeneratorName = "oriented", size: int = 64, first: int = 0
) -> Array:
    """Return images ``first`` to ``first + count`` of a seed: uint8 (count, 3, size, size).

    Args:
        seed: of the images, in [0, 2**63).
        count: number of images.
        kind: name of the generator.
        size: their side; one of ``SIZES``.
        first: number of the first one.

    Raises:
        UsageError: ``noise.settings``: there is no such generator, size or image.
    """
    drawn = one_by_one(seed, count, kind=kind, size=size, first=first)
    images = np.empty((count, COLOURS, size, size), np.uint8)
    for place, image in enumerate(drawn):
        images[place] = image
    return images


def one_by_one(
    seed: int, count: int, *, kind: GeneratorName, size: int, first: int
) -> Iterator[Array]:
    """Return the images of ``noise_images`` as they are drawn, each uint8 (3, size, size).

    Raises:
        UsageError: ``noise.settings``.
    """
    check_noise(seed, count, kind=kind, size=size, first=first)
    own = derive(seed, "natural-noise", kind, size)
    return map(as_bytes, _KINDS[kind](own, first, count, size))


def check_noise(
    seed: int, count: int, *, kind: str = "oriented", size: int = 64, first: int = 0
) -> None:
    """Check the arguments of ``noise_images``.

    Raises:
        UsageError: ``noise.settings``.
    """
    if kind not in get_args(GeneratorName):
        raise _refused(
            f"There is no generator {kind!r} of natural noise.",
            f"choose from {', '.join(get_args(GeneratorName))}",
        )
    if size not in SIZES:
        raise _refused(
            f"Natural noise cannot be drawn at {size} pixels.",
            f"choose a size from {', '.join(map(str, SIZES))}",
        )
    if not 0 <= seed < 2**63:
        raise _refused(f"{seed} is no seed.", "choose a seed from 0 to 2^63 - 1")
    if first < 0 or count < 0 or first + count > MOST_IMAGES:
        raise _refused(
            f"A seed has no images {first} to {first + count}.", f"it has {MOST_IMAGES}, from 0"
        )


def _spectrum(seed: int, first: int, count: int, size: int) -> Iterator[Array]:
    """Yield pink noise: random phases for each channel, without an envelope."""
    for number in range(first, first + count):
        draw = generator(seed, "image", number)
        maps = [pink_map(draw_pink(draw, size, envelope=False)) for _ in range(COLOURS)]
        yield coloured(np.stack(maps), draw_colours(draw))


def _white(seed: int, first: int, count: int, size: int) -> Iterator[Array]:
    """Yield independent normal pixels."""
    for number in range(first, first + count):
        draw = generator(seed, "image", number)
        pixels = draw.standard_normal((COLOURS, size, size))
        yield coloured(pixels, draw_colours(draw))


_KINDS = {"oriented": draw_oriented, "spectrum": _spectrum, "white": _white}


def _refused(what: str, hint: str) -> UsageError:
    return UsageError(what, code="noise.settings", hint=hint)
