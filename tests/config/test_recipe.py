"""Recipes: precedence of values, error messages, and printing that loads back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from edgefed.config.loading.load import Flag, load_recipe, parse_sets
from edgefed.config.loading.schema import schema
from edgefed.config.loading.validate import check_section
from edgefed.config.loading.write import to_toml
from edgefed.config.recipes.recipe import (
    AlgorithmSection,
    DataSection,
    EvaluationSection,
    ModelSection,
    Recipe,
    RoundsSection,
    WireSection,
)
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.config.values.toml import parse_toml, parse_value
from edgefed.errors import RecipeError, UsageError
from tests.config.conftest import MakeAround

LEVELS = ("set", "environment", "recipe", "project", "user", "default")


@pytest.mark.parametrize("strongest", range(len(LEVELS)))
def test_each_level_stands_over_the_next(folders: Path, around: MakeAround, strongest: int) -> None:
    there = LEVELS[strongest:]
    user = folders / "home/.config/edgefed/config.toml"
    if "recipe" in there:
        (folders / "cwd/run.toml").write_text("[training]\nepochs = 3\n")
    if "project" in there:
        (folders / "cwd/edgefed.toml").write_text("[recipe.training]\n\nepochs = 4\n")
    if "user" in there:
        user.write_text("[recipe]\ntraining.epochs = 5\n")
    loaded = load_recipe(
        Path("run.toml") if "recipe" in there else None,
        around(**({"EDGEFED_TRAINING__EPOCHS": "2"} if "environment" in there else {})),
        sets={"training.epochs": "9"} if "set" in there else {},
    )
    expected = {
        "set": (9, "flag --set training.epochs"),
        "environment": (2, "environment EDGEFED_TRAINING__EPOCHS"),
        "recipe": (3, "run.toml line 2"),
        "project": (4, "./edgefed.toml line 3"),
        "user": (5, f"{user} line 2"),
        "default": (1, "default"),
    }[there[0]]
    assert (loaded.value.training.epochs, str(loaded.origin("training.epochs"))) == expected
    assert str(loaded.origin("training.momentum")) == "default"


def test_tables_merge_key_by_key(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed.toml").write_text(
        "[recipe.training]\nepochs = 4\nbatch_size = 8\n[recipe.algorithm]\nmu = 0.1\n"
    )
    (folders / "cwd/run.toml").write_text("[training]\nepochs = 3\n[algorithm]\n")
    loaded = load_recipe(Path("run.toml"), around(EDGEFED_ALGORITHM__NU="[1, 2]"))
    assert (loaded.value.training.epochs, loaded.value.training.batch_size) == (3, 8)
    assert loaded.value.algorithm.settings() == {"mu": 0.1, "nu": [1, 2]}
    assert str(loaded.origin("algorithm.nu")) == "environment EDGEFED_ALGORITHM__NU"


def test_flags_stand_under_set_and_over_the_environment(around: MakeAround) -> None:
    made = around(EDGEFED_ROUNDS__COUNT="2", EDGEFED_RECIPE__SEED="7")
    flags = [Flag("--rounds", "rounds.count", 3)]
    loaded = load_recipe(None, made, flags=flags)
    assert (loaded.value.rounds.count, str(loaded.origin("rounds.count"))) == (3, "flag --rounds")
    assert (loaded.value.seed, str(loaded.origin("seed"))) == (
        7,
        "environment EDGEFED_RECIPE__SEED",
    )
    assert load_recipe(None, made, flags=flags, sets={"rounds.count": "4"}).value.rounds.count == 4


WRONG = """\
sede = 3
[training]
epocs = 3
batch_size = 0
learning_rate = "fast"
momentum = 1
[wire]
uplink = "bf6"
error_feedback = "yes"
count = 3
[rounds]
quorum = 2
[traning]
epochs = 1
"""


def test_every_problem_is_one_line_with_file_line_and_key(
    folders: Path, around: MakeAround
) -> None:
    (folders / "cwd/run.toml").write_text(WRONG)
    with pytest.raises(RecipeError) as caught:
        load_recipe(Path("run.toml"), around())
    assert caught.value.message.splitlines() == [
        'run.toml:1: sede: unknown key; did you mean "seed"?',
        'run.toml:3: training.epocs: unknown key; did you mean "epochs"?',
        "run.toml:4: training.batch_size: must be at least 1, got 0",
        'run.toml:5: training.learning_rate: must be a number, got "fast"',
        "run.toml:6: training.momentum: must be less than 1, got 1",
        'run.toml:8: wire.uplink: must be one of "fp32", "bf16", "int8" or "topk", got "bf6"; '
        'did you mean "bf16"?',
        'run.toml:9: wire.error_feedback: must be true or false, got "yes"',
        'run.toml:10: wire.count: unknown key; did you mean "rounds.count"?',
        "run.toml:12: rounds.quorum: must be at most 1, got 2",
        'run.toml:13: traning: unknown key; did you mean "training"?',
    ]
    assert (caught.value.code, caught.value.exit_code) == ("recipe.unknown_key", 2)


@pytest.mark.parametrize(
    ("sets", "name"),
    [
        ({}, "digits-fedavg"),
        ({"algorithm.name": "fedprox"}, "digits-fedprox"),
        ({"data.name": "none", "algorithm.name": "fedopt"}, "none-fedopt"),
        ({"algorithm.name": "fedprox", "name": "mine"}, "mine"),
    ],
)
def test_a_recipe_without_a_name_is_named_after_what_it_trains(
    around: MakeAround, sets: dict[str, str], name: str
) -> None:
    assert load_recipe(None, around(), sets=sets).value.name == name


def test_a_name_is_not_empty(around: MakeAround) -> None:
    with pytest.raises(RecipeError, match="--set name: must be 1 to 64 lower-case letters"):
        load_recipe(None, around(), sets={"name": ""})


@pytest.mark.parametrize(
    ("sets", "variables", "message"),
    [
        ({"training.epocs": "3"}, {}, '--set training.epocs: unknown key; did you mean "epochs"?'),
        ({"training.epochs": "0"}, {}, "--set training.epochs: must be at least 1, got 0"),
        ({"training": "3"}, {}, "--set training: must be a table, got 3"),
        ({"epochs": "3"}, {}, '--set epochs: unknown key; did you mean "training.epochs"?'),
        ({"sead": "3"}, {}, '--set sead: unknown key; did you mean "seed"?'),
        (
            {},
            {"EDGEFED_TRAINING__EPOCHS": "many"},
            'EDGEFED_TRAINING__EPOCHS: must be a whole number, got "many"',
        ),
        (
            {},
            {"EDGEFED_TRAINING__EPOCS": "3"},
            'EDGEFED_TRAINING__EPOCS: unknown variable; did you mean "EDGEFED_TRAINING__EPOCHS"?',
        ),
        (
            {},
            {"EDGEFED_SEED": "3"},
            'EDGEFED_SEED: unknown variable; did you mean "EDGEFED_RECIPE__SEED"?',
        ),
        ({}, {"EDGEFED_XYZZY": "3"}, "EDGEFED_XYZZY: unknown variable"),
    ],
)
def test_a_wrong_flag_or_variable_is_named(
    around: MakeAround, sets: dict[str, str], variables: dict[str, str], message: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(None, around(**variables), sets=sets)
    assert caught.value.message == message


def test_a_recipe_table_that_is_no_table_is_refused(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed.toml").write_text("\nrecipe = 3\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(None, around())
    assert caught.value.message == "./edgefed.toml:2: recipe: must be a table"


def test_a_lone_key_that_no_table_knows_is_the_algorithms(around: MakeAround) -> None:
    loaded = load_recipe(None, around(), sets={"mu": "0.5"})
    assert loaded.value.algorithm.settings() == {"mu": 0.5}
    assert str(loaded.origin("algorithm.mu")) == "flag --set mu"


def test_the_later_set_counts(around: MakeAround) -> None:
    sets = parse_sets(["training.epochs=3", "name=a", "training.epochs=4", "name=b=c"])
    assert sets == {"training.epochs": "4", "name": "b=c"}
    with pytest.raises(UsageError, match="write it as KEY=VALUE"):
        parse_sets(["training.epochs"])
    with pytest.raises(UsageError):
        parse_sets(["training..epochs=3"])
    loaded = load_recipe(None, around(), sets={"model": "{width = 3}", "model.width": "4"})
    assert loaded.value.model.settings() == {"width": 4}


class MixSettings(BaseModel):
    """Settings of an algorithm that only these tests have."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mu: Annotated[float, Field(ge=0, le=1)] = 0.1
    variant: str = "plain"
    mode: Literal["a", "1"] = "a"
    layers: tuple[int, ...] = ()
    limit: float | None = None
    needed: int


