"""The draws of the untrained StyleGAN of natural noise, for each instance and for each image.

Baradad et al., NeurIPS 2021, "StyleGAN-Oriented", as the published code draws for each image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgefed.natural_noise.colours import draw_colours
from edgefed.natural_noise.kernels import bank
from edgefed.natural_noise.pink_noise import PinkDraw, draw_pink
from edgefed.natural_noise.types import COLOURS, Array

LATENT = 512
"""Numbers in a latent."""

SMALLEST = 4
"""Side of the constant input."""

PINK_SIDE = 512
"""Side of the pink map that all layers share."""

BIAS = 0.2
STRENGTH = 0.3
_FEWEST_KERNELS = 5
_GRID = 2.0**16


@dataclass(frozen=True)
class LayerShape:
    """One convolution.

    Attributes:
        side: of its output.
        up: whether it doubles the side of its input.
        inputs, outputs: channels.
        latent: number of its latent.
        colour_latent: number of the latent of the conversion to colours behind it; None for none.
    """

    side: int
    up: bool
    inputs: int
    outputs: int
    latent: int
    colour_latent: int | None


@dataclass(frozen=True)
class Instance:
    """The draws of an instance of the generator, shared by all of its images.

    Attributes:
        constant: the input (channels, 4, 4).
        styles: for each layer the affine map (inputs, 512) from its latent to its style.
        colour_styles: likewise (outputs, 512) for each conversion to colours, in order.
    """

    constant: Array
    styles: tuple[Array, ...]
    colour_styles: tuple[Array, ...]


@dataclass(frozen=True)
class LayerDraw:
    """The draws of a convolution for an image.

    Attributes:
        kernels: the kernel of each input channel, a number in the bank (inputs,).
        amplitudes, biases: (outputs,).
        strength: of the pink noise.
    """

    kernels: Array
    amplitudes: Array
    biases: Array
    strength: float


@dataclass(frozen=True)
class ImageDraw:
    """All that is drawn for one image.

    Attributes:
        latents: (latents, 512).
        pink: of the map that all layers share.
        layers: one each.
        to_colours: weights (3, outputs) of each conversion to colours, in order.
        colours: means and standard deviations (2, 3).
    """

    latents: Array
    pink: PinkDraw
    layers: tuple[LayerDraw, ...]
    to_colours: tuple[Array, ...]
    colours: Array


def channels(side: int) -> int:
    """Return the channels at a resolution."""
    return min(32768 // side, LATENT)


def layer_shapes(size: int) -> tuple[LayerShape, ...]:
    """Return the convolutions of a generator of images of ``size`` pixels.

    The conversion to colours shares its latent with the next resolution's first convolution.
    """
    first = channels(SMALLEST)
    shapes = [LayerShape(SMALLEST, False, first, first, 0, 1)]
    side = SMALLEST
    while side < size:
        side *= 2
        latent, before, after = len(shapes), channels(side // 2), channels(side)
        shapes.append(LayerShape(side, True, before, after, latent, None))
        shapes.append(LayerShape(side, False, after, after, latent + 1, latent + 2))
    return tuple(shapes)


def draw_instance(generator: np.random.Generator, shapes: tuple[LayerShape, ...]) -> Instance:
    """Draw an instance of the generator."""
    constant = generator.standard_normal((shapes[0].inputs, SMALLEST, SMALLEST))
    styles = tuple(_affine(generator, shape.inputs) for shape in shapes)
    colours = (shape.outputs for shape in shapes if shape.colour_latent is not None)
    return Instance(constant, styles, tuple(_affine(generator, count) for count in colours))


def draw_image(generator: np.random.Generator, shapes: tuple[LayerShape, ...]) -> ImageDraw:
    """Draw all values of one image."""
    normal = generator.standard_normal((len(shapes) + 1, LATENT))
    latents = _on_grid(np.where(normal < 0, 0.2 * normal, normal))
    pink = draw_pink(generator, PINK_SIDE, envelope=True)
    layers = tuple(_draw_layer(generator, shape) for shape in shapes)
    outputs = (shape.outputs for shape in shapes if shape.colour_latent is not None)
    to_colours = tuple(generator.standard_normal((COLOURS, count)) for count in outputs)
    return ImageDraw(latents, pink, layers, to_colours, draw_colours(generator))


def _draw_layer(generator: np.random.Generator, shape: LayerShape) -> LayerDraw:
    every = len(bank())
    some = generator.permutation(every)[: generator.integers(_FEWEST_KERNELS, every + 1)]
    return LayerDraw(
        kernels=some[generator.integers(len(some), size=shape.inputs)],
        amplitudes=generator.standard_normal(shape.outputs),
        biases=generator.uniform(-BIAS, BIAS, shape.outputs),
        strength=generator.uniform(0, STRENGTH),
    )


def _affine(generator: np.random.Generator, outputs: int) -> Array:
    drawn = generator.standard_normal((outputs, LATENT), dtype=np.float32)
    return _on_grid(drawn.astype(np.float64))


def _on_grid(values: Array) -> Array:
    """Return values rounded to multiples of 2^-16.

    Products of two such numbers and sums of 512 of them are exact in float64, so a style has the
    same bits in whatever order, batch and number of threads a library sums.
    """
    return np.asarray(np.rint(values * _GRID) / _GRID)
