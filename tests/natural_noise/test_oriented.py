"""Natural noise against the published recipe written out, and by the recipe's statistics."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

from edgefed.native.library import native
from edgefed.natural_noise.colours import as_bytes, draw_colours
from edgefed.natural_noise.kernels import bank
from edgefed.natural_noise.oriented import (
    Synthesis,
    compiled_synthesis,
    draw_oriented,
    images_of,
    synthesis,
)
from edgefed.natural_noise.oriented_draws import (
    ImageDraw,
    Instance,
    channels,
    draw_image,
    draw_instance,
    layer_shapes,
)
from edgefed.natural_noise.pink_noise import area_means, draw_pink, pink_map
from edgefed.natural_noise.types import Array
from edgefed.seeds import generator
from tests.natural_noise.literal import coloured, literal, pink, wavelets


def drawn(seed: int, size: int) -> tuple[Instance, ImageDraw]:
    shapes = layer_shapes(size)
    return draw_instance(generator(seed, "a"), shapes), draw_image(generator(seed, "b"), shapes)


@pytest.fixture(params=["numpy", "kernels"])
def draw(request: pytest.FixtureRequest) -> Synthesis:
    """Both ways to compute an image."""
    if request.param == "numpy":
        return synthesis
    if native().library is None:
        pytest.skip(f"without compiled kernels: {native().reason}")
    return compiled_synthesis


def ours(instance: Instance, image: ImageDraw, size: int, draw: Synthesis) -> Array:
    (found,) = images_of(layer_shapes(size), instance, [image], draw)
    return np.clip(found, 0, 1)


@cache
def of_all_channels(seed: int, size: int) -> Array:
    instance, image = drawn(seed, size)
    return coloured(literal(layer_shapes(size), instance, image), image.colours)


@pytest.mark.parametrize(("seed", "size"), [(3, 32), (4, 128)])
def test_an_image_is_the_one_of_all_channels(seed: int, size: int, draw: Synthesis) -> None:
    instance, image = drawn(seed, size)
    expected = of_all_channels(seed, size)
    assert expected.std() > 0.05
    found = ours(instance, image, size, draw)
    assert np.abs(found - expected).max() < 1e-3
    bytes_apart = as_bytes(found).astype(int) - as_bytes(expected).astype(int)
    assert np.abs(bytes_apart).max() <= 1


def test_channels_of_tiny_amplitude_shrink_as_the_literal_ones_do(draw: Synthesis) -> None:
    instance, image = drawn(5, 32)
    layers = tuple(
        replace(layer, amplitudes=layer.amplitudes * 10.0 ** -np.arange(512).clip(0, 9))
        for layer in image.layers
    )
    image = replace(image, layers=layers)
    expected = coloured(literal(layer_shapes(32), instance, image), image.colours)
    assert np.abs(ours(instance, image, 32, draw) - expected).max() < 1e-3


def test_the_bank_has_forty_kernels_of_which_the_first_sixteen_sum_to_nothing() -> None:
    kernels = bank()
    assert kernels.shape == (40, 3, 3)
    assert np.abs(kernels - wavelets().numpy()).max() < 1e-6
    assert np.abs(kernels[:16].sum(axis=(1, 2))).max() < 1e-6
    assert np.array_equal(kernels[20:], -kernels[:20])
    norms = np.sqrt(np.square(kernels).sum(axis=(1, 2)))
    assert norms[:8].min() > 1.99 and norms[:8].max() < 2.46
    assert norms[8:16].min() > 1.97 and norms[8:16].max() < 2.84
    assert norms[16:20] == pytest.approx([1, 3, np.sqrt(5), 3])


def test_conversions_to_colours_share_the_next_convolutions_latent() -> None:
    shapes = layer_shapes(64)
    assert [shape.latent for shape in shapes] == list(range(9))
    ends = [shape for shape in shapes if shape.colour_latent is not None]
    assert [shape.side for shape in ends] == [4, 8, 16, 32, 64]
    assert [shape.colour_latent for shape in ends] == [1, 3, 5, 7, 9]
    assert len(drawn(1, 64)[1].latents) == 10
    assert [channels(side) for side in (4, 64, 128, 256)] == [512, 512, 256, 128]


def test_draws_follow_the_recipe() -> None:
    shapes = layer_shapes(32)
    images = [draw_image(generator(seed, "b"), shapes) for seed in range(60)]
    layers = [layer for image in images for layer in image.layers]
    kinds = [len(np.unique(layer.kernels)) for layer in layers]
    assert min(kinds) == 5
    assert max(kinds) == 40
    every = np.concatenate([layer.kernels for layer in layers])
    assert np.bincount(every, minlength=40).min() > 0.85 * len(every) / 40
    biases = np.concatenate([layer.biases for layer in layers])
    assert np.abs(biases).max() <= 0.2
    assert biases.std() == pytest.approx(0.4 / np.sqrt(12), rel=0.01)
    amplitudes = np.concatenate([layer.amplitudes for layer in layers])
    assert (amplitudes.mean(), amplitudes.std()) == pytest.approx((0, 1), abs=0.01)
    strengths = np.array([layer.strength for layer in layers])
    assert 0 <= strengths.min() < 0.02 and 0.28 < strengths.max() <= 0.3
    latents = np.concatenate([image.latents.ravel() for image in images])
    assert np.square(latents[latents > 0]).mean() == pytest.approx(1, rel=0.02)
    assert np.square(latents[latents < 0]).mean() == pytest.approx(0.04, rel=0.02)
    alphas = [image.pink.alpha for image in images]
    assert 0.5 <= min(alphas) < 0.6 and 1.4 < max(alphas) <= 1.5


def test_each_layer_and_image_draws_anew() -> None:
    shapes = layer_shapes(32)
    image, other = (draw_image(generator(seed, "b"), shapes) for seed in (1, 2))
    seen = {tuple(layer.biases) for layer in (*image.layers, *other.layers)}
    assert len(seen) == 2 * len(shapes)
    assert len({tuple(weights.ravel()) for weights in image.to_colours}) == 4


def test_colours_have_the_published_distribution_and_are_not_clamped() -> None:
    numbers = generator(1, "colours")
    every = np.stack([draw_colours(numbers) for _ in range(20_000)])
    assert every[:, 0].mean(axis=0) == pytest.approx([0.483, 0.455, 0.401], abs=0.005)
    assert every[:, 0].std(axis=0) == pytest.approx([0.145, 0.142, 0.161], rel=0.03)
    assert every[:, 1].mean(axis=0) == pytest.approx([0.219, 0.213, 0.213], abs=0.003)
    assert every[:, 1].std(axis=0) == pytest.approx([0.063, 0.062, 0.069], rel=0.03)
    assert (every[:, 0] < 0).any() and (every[:, 1] < 0).any()


def test_an_image_has_the_drawn_colours_before_it_is_clipped(draw: Synthesis) -> None:
    instance, image = drawn(6, 64)
    (found,) = images_of(layer_shapes(64), instance, [image], draw)
    assert found.mean(axis=(1, 2)) == pytest.approx(image.colours[0])
    assert found.std(axis=(1, 2)) == pytest.approx(np.abs(image.colours[1]))


def test_values_are_clipped_and_truncated() -> None:
    values = np.array([-0.5, 0, 0.999 / 255, 1.0 / 255, 254.99 / 255, 1, 1.5])
    assert as_bytes(values).tolist() == [0, 0, 0, 1, 254, 255, 255]


@pytest.mark.parametrize("envelope", [True, False])
def test_a_pink_map_is_the_one_of_the_whole_grid(envelope: bool) -> None:
    drawn = draw_pink(generator(3, "pink"), 64, envelope=envelope)
    expected = pink(drawn).numpy()
    assert np.abs(pink_map(drawn) - expected).max() < 1e-4
    assert expected.std() == pytest.approx(1, abs=1e-3)


def test_a_pink_maps_spectrum_falls_as_was_drawn() -> None:
    powers = []
    for seed in range(20):
        drawn = replace(draw_pink(generator(seed, "pink"), 128, envelope=False), alpha=1.2)
        powers.append(np.abs(np.fft.fft2(pink_map(drawn))) ** 2)
    power = np.mean(powers, axis=0)[0, 1:40]
    slope = np.polyfit(np.log(np.arange(1, 40)), np.log(power), 1)[0]
    assert slope == pytest.approx(-2.4, abs=0.25)


def test_a_pink_map_shrinks_by_the_mean_of_blocks_and_is_not_set_to_one_again() -> None:
    noise = pink_map(draw_pink(generator(3, "pink"), 128, envelope=True))
    means = area_means(noise, 32, 4)
    assert sorted(means) == [4, 8, 16, 32]
    for side, small in means.items():
        step = 128 // side
        expected = noise.reshape(side, step, side, step).astype(float).mean(axis=(1, 3))
        assert small == pytest.approx(expected, abs=1e-5)
    assert means[4].std() < means[32].std() < 1


def test_the_generator_is_made_anew_every_four_hundred_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    def counted(seed: int, *words: str | int) -> np.random.Generator:
        if words[1] == "instance":
            made.append(int(words[2]))
        return generator(seed, *words)

    monkeypatch.setattr("edgefed.natural_noise.oriented.generator", counted)
    for first, instances in [(398, [0]), (399, [0, 1]), (400, [1]), (799, [1, 2])]:
        made.clear()
        assert len(list(islice(draw_oriented(1, first, 2, 32), 2))) == 2
        assert made == instances
