"""The published recipe of StyleGAN-Oriented written out: every channel, in torch, in float64.

Nothing of ``edgefed.natural_noise`` is used but its draws and the layers' shapes.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from edgefed.natural_noise.oriented_draws import ImageDraw, Instance, LayerShape
from edgefed.natural_noise.pink_noise import PinkDraw
from edgefed.natural_noise.types import Array

FILTER = torch.outer(*[torch.tensor([1.0, 3, 3, 1], dtype=torch.float64)] * 2) / 64


def wavelets() -> torch.Tensor:
    """The bank (40, 3, 3)."""
    found = []
    edge, ridge = np.ones((11, 11)), np.ones((11, 11))
    edge[:, 5] = 0
    edge[:, 6:] *= -1
    ridge[:, 5] = -1
    for prototype in (edge, ridge):
        for i in range(8):
            turned = Image.fromarray(prototype).rotate(i * 22.5, resample=Image.Resampling.BILINEAR)
            centre = np.array(turned)[4:7, 4:7]
            found.append(centre - centre.mean())
    delta = np.zeros((3, 3))
    delta[1, 1] = 1
    surround = -np.ones((3, 3))
    surround[1, 1] = 1
    plus = np.ones((3, 3))
    plus[::2, ::2] = 0
    found += [delta, surround, plus, np.sign(plus - 0.5)]
    return torch.tensor(np.array(found + [-each for each in found]), dtype=torch.float64)


def pink(drawn: PinkDraw) -> torch.Tensor:
    """The pink map on the whole grid."""
    half = drawn.phases.shape[1] - 1
    side = 2 * half
    axis = np.linspace(-1, 1, side + 1)
    across, down = np.meshgrid(axis, axis)
    radius = np.hypot(across, down)
    radius[half, half] = 1e-5
    magnitude = radius**-drawn.alpha
    magnitude[half, half] = 0
    phase = np.zeros_like(radius)
    stored = drawn.phases.astype(np.float64) * 2 * np.pi
    for y in range(-half, half + 1):
        phase[y + half, half + 1 :] = stored[y, 1:]
        phase[half - y, :half] = -stored[y, :0:-1]
    for y in range(1, half + 1):
        phase[half + y, half], phase[half - y, half] = stored[y, 0], -stored[y, 0]
    field = np.fft.ifft2(np.fft.ifftshift(magnitude * np.exp(1j * phase)))
    assert np.abs(field.imag).max() < 1e-9 * np.abs(field.real).max()
    noise = field.real[:-1, :-1]
    noise = noise - noise.mean()
    if drawn.envelope is not None:
        bumps = Image.fromarray(drawn.envelope)
        noise = noise * np.array(bumps.resize((side, side), Image.Resampling.LANCZOS))
    whole = torch.tensor(noise)
    return torch.divide(whole, whole.std())


def upsampled(image: torch.Tensor) -> torch.Tensor:
    """The skip image at twice its size: zeros between the pixels, then the filter with gain 4."""
    _, channels, height, width = image.shape
    wide = torch.zeros(1, channels, 2 * height, 2 * width, dtype=image.dtype)
    wide[:, :, ::2, ::2] = image
    return filtered(functional.pad(wide, (2, 1, 2, 1)))


def filtered(image: torch.Tensor) -> torch.Tensor:
    """The filter with gain 4, channel by channel."""
    kernel = (FILTER * 4).to(image.dtype).expand(image.shape[1], 1, 4, 4)
    return functional.conv2d(image, kernel, groups=image.shape[1])


def modulated(
    x: torch.Tensor, weight: torch.Tensor, style: torch.Tensor, *, up: bool
) -> torch.Tensor:
    """A modulated and demodulated convolution of all output channels."""
    weight = weight * style[None, :, None, None]
    weight = weight * (weight.square().sum(dim=[1, 2, 3], keepdim=True) + 1e-8).rsqrt()
    if not up:
        return functional.conv2d(x, weight, padding=1)
    whole = functional.conv_transpose2d(x, weight.transpose(0, 1), stride=2)
    return filtered(functional.pad(whole, (1, 1, 1, 1)))


def style_of(affine: Array, latent: Array) -> torch.Tensor:
    """The affine map of a latent, with bias 1."""
    return torch.tensor(affine @ latent / np.sqrt(512) + 1)


def literal(
    shapes: tuple[LayerShape, ...],
    instance: Instance,
    drawn: ImageDraw,
    dtype: torch.dtype = torch.float64,
) -> Array:
    """The image (3, size, size) before its colours are set."""
    bank, noise_map = wavelets().to(dtype), pink(drawn.pink).to(dtype)
    x = torch.tensor(instance.constant, dtype=dtype)[None]
    image, colour = None, 0
    for number, (shape, layer) in enumerate(zip(shapes, drawn.layers, strict=True)):
        style = style_of(instance.styles[number], drawn.latents[shape.latent]).to(dtype)
        amplitudes = torch.tensor(layer.amplitudes, dtype=dtype)
        weight = amplitudes[:, None, None, None] * bank[layer.kernels][None]
        x = modulated(x, weight, style, up=shape.up)
        sized = functional.interpolate(noise_map[None, None], (shape.side,) * 2, mode="area")
        bias = torch.tensor(layer.biases, dtype=dtype)[None, :, None, None]
        x = torch.relu(x + sized * layer.strength + bias) * np.sqrt(2)
        if shape.colour_latent is not None:
            style = style_of(instance.colour_styles[colour], drawn.latents[shape.colour_latent])
            weights = torch.tensor(drawn.to_colours[colour]) * style / np.sqrt(shape.outputs)
            added = functional.conv2d(x, weights.to(dtype)[:, :, None, None])
            image = added if image is None else upsampled(image) + added
            colour += 1
    assert image is not None
    return image[0].numpy()


def coloured(image: Array, colours: Array) -> Array:
    """The image with its colours set, from 0 to 1."""
    channels = []
    for number, values in enumerate(image.astype(np.float64)):
        normal = (values - values.mean()) / values.std()
        channels.append(normal * colours[1][number] + colours[0][number])
    return np.clip(np.stack(channels), 0, 1)
