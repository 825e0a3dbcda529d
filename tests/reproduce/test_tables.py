"""The tables as they are written: published numbers, set-ups, and that all fits together."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.api.recipe_source import checked
from edgefed.config.recipes.recipe import Recipe
from edgefed.reproduce.outputs import write_recipes
from edgefed.reproduce.paper_tables import find, tables
from edgefed.reproduce.plan import make_study
from edgefed.reproduce.table import EACH, SCALES, PaperTable
from tests.reproduce.layout import touch_all

pytest.importorskip("sklearn", reason="the digits are not installed")

every = pytest.mark.parametrize("table", tables().values(), ids=tables())
FEDMIX = (*range(1, 8), *range(9, 19))


def numbers(name: str) -> dict[tuple[str, str], float]:
    return {(each.row, each.column): each.value for each in find(name).published}


def test_all_tables_are_found_in_their_papers_order() -> None:
    assert [*tables()] == [
        *("comparison", "comparison-bytes", "comparison-devices", "comparison-settings"),
        *("fedma-shakespeare", "fedma-epochs", "fedma-bias", "fedma-growing", "fedma-lenet"),
        "fedma-table1",
        *(f"fedmix-table{number}" for number in FEDMIX if number != 8),
        "labelhide-mnist",
        "labelhide-cifar10",
        "labelhide-methods",
        *(f"moe-figure{number}" for number in (3, 4, 11, 13)),
        *("moe-rotation", "moe-permutation", "moe-newshard", "moe-vae"),
        "moe-table1",
        *(
            "niid-fmnist",
            "nvflare-delayed",
            "nvflare-devices",
            "pfnm-mnist",
            "pfnm-grid",
            "privacy-digits",
        ),
    ]


def test_what_was_published_in_fedmix_table_1() -> None:
    found = numbers("fedmix-table1")
    images = ("FEMNIST", "CIFAR-10", "CIFAR-100")
    assert [found["Global Mixup", image] for image in images] == [88.2, 88.2, 61.4]
    assert [found["FedAvg", image] for image in images] == [85.3, 73.8, 50.4]
    assert [found["NaiveMix", image] for image in images] == [85.9, 77.4, 53.8]
    assert [found["FedMix", image] for image in images] == [86.5, 81.2, 56.7]
    assert len(found) == 12


def test_what_was_published_in_fedmix_tables_9_and_17() -> None:
    found = numbers("fedmix-table9")
    images = ("FEMNIST", "CIFAR-10", "CIFAR-100")
    assert [found["Mixup w/ random noise", image] for image in images] == [86.1, 77.9, 51.2]
    assert [found["Mixup w/ local means", image] for image in images] == [85.5, 73.5, 51.0]
    first = numbers("fedmix-table1")
    assert {key: found[key] for key in found if key in first} == {
        key: first[key] for key in found if key in first
    }
    assert len(found) == 12
    assert [*numbers("fedmix-table17").values()] == [79.5, 79.9, 80.6, 29.8]


def test_what_was_published_of_the_other_papers() -> None:
    assert numbers("fedma-table1") == {
        ("FedAvg", "CIFAR-10"): 86.29,
        ("FedProx", "CIFAR-10"): 85.32,
        ("Ensemble", "CIFAR-10"): 75.29,
        ("FedMA", "CIFAR-10"): 87.53,
        ("FedAvg", "Shakespeare"): 46.63,
        ("FedProx", "Shakespeare"): 45.83,
        ("Ensemble", "Shakespeare"): 46.06,
        ("FedMA", "Shakespeare"): 49.07,
    }


@pytest.mark.parametrize(
    ("kind", "devices", "cohort", "rounds", "epochs", "naive", "fed"),
    [
        ("FEMNIST", 100, 10, 200, 10, 0.2, 0.2),
        ("CIFAR-10", 60, 15, 500, 2, 0.1, 0.05),
        ("CIFAR-100", 100, 10, 500, 10, 0.1, 0.1),
        ("Shakespeare", 60, None, 50, 2, 0.1, 0.1),
    ],
)
def test_the_papers_set_ups(
    kind: str, devices: int, cohort: int | None, rounds: int, epochs: int, naive: float, fed: float
) -> None:
    name = "fedmix-table2" if kind == "Shakespeare" else "fedmix-table1"
    columns = {column.of: column for column in find(name).scales["paper"].columns}
    keys, rows = columns[kind].setup, columns[kind].rows
    assert keys["simulation.devices"] == devices
    assert keys.get("rounds.cohort") == cohort
    assert (keys["rounds.count"], keys["training.epochs"]) == (rounds, epochs)
    ratios = [rows[each]["algorithm.mixup_ratio"] for each in ("NaiveMix", "FedMix")]
    assert ratios == [naive, fed]
    assert keys["training.batch_size"] == 10
    assert (keys["training.learning_rate"], keys["training.learning_rate_decay"]) == (0.01, 0.999)
    assert "evaluation.every" not in keys, "rounds are counted one by one"


@every
def test_numbers_claims_and_columns_fit_together(table: PaperTable) -> None:
    rows = [row.label for row in table.rows]
    assert len(set(rows)) == len(rows)
    published = {column.of for column in table.scales["paper"].columns}
    assert {each.row for each in table.published} <= set(rows)
    assert {each.column for each in table.published} <= published
    assert all(each.source and 0 < each.value < 100 for each in table.published)
    for claim in table.claims:
        assert {term.row for term in claim.terms} <= set(rows), claim.text
        assert {term.column for term in claim.terms} <= {EACH, *published}, claim.text
    assert tuple(table.scales) == SCALES
    for scaled in table.scales.values():
        labels = [column.label for column in scaled.columns]
        assert len(set(labels)) == len(labels)
        assert {column.of for column in scaled.columns} <= published
        assert all({*column.rows} <= set(rows) for column in scaled.columns)
        left = published - {column.of for column in scaled.columns}
        told = ", ".join(scaled.left_out)
        assert all(of in told for of in left), "what is left out is told"


@every
def test_the_smallest_scale_is_ready_to_run_without_any_file(
    table: PaperTable, tmp_path: Path
) -> None:
    study = make_study(table, "smoke", checked, scratch=tmp_path)
    scaled = table.scales["smoke"]
    left = [row for row in table.rows if row.label not in scaled.left_out]
    assert study.missing == {}
    assert len(study.cells) == len(left) * len(scaled.columns)
    assert len(write_recipes(study, tmp_path / "recipes")) == len(study.cells)
    assert len([*(tmp_path / "recipes").glob("*.toml")]) == len(study.cells), "names differ"


@every
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_the_larger_scales_are_checked_recipes(
    table: PaperTable, scale: str, tmp_path: Path
) -> None:
    chosen = {str(name): name for name in SCALES}[scale]
    study = make_study(table, chosen, checked, data=touch_all(tmp_path / "data"), scratch=tmp_path)
    assert study.missing == {}
    assert all(isinstance(cell.case.recipe, Recipe) for cell in study.cells)
    if table.scales[chosen].exact:
        counts = {cell.case.recipe.rounds.count for cell in study.cells}
        assert min(counts) >= 50
