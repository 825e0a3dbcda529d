"""Call the kernels of natural noise with random sizes and draws, and compare them with numpy."""

from __future__ import annotations

import numpy as np

from edgefed.native import noise_calls
from edgefed.native.noise_calls import MAP_SIDE, NoiseLayer
from tests.native import noise_reference
from tests.native.random_layers import near

KERNELS = 7


def fuzz_noise_image(rng: np.random.Generator) -> None:
    side, channels = int(rng.choice([1, 2, 4, 5])), int(rng.integers(1, 50))
    bank = rng.standard_normal((KERNELS, 3, 3))
    constant = rng.standard_normal((channels, side, side))
    layers = [layer_of(rng, side, channels, up=False, colours=True)]
    for _ in range(int(rng.integers(0, 4))):
        inputs, outputs = len(layers[-1].biases), int(rng.integers(1, 50))
        side *= 2
        between = bool(rng.random() < 0.5)
        layers.append(layer_of(rng, side, inputs, outputs, up=True, colours=not between))
        if between:
            layers.append(layer_of(rng, side, outputs, up=False, colours=True))
    noise_map = rng.standard_normal((side, side)).astype(np.float32)
    arguments = (layers, bank, constant, noise_map)
    found = noise_calls.noise_image(*arguments)
    what = f"image of {[(each.side, len(each.style), len(each.biases)) for each in layers]}"
    near(found, noise_reference.image(*arguments), what)
    assert np.array_equal(found, noise_calls.noise_image(*arguments))


def layer_of(
    rng: np.random.Generator,
    side: int,
    inputs: int,
    outputs: int | None = None,
    *,
    up: bool,
    colours: bool,
) -> NoiseLayer:
    outputs = int(rng.integers(1, 50)) if outputs is None else outputs
    amplitudes = rng.standard_normal(outputs)
    if rng.random() < 0.5:  # channels that demodulation shrinks
        amplitudes *= 10.0 ** rng.integers(-12, 1, outputs)
    if rng.random() < 0.2:  # all on one side
        amplitudes = np.abs(amplitudes) + 1
    biases = rng.uniform(-1, 1, outputs) * 10.0 ** rng.integers(-3, 2)
    if rng.random() < 0.3:  # equal ones, and one far from the others
        biases = rng.choice(biases[:3], outputs)
        biases[0] *= 1e3
    return NoiseLayer(
        side,
        up,
        float(rng.choice([0, rng.random()])),
        rng.integers(KERNELS, size=inputs),
        rng.standard_normal(inputs),
        amplitudes,
        biases,
        rng.standard_normal((3, outputs)) if colours else None,
        rng.standard_normal(outputs) if colours else None,
    )


def fuzz_pink(rng: np.random.Generator) -> None:
    grid = (MAP_SIDE + 1, MAP_SIDE // 2 + 1)
    phases = rng.random(grid, dtype=np.float32)
    if rng.random() < 0.3:  # ends of the range, and quarters of a turn
        phases = rng.choice(np.array([0, 0.125, 0.25, 0.5, 0.75, 1 - 2**-24], np.float32), grid)
    down = np.minimum(np.arange(grid[0]), grid[0] - np.arange(grid[0]))
    distance = np.hypot(down[:, None], np.arange(grid[1])) / (MAP_SIDE // 2)
    distance[0, 0] = 1
    weights, bumps = (rng.standard_normal(size).astype(np.float32) for size in ((MAP_SIDE, 4), 4))
    arguments = (
        np.log(distance).astype(np.float32),
        phases,
        float(rng.uniform(0.5, 1.5)),
        weights,
        np.outer(bumps, rng.standard_normal(4)).astype(np.float32),
        int(2 ** rng.integers(0, 10)),
    )
    found = noise_calls.pink_means(*arguments)
    near(found, noise_reference.pink_means(*arguments), f"pink map at {arguments[-1]} pixels")
    assert np.array_equal(found, noise_calls.pink_means(*arguments))
