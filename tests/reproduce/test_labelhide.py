"""The tables of DP-LabelHide: published numbers, recipes, and what the paper says of itself."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from edgefed.algorithms.bounties.bounty_device_half import MOST_GIVEN_BYTES
from edgefed.algorithms.bounties.received_mixes import most_mixes
from edgefed.api.recipe_source import checked
from edgefed.data.devices.partition import deal
from edgefed.data.sets.datasets import load
from edgefed.reproduce.paper_tables import find
from edgefed.reproduce.plan import make_study
from edgefed.reproduce.table import EACH, Scale
from edgefed.reproduce.verdict import judge
from edgefed.simulator.sweep.plan import trial_digest
from tests.reproduce.layout import ENDS, recipes

pytest.importorskip("sklearn", reason="the digits are not installed")

SPLITS = (
    *("100% Mix/0% Nat", "75% Mix/25% Nat", "75% Mix/0% Nat", "50% Mix/50% Nat"),
    *("50% Mix/0% Nat", "25% Mix/75% Nat", "25% Mix/0% Nat", "0% Mix/100% Nat"),
)
NOISE, NONE = "0% Mix/100% Nat", "No Supplement"


def published(name: str, row: str) -> list[float]:
    return [each.value for each in find(name).published if each.row == row]


def test_what_was_published_in_table_1() -> None:
    found = {each.row: each.value for each in find("labelhide-mnist").published}
    values = [96.962, 93.671, 93.924, 94.051, 60.253, 23.544, 98.608]
    assert [*found.values()] == values
    on_grid = [round(Fraction(value) * 790 / 100) / Fraction(790) * 100 for value in values]
    assert values == [pytest.approx(float(each), abs=6e-4) for each in on_grid]


def test_what_was_published_in_table_2() -> None:
    name = "labelhide-cifar10"
    first = (37.03, 62.22, 71.39, 42.66, 62.34, 72.03, 33.48, 61.39, 73.42)
    noise = (17.85, 46.90, 46.90, 15.89, 58.99, 74.11, 17.72, 63.54, 77.59)
    assert published(name, "100% Mix/0% Nat") == [*first]
    assert published(name, NOISE) == [*noise]
    assert published(name, NONE) == [14.11, 52.53, 69.62] * 3
    assert published(name, "IID") == [87.97] * 9
    off = [
        value
        for row in (*SPLITS, NONE, "IID")
        for value in published(name, row)
        if abs(round(value * 15.8) / 15.8 - value) > 0.0051
    ]
    assert len(off) <= 1, "all but one are multiples of 1/1580"
    assert len(find(name).published) == 90


def test_what_was_published_in_table_3() -> None:
    name = "labelhide-methods"
    assert published(name, "75% Mix/25% Nat") == [64.28, 69.34, 40.9, 42.98, 93.24, 93.88]
    assert published(name, "FedRS") == [44.39, 54.04, 27.93, 32.89, 75.97, 83.27]
    assert len(find(name).published) == 30


@pytest.mark.parametrize(
    ("name", "column", "count"),
    [
        ("labelhide-mnist", "10 %", 600),
        ("labelhide-cifar10", "100 %, C = 1", 5000),
        ("labelhide-cifar10", "20 %, C = 2", 1000),
        ("labelhide-cifar10", "10 %, C = 3", 500),
        ("labelhide-methods", "CIFAR-100, second", 50),
    ],
)
def test_the_papers_set_ups(name: str, column: str, count: int, tmp_path: Path) -> None:
    recipe = recipes(name, "paper", tmp_path)["75% Mix/25% Nat", column]
    labels, training = recipe.labels, recipe.training
    assert (labels.count, labels.mix_share, labels.width) == (count, 0.75, 4)
    assert (labels.low, labels.high, labels.others, labels.noise) == (
        0.5,
        0.75,
        "global",
        "oriented",
    )
    assert (recipe.model.name, recipe.algorithm.name) == ("resnet18", "fedavg")
    assert (training.optimizer, training.learning_rate) == ("adam", 0.001)
    assert (training.epochs, training.batch_size, recipe.rounds.count) == (1, 128, 200)
    assert (recipe.simulation.devices, recipe.data.partition) == (10, "classes")
    assert recipe.evaluation.every == 1, "the curves of Figure 2"


def test_rows_differ_by_their_supplements_only(tmp_path: Path) -> None:
    found = recipes("labelhide-cifar10", "paper", tmp_path)
    for row in SPLITS:
        mixes, noise = (int(part.split("%")[0]) for part in row.split("/"))
        labels = found[row, "20 %, C = 2"].labels
        assert labels.mix_share == mixes / 100
        assert labels.noise == ("oriented" if mixes + noise == 100 else "none")
        assert labels.wanted
    own = found["50% Mix/50% Nat, own others", "20 %, C = 2"].labels
    assert own == found["50% Mix/50% Nat", "20 %, C = 2"].labels.model_copy(
        update={"others": "any"}
    )
    assert not found[NONE, "20 %, C = 2"].labels.wanted
    assert not found["IID", "20 %, C = 2"].labels.wanted
    assert found["IID", "20 %, C = 2"].data.partition == "iid"
    for name in ("fedlc", "fedrs"):
        recipe = recipes("labelhide-methods", "paper", tmp_path)[
            f"Fed{name[3:].upper()}", "SVHN, first"
        ]
        assert (recipe.algorithm.name, recipe.labels.wanted) == (name, False)


@pytest.mark.parametrize("scale", ENDS)
def test_rows_without_supplements_are_run_once_for_all_sizes(scale: Scale, tmp_path: Path) -> None:
    found = recipes("labelhide-cifar10", scale, tmp_path)
    for row, runs in ((NONE, 3), ("IID", 1), ("50% Mix/50% Nat", 9)):
        digests = {trial_digest(recipe) for (label, _), recipe in found.items() if label == row}
        assert len(digests) == runs, row


@pytest.mark.parametrize("scale", ENDS)
def test_table_1_has_batch_normalisation_and_not(scale: Scale, tmp_path: Path) -> None:
    found = recipes("labelhide-mnist", scale, tmp_path)
    batch = {row: recipe for (row, of), recipe in found.items() if of == "10 %"}
    group = {row: recipe for (row, of), recipe in found.items() if of == "10 %, group norm"}
    assert batch.keys() == group.keys()
    for row, recipe in batch.items():
        assert recipe.model.settings()["norm"] == "batch"
        other = recipe.model.model_copy(update={"norm": "group"})
        assert group[row] == recipe.model_copy(update={"model": other})


@pytest.mark.parametrize("labels", [1, 3])
def test_a_smoke_supplement_is_its_share_of_a_label(labels: int, tmp_path: Path) -> None:
    found = recipes("labelhide-cifar10", "smoke", tmp_path)
    recipe = found[NOISE, f"100 %, C = {labels}"]
    dataset = load(recipe.data, None, recipe.seed)
    size = len(dataset.train) / dataset.classes
    for percent in (100, 20, 10):
        count = found[NOISE, f"{percent} %, C = {labels}"].labels.count
        assert count == pytest.approx(percent / 100 * size)
    shards = deal(dataset, recipe.data, recipe.simulation.devices, 0.0, recipe.seed)
    assert {len(set(shard.train.targets.tolist())) for shard in shards} == {labels}


@pytest.mark.parametrize("labels", [1, 3])
def test_the_largest_supplements_of_the_paper_may_be_mixes(labels: int, tmp_path: Path) -> None:
    recipe = recipes("labelhide-cifar10", "paper", tmp_path)[SPLITS[0], f"100 %, C = {labels}"]
    lacking = 10 - labels
    assert lacking * recipe.labels.count <= most_mixes((3, 32, 32)), "else noise replaces them"
    assert lacking * recipe.labels.count <= most_mixes((3, 32, 32), MOST_GIVEN_BYTES)


def test_table_2_itself_contradicts_remark_1() -> None:
    table = find("labelhide-cifar10")
    remark = next(claim for claim in table.claims if claim.relation == "not below")
    assert (remark.text, {term.column for term in remark.terms}) == (
        f"Remark 1: {NOISE} ≥ {NONE}",
        {EACH},
    )
    columns = table.scales["paper"].columns
    found = judge(remark, columns, lambda *_: {}, table.number)
    sums = {each.column: round(100 * (each.published or 0), 2) for each in found}
    below = {column: points for column, points in sums.items() if points < 0}
    assert below == {"CIFAR-10, 100 %, C = 2": -5.63, "CIFAR-10, 100 %, C = 3": -22.72}
    assert any("46.90" in note and "52.53" in note for note in table.notes)


def test_data_sets_that_are_not_there_are_left_out_of_table_3(tmp_path: Path) -> None:
    table = find("labelhide-methods")
    folder = tmp_path / "data"
    (folder / "cifar10").mkdir(parents=True)
    (folder / "cifar10" / "cifar10.npz").touch()
    study = make_study(table, "paper", checked, data=folder, scratch=tmp_path)
    assert {cell.column.of for cell in study.cells} == {"CIFAR-10, first", "CIFAR-10, second"}
    assert len(study.cells) == 2 * len(table.rows)
    for label in ("CIFAR-100, C = 20", "CIFAR-100, C = 30", "SVHN, C = 2", "SVHN, C = 3"):
        assert study.scaled.left_out[label] == f"{label.split(',')[0]} is not in {folder}."