def test_an_open_section_is_checked_later_with_file_and_line(
    folders: Path, around: MakeAround
) -> None:
    (folders / "cwd/run.toml").write_text(
        '[algorithm]\nname = "mix"\nmu = 3\nvarant = "x"\nlayers = [1,\n"2"]\n'
    )
    loaded = load_recipe(Path("run.toml"), around())
    with pytest.raises(RecipeError) as caught:
        check_section(
            MixSettings,
            loaded.value.algorithm.settings(),
            "algorithm",
            loaded.layer,
            hint="edgefed algo show mix",
        )
    assert caught.value.message.splitlines() == [
        "run.toml:1: algorithm.needed: is missing",
        "run.toml:3: algorithm.mu: must be at most 1, got 3",
        'run.toml:4: algorithm.varant: unknown key; did you mean "variant"?',
        'run.toml:6: algorithm.layers[1]: must be a whole number, got "2"',
    ]
    assert caught.value.hint == "edgefed algo show mix"


def test_an_open_section_reads_typed_text_as_its_model_wants(around: MakeAround) -> None:
    sets = {"variant": "12", "algorithm.mode": "1", "needed": "3", "layers": "[4, 5]", "limit": "2"}
    loaded = load_recipe(None, around(), sets=sets)
    made = check_section(MixSettings, loaded.value.algorithm.settings(), "algorithm", loaded.layer)
    assert made == MixSettings(variant="12", mode="1", needed=3, layers=(4, 5), limit=2.0)


