"""torchvision's classifiers by name: what they are, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torchvision

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, EdgeFedError, RecipeError
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Job, Schedule
from edgefed.learn.modeling.model import Model, module_bytes
from edgefed.learn.modeling.model_building import build, complete_model, make_module
from edgefed.learn.modeling.model_memory import build_within, training_bytes
from edgefed.learn.modeling.user_models import is_user_model
from edgefed.learn.networks.torchvision_classifiers import classifier_names
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.training.batch_statistics import batch_statistics
from edgefed.learn.training.trainer import Trainer

SHAPE = (3, 64, 64)


def section(name: str, **keys: object) -> ModelSection:
    return ModelSection.model_validate({"name": f"torchvision:{name}", **keys})


def made(name: str, classes: int = 5, **keys: object) -> Model:
    return build(section(name, **keys), SHAPE, classes, 1)


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("mobilenet_v3_small", "classifier.3"),
        ("shufflenet_v2_x0_5", "fc"),
    ],
)
def test_a_classifier_is_torchvision_s_with_the_run_s_classes(name: str, head: str) -> None:
    model = made(name, train="head")
    assert model.names == (f"{head}.weight", f"{head}.bias")
    assert model.weights()[f"{head}.bias"].shape == (5,)
    with torch.device("meta"):
        theirs = torchvision.models.get_model(name, weights=None, num_classes=5)
    shapes = {key: tuple(value.shape) for key, value in theirs.state_dict().items()}
    ours = model.complete(model.weights())
    assert {key: array.shape for key, array in ours.items()} == shapes
    with torch.no_grad():
        assert model.forward({}, torch.zeros(2, *SHAPE)).shape == (2, 5)


def test_a_transformer_takes_images_of_the_run_s_size() -> None:
    with torch.device("meta"):
        module = make_module(section("vit_b_32"), SHAPE, 5)
    shapes = {name: tuple(part.shape) for name, part in module.named_parameters()}
    assert shapes["encoder.pos_embedding"] == (1, 1 + 2 * 2, 768)
    assert shapes["heads.head.weight"] == (5, 768)


def test_initial_weights_depend_on_the_seed_alone() -> None:
    one, again = made("shufflenet_v2_x0_5").weights(), made("shufflenet_v2_x0_5").weights()
    torch.rand(3)
    other = build(section("shufflenet_v2_x0_5"), SHAPE, 5, 2).weights()
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.array_equal(one["fc.weight"], other["fc.weight"])


def test_it_is_no_code_of_a_user_s() -> None:
    assert not is_user_model("torchvision:resnet18")
    assert is_user_model("shop.models:shelf")
    written = complete_model(section("resnet18", train="last:2", weights="default", start=""))
    assert (written.train, written.weights) == ("last:2", ""), "devices need not know the source"


@pytest.mark.parametrize(
    ("name", "keys", "code", "hint"),
    [
        ("mobilnet_v3_small", {}, "model.unknown", "torchvision:mobilenet_v3_small"),
        ("fasterrcnn_resnet50_fpn", {}, "model.unknown", ""),
        ("resnet18", {"dropout": 0.5}, "model.setting", "dropout"),
        ("resnet18", {"width": 3}, "model.setting", ""),
    ],
)
def test_an_unknown_name_or_setting_is_refused(
    name: str, keys: dict[str, Any], code: str, hint: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        made(name, **keys)
    assert caught.value.code == code
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("resnet18", (1, 64, 64), "colour"),
        ("resnet18", (3, 16, 16), "32x32"),
        ("resnet18", (784,), "colour"),
        ("maxvit_t", (3, 96, 96), "96x96"),
        ("vit_b_32", (3, 64, 96), "square"),
    ],
)
def test_inputs_that_it_cannot_take_are_refused(
    name: str, shape: tuple[int, ...], reason: str
) -> None:
    with pytest.raises(EdgeFedError) as caught:
        build(section(name), shape, 5, 1)
    assert (caught.value.code, reason in caught.value.message) == ("model.input", True)


def test_no_detector_is_among_the_names() -> None:
    names = classifier_names()
    assert {"mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "vit_b_16"} <= set(names)
    assert not any("rcnn" in name or "quantized" in name for name in names)


def test_frozen_weights_take_less_memory() -> None:
    whole = training_bytes(section("mobilenet_v3_small"), SHAPE, 5)
    head = training_bytes(section("mobilenet_v3_small", train="head"), SHAPE, 5)
    size = module_bytes(made("mobilenet_v3_small").module)
    assert whole == 11 * size
    assert head is not None
    assert 4 * size < head < 5 * size
    with pytest.raises(DataError, match="bytes"):
        build_within(section("mobilenet_v3_small"), SHAPE, 5, 1, head)
    build_within(section("mobilenet_v3_small", train="head"), SHAPE, 5, 1, head)


# -- running statistics ---------------------------------------------------------------------------


def momenta(model: Model) -> set[float | None]:
    layers = model.module.modules()
    return {each.momentum for each in layers if isinstance(each, torch.nn.BatchNorm2d)}


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "mnasnet0_5"])
def test_running_statistics_have_the_recipe_s_momentum(name: str) -> None:
    """Those of torchvision are 0.01 and 0.0003."""
    assert momenta(made(name)) == {0.1}
    assert momenta(made(name, norm_momentum=0.5)) == {0.5}


def test_few_steps_fill_the_running_statistics() -> None:
    """After 8 steps with nearly constant weights, they are 1 - (1 - momentum)^8 of a batch's."""
    trainer = Trainer(made("mobilenet_v3_small", classes=2, norm_momentum=0.3), "cpu")
    rng = np.random.default_rng(1)
    inputs = 3 + rng.normal(0, 1, (8, *SHAPE)).astype(np.float32)
    samples = Samples(inputs, np.arange(8) % 2)
    start = trainer.model.weights()
    schedule = Schedule(epochs=8, batch_size=8, learning_rate=1e-9)
    job = Job(weights=start, objective=CrossEntropy(), schedule=schedule, seed=1)
    after = trainer.train(job, samples).weights
    exact = batch_statistics(trainer, start, inputs)
    name = "features.0.1.running_mean"
    share = (after[name] / exact[name]).mean()
    assert share == pytest.approx(1 - (1 - 0.3) ** 8, rel=1e-3)
