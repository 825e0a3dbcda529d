"""Torchvision's transforms of single images: what they change, and what their draws depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms import v2

from edgefed.errors import DataError
from edgefed.learn.base.augment import Augment, check_augment
from edgefed.learn.base.image_transforms import ImageTransforms, check_transforms, transformed
from edgefed.seeds import derive

BLACK = torch.zeros(1, 1, 1, dtype=torch.uint8)

EACH: dict[str, dict[str, Any]] = {
    "resized_crop": {"resized_crop": 0.3},
    "flip": {"flip": True},
    "rand_augment": {"rand_augment": 2},
    "brightness": {"brightness": 0.5},
    "contrast": {"contrast": 0.5},
    "saturation": {"saturation": 0.5},
    "hue": {"hue": 0.2},
    "erase": {"erase": 1.0},
}
"""Every transform by itself."""

EVERYTHING = ImageTransforms(
    resized_crop=0.3,
    flip=True,
    rand_augment=2,
    brightness=0.4,
    contrast=0.4,
    saturation=0.4,
    hue=0.1,
    erase=0.5,
)

COLOURS = ("brightness", "contrast", "saturation", "hue")


def noise(count: int = 12, channels: int = 3, height: int = 16, width: int = 20) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    shape = (count, channels, height, width)
    return torch.randint(256, shape, generator=generator).to(torch.uint8)


def done(images: torch.Tensor, neutral: torch.Tensor = BLACK, **wanted: Any) -> torch.Tensor:
    """Return images after what is wanted, with their numbers as seeds."""
    return transformed(ImageTransforms(**wanted), images, range(len(images)), neutral)


# -- what each of them does -----------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**62),
    least=st.floats(0.01, 1.0),
    channels=st.sampled_from([1, 2, 3]),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    last=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_a_resized_crop_is_torchvisions(
    seed: int, least: float, channels: int, height: int, width: int, last: bool
) -> None:
    images = noise(1, channels, height, width)
    order = torch.channels_last if last else torch.contiguous_format
    ours = transformed(
        ImageTransforms(resized_crop=least), images.contiguous(memory_format=order), [seed], BLACK
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, "resized_crop"))
        theirs = v2.RandomResizedCrop((height, width), scale=(least, 1.0), antialias=True)(images)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("theirs", "name", "wanted"),
    [
        (v2.RandomHorizontalFlip(), "flip", {"flip": True}),
        (v2.RandAugment(3, 12), "rand_augment", {"rand_augment": 3, "magnitude": 12}),
        (
            v2.ColorJitter(0.4, 0.3, 0.2, 0.1),
            "colours",
            {"brightness": 0.4, "contrast": 0.3, "saturation": 0.2, "hue": 0.1},
        ),
        (v2.RandomErasing(0.7, value=[7.0, 8.0, 9.0]), "erase", {"erase": 0.7}),
    ],
)
def test_the_others_are_torchvisions_with_the_settings_that_are_wanted(
    theirs: Callable[[torch.Tensor], torch.Tensor], name: str, wanted: dict[str, Any]
) -> None:
    images, neutral = noise(), torch.tensor([7, 8, 9], dtype=torch.uint8)[:, None, None]
    before = images.clone()
    with torch.random.fork_rng(devices=[]):
        expected = []
        for seed, image in enumerate(images):
            torch.default_generator.manual_seed(derive(seed, name))
            expected.append(theirs(image))
    assert torch.equal(done(images, neutral=neutral, **wanted), torch.stack(expected))
    assert torch.equal(images, before), "the samples stay as they are"


# -- what draws depend on -------------------------------------------------------------------------


@given(seeds=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5))
@settings(max_examples=20, deadline=None)
def test_an_image_depends_on_its_own_seed_alone(seeds: list[int]) -> None:
    images = noise(len(seeds))
    together = transformed(EVERYTHING, images, seeds, BLACK)
    for number, seed in enumerate(seeds):
        torch.rand(3)
        alone = transformed(EVERYTHING, images[number : number + 1], [seed], BLACK)
        assert torch.equal(alone[0], together[number])


def test_the_global_generator_is_put_back() -> None:
    before = torch.random.get_rng_state()
    transformed(EVERYTHING, noise(), range(12), BLACK)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_number_of_threads_changes_nothing() -> None:
    images, threads = noise(4, height=150, width=150), torch.get_num_threads()
    results = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(transformed(EVERYTHING, images, range(4), BLACK))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_the_order_in_which_an_image_lies_in_memory_changes_nothing() -> None:
    images = noise()
    last = images.contiguous(memory_format=torch.channels_last)
    after = transformed(EVERYTHING, last, range(12), BLACK)
    assert torch.equal(after, transformed(EVERYTHING, images, range(12), BLACK))
    assert after.is_contiguous(memory_format=torch.channels_last), "no copy is needed before layers"


def test_a_transform_draws_the_same_with_others_and_without() -> None:
    images = noise(40)
    cropped = done(images, resized_crop=0.3, flip=True)
    erased = done(images, resized_crop=0.3, flip=True, erase=1.0)
    kept = erased != 0
    assert 0.5 < float(kept.float().mean()) < 1
    assert torch.equal(erased[kept], cropped[kept])
    coloured = done(images, resized_crop=0.3, flip=True, hue=0.2)
    assert torch.equal(done(cropped, hue=0.2), coloured)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("shape", [(), (64,), (8, 8), (3, 4, 8, 8)])
def test_what_is_no_image_is_refused(name: str, shape: tuple[int, ...]) -> None:
    augment = Augment(transforms=ImageTransforms(**EACH[name]))
    with pytest.raises(DataError, match="Only images") as caught:
        check_augment(augment, shape)
    assert (caught.value.code, "[images]" in caught.value.hint) == ("augment.input", True)


@pytest.mark.parametrize("name", EACH)
def test_colours_need_one_or_three_channels(name: str) -> None:
    wanted = ImageTransforms(**EACH[name])
    for channels in (1, 3):
        check_transforms(wanted, (channels, 8, 8))
        transformed(wanted, noise(2, channels), [1, 2], BLACK)
    if name in (*COLOURS, "rand_augment"):
        with pytest.raises(DataError, match="of 4 channels") as caught:
            check_transforms(wanted, (4, 8, 8))
        assert caught.value.code == "augment.colours"
    else:
        check_transforms(wanted, (4, 8, 8))
        transformed(wanted, noise(2, 4), [1, 2], BLACK)


def test_nothing_is_wanted_by_default_and_each_key_wants_something() -> None:
    assert not ImageTransforms().wanted
    assert not replace(ImageTransforms(), magnitude=20).wanted
    assert all(ImageTransforms(**each).wanted for each in EACH.values())