def test_an_open_section_is_checked_without_its_file_too() -> None:
    with pytest.raises(RecipeError) as caught:
        check_section(MixSettings, {"mu": True, "needed": 1}, "algorithm")
    assert caught.value.message == "algorithm.mu: must be a number, got true"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e3", 1000.0),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ('"3"', "3"),
        ("fedavg", "fedavg"),
        ("007", "007"),
        ("", ""),
        ("1,", "1,"),
        ("1, 2", "1, 2"),
        ("3 # c", "3 # c"),
        ("1]\nx = [2", "1]\nx = [2"),
    ],
)
def test_typed_text_is_a_toml_value_or_itself(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
EXTRAS = st.dictionaries(
    TEXTS.map(lambda key: f"x{key}"),
    st.recursive(
        st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)
CODECS = st.sampled_from(["fp32", "bf16", "int8"])


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Draw recipes that use every kind of value."""
    extras: list[dict[str, Any]] = [draw(EXTRAS) for _ in range(3)]
    return Recipe(
        name=draw(st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}", fullmatch=True)),
        seed=draw(st.integers(0, 2**63 - 1)),
        model=ModelSection(name=draw(TEXTS), **extras[0]),
        data=DataSection(alpha=draw(st.floats(1e-9, 1e9)), **extras[1]),
        algorithm=AlgorithmSection(**extras[2]),
        training=TrainingSection(learning_rate=draw(st.floats(1e-300, 100))),
        rounds=RoundsSection(quorum=draw(st.floats(0, 1, exclude_min=True))),
        wire=WireSection(uplink=draw(CODECS), error_feedback=draw(st.booleans())),
        evaluation=EvaluationSection(on=draw(st.sampled_from(["devices", "both"]))),
    )


@settings(max_examples=30, deadline=None)
@given(recipes(), st.booleans())
def test_a_recipe_prints_as_toml_that_loads_back_equal(recipe: Recipe, comments: bool) -> None:
    document = parse_toml(to_toml(recipe, comments=comments), "printed")
    assert Recipe.model_validate(document.values) == recipe


def test_a_printed_recipe_explains_its_keys_and_loads(folders: Path, around: MakeAround) -> None:
    text = to_toml(Recipe())
    assert "# Passes over the device's data in a round.\nepochs = 1\n" in text
    (folders / "cwd/run.toml").write_text(text)
    loaded = load_recipe(Path("run.toml"), around())
    assert loaded.value == Recipe()
    unset = {one.key for one in loaded.effective() if one.origin.kind != "file"}
    assert unset == {
        "evaluation.better",
        "evaluation.on",
        "evaluation.weighting",
        *(f"privacy.{key}" for key in ("count_noise", "epsilon", "noise_multiplier")),
        "rounds.test_cohort",
        "simulation.holdout",
        *(f"training.{key}" for key in ("crop", "crop_fill", "flip")),
    }
    assert all(f"\n# {key.partition('.')[2]} =\n" in text for key in unset)


@pytest.mark.parametrize("kind", ["recipe", "settings", "agent"])
def test_every_key_of_a_schema_is_described(kind: Literal["recipe", "settings", "agent"]) -> None:
    made = schema(kind)
    models = [made, *made.get("$defs", {}).values()]
    bare = [
        f"{model['title']}.{key}"
        for model in models
        for key, field in model["properties"].items()
        if "$ref" not in field and not field.get("description")
    ]
    assert bare == []
    assert made["$schema"].startswith("https://json-schema.org/")
    assert made["additionalProperties"] is False


def test_the_settings_schema_has_the_recipe_table() -> None:
    assert "recipe" in schema("settings")["properties"]
    assert "recipe" not in schema("agent")["properties"]


def test_names_of_weights_to_train_are_an_array(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/run.toml").write_text('[model]\ntrain = ["fc*", "conv1.*"]\n')
    assert load_recipe(Path("run.toml"), around()).value.model.train == ("fc*", "conv1.*")
    with pytest.raises(RecipeError, match="must be all, head"):
        load_recipe(None, around(), sets={"model.train": '["fc*", 3]'})
