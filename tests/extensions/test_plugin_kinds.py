"""Models, data sets and partitions of packages: those that work, and each way to be broken."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import PLUGINS
from edgefed.config.recipes.recipe import DataSection, ModelSection
from edgefed.data.devices.partition import partition
from edgefed.data.devices.sources import load_device
from edgefed.data.partitioners.registry import PARTITION_PLUGINS
from edgefed.data.sets.datasets import DATASET_PLUGINS, load
from edgefed.errors import DataError, EdgeFedError, PluginError, RecipeError, UsageError
from edgefed.files.plugins import Plugins
from edgefed.learn.modeling.model_building import NETWORK_PLUGINS, build
from edgefed.learn.modeling.model_memory import ModelTooLargeError, build_within, training_bytes
from tests.algorithms.interface.test_plugins import edgefed
from tests.extensions import plugin_examples as examples
from tests.plugin_package import importable, write_package

KINDS: dict[str, Plugins[Any]] = {
    "algorithm": PLUGINS,
    "model": NETWORK_PLUGINS,
    "data": DATASET_PLUGINS,
    "partition": PARTITION_PLUGINS,
}
HERE = examples.__name__
BROKEN = "import a_package_that_is_not_there"
NOT_ONE = [
    ("model", "Path", "is no edgefed.extension.Network"),
    ("model", "MISNAMED", "has the name 'other'"),
    ("model", "UNSETTLED", "no subclass of NetworkSettings"),
    ("data", "Path", "is no edgefed.extension.DatasetReader"),
    ("data", "NO_OPTIONS", "no subclass of DataOptions"),
    ("data", "NO_SOURCE", "no SourceReader"),
    ("partition", "Path", "is no edgefed.extension.Partitioner"),
    ("partition", "NO_COVER", "a cover that is no Cover"),
    ("partition", "TAKEN_KEY", "'alpha', which is a key of every"),
]


@pytest.mark.parametrize(("kind", "member", "said"), NOT_ONE)
def test_what_is_loaded_must_be_of_the_kind(kind: str, member: str, said: str) -> None:
    plugins = KINDS[kind]
    with pytest.raises(PluginError) as caught:
        plugins.load(EntryPoint("mine", f"{HERE}:{member}", plugins.group))
    assert said in caught.value.message
    assert caught.value.code == f"{kind}.plugin"
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("kind", "name"), [("model", "mlp"), ("data", "digits"), ("data", "text"), ("partition", "iid")]
)
def test_no_package_takes_a_name_that_is_built_in(kind: str, name: str) -> None:
    plugins = KINDS[kind]
    offered = plugins.offers([EntryPoint(name, f"{HERE}:Path", plugins.group)])
    assert not offered.usable
    assert f"'{name}'" in offered.refused[name]


@pytest.mark.parametrize("name", ["Mine", "my model", "a:b", "-x", "x" * 65])
def test_a_name_that_a_recipe_or_a_task_could_mistake_is_refused(name: str) -> None:
    offered = NETWORK_PLUGINS.offers([EntryPoint(name, f"{HERE}:Path", NETWORK_PLUGINS.group)])
    assert not offered.usable
    assert "lower-case letters" in offered.refused[name]


def test_an_entry_point_of_another_kind_is_not_looked_at() -> None:
    offered = NETWORK_PLUGINS.offers([EntryPoint("mine", f"{HERE}:Path", PLUGINS.group)])
    assert not offered.usable
    assert not offered.refused


# -- code that fails when it is used ------------------------------------------------------------


def caught_building(member: Any) -> EdgeFedError:
    with (
        NETWORK_PLUGINS.added(member.name, member),
        pytest.raises(EdgeFedError) as caught,
    ):
        build(ModelSection(name=member.name), (4,), 3, 1)
    return caught.value


def test_a_network_that_fails_or_is_no_module_is_an_error_of_the_recipe() -> None:
    found = caught_building(examples.FAILING)
    assert isinstance(found, RecipeError)
    assert found.code == "model.factory"
    assert "KeyError: 'weights'" in found.message
    assert "returns str, not a torch.nn.Module" in caught_building(examples.TEXT).message
    assert "(2, 4) for a batch of 2, not (2, 3)" in caught_building(examples.WIDE).message
    with NETWORK_PLUGINS.added("plain", examples.PLAIN), pytest.raises(RecipeError, match="units"):
        build(ModelSection(name="plain", units=-1), (4,), 3, 1)


def test_a_network_that_looks_at_values_is_measured_once_it_is_built() -> None:
    section = ModelSection(name="looking", train="head")
    with NETWORK_PLUGINS.added("looking", examples.LOOKING):
        assert training_bytes(section, (4,), 3) is None
        assert build_within(section, (4,), 3, 0, 10**6).frozen_names
        with pytest.raises(ModelTooLargeError):
            build_within(section, (4,), 3, 0, 100)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("raise", "Data set 'rows' cannot be read: KeyError: 'mode'"),
        ("exit", "SystemExit"),
        ("text", "it returns str, not an edgefed Dataset"),
        ("labels", "labels from 0 to 7, but there are 2 classes"),
        ("shape", "inputs of shape (4,), not the data set's (5,)"),
        ("kind", "inputs of type float64"),
    ],
)
def test_a_reader_that_fails_or_reads_nonsense_is_an_error_of_the_data(
    mode: str, said: str, tmp_path: Path
) -> None:
    with DATASET_PLUGINS.added("rows", examples.ROWS):
        with pytest.raises(DataError) as caught:
            load(DataSection(name="rows", mode=mode), None, 1)
        assert said in caught.value.message
        assert caught.value.code == "data.reader"
        assert len(load(DataSection(name="rows", limit=3), None, 1).train) == 3
        with pytest.raises(RecipeError, match="has no key 'mood'"):
            load(DataSection(name="rows", mood="raise"), None, 1)
        del tmp_path


def test_a_data_set_that_only_recipes_can_name_is_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path, "rows", {"rows": f"{HERE}:ROWS"}, DATASET_PLUGINS.group)
    write_package(tmp_path, "sad", {"sad": "nowhere:SAD"}, DATASET_PLUGINS.group)
    with importable(tmp_path, monkeypatch):
        with pytest.raises(UsageError, match="a device cannot read it"):
            load_device("rows:here", 0.2)
        with pytest.raises(PluginError, match="No module named 'nowhere'"):
            load_device("sad:here", 0.2)
        with pytest.raises(UsageError, match="no kind of data 'rowz'") as caught:
            load_device("rowz:here", 0.2)
        assert "did you mean 'rows'?" in caught.value.hint


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("raise", "ZeroDivisionError"),
        ("few", "it returns 2 parts for 3 devices"),
        ("twice", "a sample is in two parts"),
        ("out", "a sample is left out"),
        ("beyond", "a sample is not one of the data's"),
        ("empty", "1 of 3 devices would get no samples"),
    ],
)
def test_a_partition_that_fails_or_breaks_its_word_is_an_error_of_the_data(
    mode: str, said: str
) -> None:
    labels, rng = np.arange(12) % 3, np.random.default_rng(1)
    with PARTITION_PLUGINS.added("odd", examples.ODD):
        with pytest.raises(DataError) as caught:
            partition(DataSection(partition="odd", mode=mode), labels, 3, 3, rng)
        assert said in caught.value.message
        assert caught.value.code == "data.partition"
        with pytest.raises(RecipeError, match="'mode' cannot be used"):
            partition(DataSection(partition="odd", mode=["a"]), labels, 3, 3, rng)
        assert len(partition(DataSection(partition="odd"), labels, 3, 3, rng)) == 3


def test_what_is_added_for_a_block_is_gone_after_it() -> None:
    with NETWORK_PLUGINS.added("plain", examples.PLAIN):
        assert NETWORK_PLUGINS.find("plain") is not None
    assert NETWORK_PLUGINS.find("plain") is None
    with pytest.raises(ValueError, match="EdgeFed has a model 'mlp'"):
        NETWORK_PLUGINS.added("mlp", examples.PLAIN).__enter__()


# -- the command line ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a broken package of each kind, a good model, and two twins."""
    root = tmp_path_factory.mktemp("kinds")
    (root / "sad.py").write_text(f"print('imported sad')\n{BROKEN}")
    for kind, plugins in KINDS.items():
        write_package(root, f"sad_{kind}", {"sad": "sad:SAD"}, plugins.group)
    write_package(root, "good", {"plain": f"{HERE}:PLAIN"}, NETWORK_PLUGINS.group)
    for number in (1, 2):
        write_package(root, f"twin{number}", {"twin": f"t{number}:T"}, PARTITION_PLUGINS.group)
    return root


