"""What ``model.train`` freezes, and how a partly frozen model trains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, RecipeError
from edgefed.learn.base.augment import Augment
from edgefed.learn.base.types import Job, Samples, Schedule
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.samples.feature_cache import FEATURE_BATCH, trains_on_features
from edgefed.learn.training.trainer import Trainer
from tests.learn.training.test_stacked import assert_alike

SHAPE, CLASSES = (3, 4, 4), 3


def convolutions(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two convolutions with batch normalisation, dropout, and a head."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 5, 3, padding=1),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(5, classes),
    )


def model(train: str | list[str], seed: int = 1) -> Model:
    section = {"name": f"{__name__}:convolutions", "train": train}
    return build(ModelSection.model_validate(section), SHAPE, CLASSES, seed, allow_user=True)


def samples(count: int = 150, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    inputs = rng.standard_normal((count, *SHAPE)) + labels[:, None, None, None]
    return Samples(inputs.astype(np.float32), labels)


def job(of: Model, **changed: Any) -> Job:
    schedule = Schedule(epochs=2, batch_size=8, learning_rate=0.1)
    return Job(of.weights(), CrossEntropy(), schedule, 3, **changed)


HEAD = ("9.weight", "9.bias")
SECOND = ("3.weight", "3.bias", "4.weight", "4.bias")
SECOND_STATISTICS = ("4.running_mean", "4.running_var", "4.num_batches_tracked")


@pytest.mark.parametrize(
    ("train", "trained"),
    [
        ("head", HEAD),
        ("last:1", HEAD),
        ("last:2", (*SECOND, *SECOND_STATISTICS, *HEAD)),
        (["4.weight", "9.*"], ("4.weight", "4.bias", *SECOND_STATISTICS, *HEAD)),
        (["3.bias"], ("3.bias",)),
    ],
)
def test_the_rest_of_the_model_is_frozen(train: str | list[str], trained: tuple[str, ...]) -> None:
    made, whole = model(train), model("all")
    assert made.names == trained
    assert set(made.names) | set(made.frozen_names) == set(whole.names)
    assert whole.frozen_names == ()
    assert model("last:3").names == whole.names
    complete = made.complete(made.weights())
    assert list(complete) == list(whole.names)
    assert all(np.array_equal(complete[name], array) for name, array in whole.weights().items())


def test_the_names_cover_a_real_network() -> None:
    section = ModelSection.model_validate({"name": "torchvision:resnet18", "train": "last:2"})
    with torch.device("meta"):
        made = build(section, (3, 32, 32), 5, 1)
    assert [name for name in made.names if name.endswith("weight")] == [
        *("layer4.1.conv2.weight", "layer4.1.bn2.weight", "fc.weight"),
    ]


@pytest.mark.parametrize(
    ("train", "reason"),
    [("last:4", "3 layers"), (["nothing.*"], "'nothing.*'")],
)
def test_what_the_model_lacks_is_refused(train: str | list[str], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason.replace("*", r"\*")) as caught:
        model(train)
    assert caught.value.code == "model.train"


@pytest.mark.parametrize("train", ["heads", "last:0", "last:-1", "last", "", 3, ["fc.*", 3], None])
def test_what_names_no_part_of_a_model_is_refused_in_one_sentence(train: object) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelSection.model_validate({"name": "mlp", "train": train})
    (error,) = caught.value.errors()
    assert "must be all, head, last:N from 1, or a list of names of weights" in error["msg"]


def test_a_model_that_does_not_end_in_a_linear_layer_has_no_head() -> None:
    section = ModelSection.model_validate({"name": "torchvision:squeezenet1_1", "train": "head"})
    with pytest.raises(DataError) as caught:
        build(section, (3, 32, 32), 3, 1)
    assert caught.value.code == "model.features"


@pytest.mark.parametrize("train", ["head", "last:2", ["3.*", "9.*"]])
def test_frozen_arrays_and_frozen_statistics_keep_their_bits(train: str | list[str]) -> None:
    made = model(train)
    before = {name: array.copy() for name, array in made.frozen_weights().items()}
    result = Trainer(made, "cpu").train(job(made), samples())
    state = made.module.state_dict()
    assert tuple(result.weights) == made.names
    assert all(np.array_equal(state[name].numpy(), array) for name, array in before.items())
    assert any(not np.array_equal(result.weights[n], made.weights()[n]) for n in made.names)
    made.training_mode()
    batch_norm = [name for name in ("1", "4") if made.module.get_submodule(name).training]
    assert batch_norm == (["4"] if train == "last:2" else [])
    dropout = made.module.get_submodule("8")
    assert dropout.training == (train != "head"), "a frozen trunk leaves nothing out"


def test_training_the_head_equals_torch_on_features() -> None:
    made, data = model("head"), samples()
    ours = Trainer(made, "cpu").train(job(made), data)
    module = model("all").module.eval()
    assert isinstance(module, nn.Sequential)
    trunk, head = module[:-1], module[-1]
    assert isinstance(head, nn.Linear)
    with torch.no_grad():
        parts = torch.split(torch.from_numpy(data.inputs), FEATURE_BATCH)
        features = torch.cat([trunk(part) for part in parts])
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(3)
    labels = torch.from_numpy(data.targets)
    for _ in range(2):
        for index in torch.split(torch.randperm(len(data), generator=generator), 8):
            optimizer.zero_grad()
            nn.functional.cross_entropy(head(features[index]), labels[index]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert np.allclose(ours.weights["9.weight"], head.weight.detach().numpy(), atol=1e-6)
    assert np.allclose(ours.weights["9.bias"], head.bias.detach().numpy(), atol=1e-6)


def test_the_frozen_layers_are_computed_once_per_sample() -> None:
    made, data, test = model("head"), samples(), samples(20, 1)
    trainer = Trainer(made, "cpu")
    seen: list[int] = []
    made.module.get_submodule("0").register_forward_pre_hook(
        lambda _part, inputs: seen.append(len(inputs[0]))
    )
    for _ in range(3):
        trainer.train(job(made), data)
        trainer.evaluate(made.weights(), test)
    probe = [2] * (2 in seen)  # of the search for the output layer
    assert sum(seen) == len(data) + len(test) + sum(probe)
    assert max(seen) <= FEATURE_BATCH
    held = trainer.held_bytes() - made.weight_bytes
    assert held == (len(data) + len(test)) * 5 * 4


def test_features_are_left_alone_where_batches_are_augmented_or_mixed() -> None:
    made = model("head")
    assert trains_on_features(made, job(made))
    assert not trains_on_features(made, job(made, augment=Augment(1)))
    assert not trains_on_features(model("last:1"), job(made))
    augmented = Trainer(made, "cpu").train(job(made, augment=Augment(0, flip=True)), samples())
    plain = Trainer(made, "cpu").train(job(made), samples())
    assert not np.array_equal(augmented.weights["9.weight"], plain.weights["9.weight"])


def test_scores_on_features_are_those_of_the_whole_network() -> None:
    made, data = model("head"), samples()
    trainer, whole = Trainer(made, "cpu"), Trainer(model("all"), "cpu")
    ours = trainer.evaluate(made.weights(), data)
    theirs = whole.evaluate(whole.model.weights(), data)
    assert ours.loss == pytest.approx(theirs.loss, abs=1e-6)
    assert ours.accuracy == theirs.accuracy
    assert np.allclose(
        trainer.predict(made.weights(), data.inputs),
        whole.predict(whole.model.weights(), data.inputs),
        atol=1e-6,
    )


@pytest.mark.parametrize("train", ["head", "last:2"])
def test_a_stack_trains_the_same_part(train: str) -> None:
    made = model(train)
    made.module.get_submodule("8").p = 0.0  # type: ignore[assignment]  # a stack draws other masks
    before = {name: array.copy() for name, array in made.frozen_weights().items()}
    assert_alike(made, [job(made)] * 2, [samples(24, seed) for seed in (1, 2)])
    state = made.module.state_dict()
    assert all(np.array_equal(state[name].numpy(), array) for name, array in before.items())


def test_frozen_weights_of_another_model_are_refused() -> None:
    made = model("head")
    wrong = {name: array for name, array in made.frozen_weights().items() if name != "0.bias"}
    with pytest.raises(DataError, match=r"0\.bias is missing"):
        made.put_frozen(wrong)
    other = model("head", seed=2)
    other.put_frozen(made.frozen_weights())
    ours, theirs = made.frozen_weights(), other.frozen_weights()
    assert all(np.array_equal(array, theirs[name]) for name, array in ours.items())
