"""Images of the untrained StyleGAN by the compiled kernels: ``oriented.synthesis`` up to rounding.

One thread computes an image, in an order that does not depend on other images.
"""

from __future__ import annotations

from edgefed.native.noise_calls import MAP_SIDE, NoiseLayer, noise_image, pink_means
from edgefed.natural_noise.kernels import bank
from edgefed.natural_noise.oriented_draws import PINK_SIDE, ImageDraw, LayerShape
from edgefed.natural_noise.pink_noise import PinkDraw, lanczos, logarithms
from edgefed.natural_noise.types import Array

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