def ran(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return edgefed(site, *words)


def test_the_list_shows_what_is_usable_and_why_the_rest_is_not(site: Path) -> None:
    found = {
        (each["kind"], each["name"]): each
        for each in json.loads(ran(site, "plugin", "list", "--json").stdout)
    }
    assert found["model", "plain"] == {
        "kind": "model",
        "name": "plain",
        "package": "good",
        "problem": "",
    }
    for kind in ("algorithm", "model", "data set", "partition"):
        assert "a_package_that_is_not_there" in found[kind, "sad"]["problem"]
    assert "package twin1, package twin2" in found["partition", "twin"]["problem"]
    assert found["partition", "twin"]["package"] == "twin1, twin2"
    assert "model      plain  good" in ran(site, "plugin", "list").stdout


def test_doctor_shows_a_line_for_each_that_cannot_be_used(site: Path) -> None:
    done = ran(site, "doctor", "--json")
    findings = json.loads(done.stdout)
    (good,) = (each for each in findings if each["name"] == "plug-ins")
    assert good["text"] == "model plain of good"
    bad = [each for each in findings if each["name"] == "plug-in"]
    assert len(bad) == 5
    assert {each["state"] for each in bad} == {"bad"}
    assert any(each["fix"] == "repair or uninstall sad_model" for each in bad)


RECIPES = {
    "algorithm": ('[algorithm]\nname = "sad"\n', "algorithm.name", 2),
    "model": ('[model]\nname = "sad"\n', "model.name", 2),
    "data": ('[data]\nname = "sad"\n', "data.name", 2),
    "partition": ('[data]\npartition = "sad"\nratio = 2\n', "data.partition", 2),
}


@pytest.mark.parametrize("kind", RECIPES)
def test_a_recipe_that_names_a_broken_one_is_told_its_line(
    kind: str, site: Path, tmp_path: Path
) -> None:
    text, key, line = RECIPES[kind]
    (tmp_path / "recipe.toml").write_text(text)
    done = ran(site, "config", "check", str(tmp_path / "recipe.toml"), "--json")
    assert done.returncode == 8
    problems = json.loads(done.stdout)["problems"]
    first = next(each for each in problems if each["key"] == key)
    assert (first["line"], first["code"]) == (line, f"{kind}.plugin")
    assert "a_package_that_is_not_there" in first["message"]
    if kind != "model":
        return  # a run says it alike, whatever the kind
    state = ("--state", str(tmp_path / "state"))
    run = ran(site, *state, "sim", "run", str(tmp_path / "recipe.toml"), "--rounds", "1")
    assert run.returncode == 2
    assert "a_package_that_is_not_there" in run.stderr
    assert "Traceback" not in run.stderr


def test_nothing_is_imported_before_it_is_named(site: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('[model]\nname = "plain"\n')
    words = ("sim", "run", str(tmp_path / "recipe.toml"), "--rounds", "1", "--devices", "2")
    done = ran(site, "--state", str(tmp_path / "state"), *words, "--json")
    assert done.returncode == 0, done.stderr
    assert "imported sad" not in done.stderr
    assert json.loads(done.stdout)["weights_digest"]
    assert "imported sad" in ran(site, "plugin", "list").stderr
