"""Models of a user's own: found, tried out, trained, and refused with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, RecipeError
from edgefed.learn.base.types import Samples, Schedule
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from tests.learn import worlds

HERE = "tests.learn.own_models"


def own(name: str, shape: tuple[int, ...] = worlds.SHAPE, seed: int = 1, **settings: Any) -> Model:
    named = name if ":" in name else f"{HERE}:{name}"
    section = ModelSection(name=named, **settings)
    return build(section, shape, worlds.CLASSES, seed, allow_user=True)


def test_a_users_model_is_made_with_its_settings_and_trains() -> None:
    model = own("linear", hidden=7)
    assert model.weights()["1.weight"].shape == (7, 64)
    assert model.vocabulary is None
    assert model.has_batch_norm
    data = worlds.samples(60)
    trained = Trainer(model, "cpu").train(worlds.job(model, Schedule(4, 6)), data)
    assert trained.loss < Trainer(model, "cpu").evaluate(model.weights(), data).loss


def test_its_weights_depend_on_the_seed_alone_and_trying_it_out_changes_nothing() -> None:
    torch.manual_seed(5)
    first = own("linear").weights()
    untouched = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(untouched, torch.rand(1))
    second, other = own("linear").weights(), own("linear", seed=2).weights()
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["1.weight"], other["1.weight"])
    assert first["2.num_batches_tracked"] == 0
    assert own("linear").module.training


def test_what_it_does_not_want_trained_is_kept_but_stays() -> None:
    model = own("frozen_below")
    assert model.parameter_names == ("2.weight", "2.bias")
    assert model.buffer_names == ("1.weight", "1.bias")
    after = Trainer(model, "cpu").train(worlds.job(model), worlds.samples(12)).weights
    before = model.weights()
    changed = {name for name in after if not np.array_equal(after[name], before[name])}
    assert changed == {"2.weight", "2.bias"}


def test_a_model_of_tokens_is_recognised_and_trained_on_them() -> None:
    model = own("Words", (4,))
    assert model.vocabulary == 11
    tokens = np.random.default_rng(1).integers(0, 11, (9, 4))
    data = Samples(tokens, worlds.samples(9).targets)
    trainer = Trainer(model, "cpu")
    after = trainer.train(worlds.job(model), data).weights
    as_floats = Samples(tokens.astype(np.float32), data.targets)
    again = trainer.train(worlds.job(model), as_floats).weights
    assert all(np.array_equal(after[name], again[name]) for name in after)
    assert trainer.predict(after, tokens).shape == (9, worlds.CLASSES)


@pytest.mark.parametrize("value", [11, -1, 0.5])
def test_tokens_that_the_model_does_not_know_are_a_clear_error(value: float) -> None:
    model = own("Words", (4,))
    inputs = np.full((3, 4), value, np.float32)
    with pytest.raises(DataError, match="0 to 10") as caught:
        Trainer(model, "cpu").train(worlds.job(model), Samples(inputs, np.zeros(3, np.int64)))
    assert caught.value.code == "data.tokens"


@pytest.mark.parametrize(
    ("name", "shape", "code", "told"),
    [
        ("no_such_package.models:make", (4,), "model.import", "no module 'no_such_package'"),
        (f"{HERE}_absent:make", (4,), "model.import", f"no module '{HERE}_absent'"),
        (f"{HERE}_broken:make", (4,), "model.import", "No module named 'surely_not_installed'"),
        (f"{HERE}:absent", (4,), "model.import", "has no absent"),
        (f"{HERE}:", (4,), "model.unknown", "does not name a model"),
        (":make", (4,), "model.unknown", "does not name a model"),
        ("a:b:c", (4,), "model.unknown", "does not name a model"),
        ("..a:b", (4,), "model.unknown", "does not name a model"),
        ("NOT_A_FUNCTION", (4,), "model.factory", "cannot be called"),
        ("raising", (4,), "model.factory", "ValueError: no model for 3 classes"),
        ("leaving", (4,), "model.factory", "SystemExit: 3"),
        ("no_module", (4,), "model.factory", "returns type, not a torch.nn.Module"),
        ("wrong_size", (4,), "model.output", r"returns (2, 4) for a batch of 2, not (2, 3)"),
        ("Pair", (4,), "model.output", "returns tuple"),
        ("wrong_input", (4,), "model.input", "does not accept inputs of shape (4,)"),
        ("BrokenWords", (4,), "model.input", "mat1 and mat2 shapes cannot be multiplied"),
        ("lazy", (4,), "model.lazy", "1.weight has no shape before the first input"),
        ("nothing_to_train", (4,), "model.module", "no weights to train"),
        ("half", (4,), "model.module", "has 1.weight in float16"),
    ],
)
def test_a_model_that_cannot_be_used_is_a_clear_error(
    name: str, shape: tuple[int, ...], code: str, told: str
) -> None:
    with pytest.raises((RecipeError, DataError)) as caught:
        own(name, shape)
    assert caught.value.code == code
    assert told in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_a_setting_that_the_factory_does_not_take_is_a_clear_error() -> None:
    with pytest.raises(RecipeError, match="unexpected keyword argument 'hiden'"):
        own("linear", hiden=3)


def test_nobodys_code_is_imported_unless_the_caller_allows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported: list[str] = []
    monkeypatch.setattr("importlib.import_module", imported.append)
    with pytest.raises(DataError, match="not allowed here") as caught:
        build(ModelSection(name=f"{HERE}:linear"), worlds.SHAPE, worlds.CLASSES, 1)
    assert caught.value.code == "model.refused"
    assert "user_models = true" in caught.value.hint
    assert imported == []
