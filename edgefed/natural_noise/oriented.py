"""Natural noise of an untrained StyleGAN2 whose kernels are wavelets ("StyleGAN-Oriented").

Baradad, Wulff, Wang, Isola, Torralba: Learning to See by Looking at Noise, NeurIPS 2021, as the
published code draws it; ``one_map_layer`` describes how it is made fast. Each step is elementwise,
or exact, or sums in one fixed order, so that its bits do not depend on batches or threads. Where
the compiled kernels are in use they draw the images; those differ by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from edgefed.native.library import native
from edgefed.native.noise_calls import MAP_SIDE, NoiseLayer, noise_image, pink_means
from edgefed.natural_noise.colours import coloured
from edgefed.natural_noise.kernels import bank
from edgefed.natural_noise.one_map_layer import (
    TAPS,
    convolved,
    convolved_up,
    enlarged,
    one_map_layer,
)
from edgefed.natural_noise.oriented_draws import (
    LATENT,
    PINK_SIDE,
    ImageDraw,
    Instance,
    LayerShape,
    draw_image,
    draw_instance,
    layer_shapes,
)
from edgefed.natural_noise.pink_noise import PinkDraw, area_means, lanczos, logarithms, pink_map
from edgefed.natural_noise.types import COLOURS, Array
from edgefed.seeds import generator

assert PINK_SIDE == MAP_SIDE


def compiled_synthesis(
    shapes: tuple[LayerShape, ...],
    constant: Array,
    drawn: ImageDraw,
    styles: list[Array],
    colour_styles: list[Array],
) -> Array:
    """Return the generator's output (3, size, size), float32, before its colours are set.

    Arguments are those of ``oriented.synthesis``.
    """
    to_colours = iter(zip(drawn.to_colours, colour_styles, strict=True))
    layers = []
    for shape, draw, style in zip(shapes, drawn.layers, styles, strict=True):
        own = (draw.strength, draw.kernels, style, draw.amplitudes, draw.biases)
        ends = (None, None) if shape.colour_latent is None else next(to_colours)
        layers.append(NoiseLayer(shape.side, shape.up, *own, *ends))
    noise = compiled_pink_means(drawn.pink, shapes[-1].side)
    return noise_image(layers, bank(), constant, noise)


def compiled_pink_means(drawn: PinkDraw, side: int) -> Array:
    """Return the pink map that all layers of an image share, at ``side`` pixels, float32."""
    assert drawn.envelope is not None
    envelope = lanczos(PINK_SIDE), drawn.envelope
    return pink_means(logarithms(PINK_SIDE), drawn.phases, drawn.alpha, *envelope, side)


PER_INSTANCE = 400
"""Images until the generator is instantiated anew."""

_TOGETHER = 16
"""Images whose styles are computed at once."""

_BLOCK = 16
"""Channels whose styles are computed at once; divides their number."""


Synthesis = Callable[[tuple[LayerShape, ...], Array, ImageDraw, list[Array], list[Array]], Array]
"""``synthesis``, or the same by other means."""


def draw_oriented(
    seed: int, first: int, count: int, size: int, draw: Synthesis | None = None
) -> Iterator[Array]:
    """Yield images from ``first`` on (3, size, size), float64, unclipped.

    Args:
        seed: of the images.
        first: number of the first one.
        count: number of images.
        size: their side.
        draw: computes them; if None, the compiled kernels where they are in use.
    """
    shapes = layer_shapes(size)
    number, last = first, first + count
    while number < last:
        block = number // PER_INSTANCE
        instance = draw_instance(generator(seed, "oriented", "instance", block), shapes)
        end = min(last, (block + 1) * PER_INSTANCE)
        for start in range(number, end, _TOGETHER):
            numbers = range(start, min(end, start + _TOGETHER))
            drawn = [draw_image(generator(seed, "oriented", "image", n), shapes) for n in numbers]
            yield from images_of(shapes, instance, drawn, draw)
        number = end


def images_of(
    shapes: tuple[LayerShape, ...],
    instance: Instance,
    drawn: list[ImageDraw],
    draw: Synthesis | None = None,
) -> Iterator[Array]:
    """Yield the images of some draws; ``draw`` as for ``draw_oriented``."""
    latents = np.stack([image_draw.latents for image_draw in drawn])
    styles = [
        _styles(affine, latents[:, shape.latent])
        for affine, shape in zip(instance.styles, shapes, strict=True)
    ]
    ends = [shape for shape in shapes if shape.colour_latent is not None]
    colour_styles = [
        _styles(affine, latents[:, shape.colour_latent]) / np.sqrt(shape.outputs)
        for affine, shape in zip(instance.colour_styles, ends, strict=True)
    ]
    if draw is None:
        draw = synthesis if native().library is None else compiled_synthesis
    for place, image_draw in enumerate(drawn):
        own = [style[place] for style in styles]
        of_colours = [style[place] for style in colour_styles]
        image = draw(shapes, instance.constant, image_draw, own, of_colours)
        yield coloured(image, image_draw.colours)


def _styles(affine: Array, latents: Array) -> Array:
    """Return the styles (images, channels) of latents (images, 512).

    In blocks so small that a library for matrices takes no second thread for them.
    """
    blocks = affine.reshape(-1, _BLOCK, LATENT)
    products = (blocks @ latents.T).reshape(len(affine), len(latents))
    return np.asarray(np.ascontiguousarray(products.T) / np.sqrt(LATENT) + 1)


def synthesis(
    shapes: tuple[LayerShape, ...],
    constant: Array,
    drawn: ImageDraw,
    styles: list[Array],
    colour_styles: list[Array],
) -> Array:
    """Return the generator's output (3, size, size), float32, before its colours are set.

    Args:
        shapes: the layers.
        constant: the input (channels, 4, 4).
        drawn: for this image.
        styles: of each layer (inputs,).
        colour_styles: of each conversion to colours (channels,).
    """
    noise = area_means(pink_map(drawn.pink), shapes[-1].side, shapes[0].side)
    taps = [
        style[:, None] * bank()[draw.kernels].reshape(-1, TAPS)
        for draw, style in zip(drawn.layers, styles, strict=True)
    ]
    sums = np.einsum("ct,cyx->tyx", taps[0], constant).astype(np.float32)
    image: Array = np.zeros((COLOURS, 2, 2), np.float32)
    to_colours = iter(zip(drawn.to_colours, colour_styles, strict=True))
    for place, shape in enumerate(shapes):
        common = (convolved_up if shape.up else convolved)(sums[:TAPS])
        layer = one_map_layer(common, noise[shape.side], drawn.layers[place], taps[place])
        wanted = taps[place + 1 : place + 2]
        if shape.colour_latent is not None:
            weights, style = next(to_colours)
            wanted = [*wanted, (weights * style).T]
        sums = layer.sums(np.concatenate(wanted, axis=1)).reshape(-1, shape.side, shape.side)
        if shape.colour_latent is not None:
            image = enlarged(image) + sums[-COLOURS:]
    return image
