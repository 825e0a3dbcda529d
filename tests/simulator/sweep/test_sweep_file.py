"""Sweep files: their cases, and errors with line numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.errors import EdgeFedError, RecipeError, UsageError
from edgefed.simulator.sweep.file import MAX_RUNS
from tests.simulator.sweep.sweeps import GRID, RECIPE, planned, write


def names(file: Path) -> list[str]:
    return [case.name for case in planned(file).cases]


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    grid = '[grid]\nalgorithm.name = ["fedavg", "fedprox"]\n"training.epochs" = [1, 2]\n'
    plan = planned(write(tmp_path, f'recipe = "recipe.toml"\nseeds = [4, 5]\n{grid}'))
    assert [case.name for case in plan.cases] == [
        "algorithm=fedavg epochs=1",
        "algorithm=fedavg epochs=2",
        "algorithm=fedprox epochs=1",
        "algorithm=fedprox epochs=2",
    ]
    last = plan.cases[-1].recipe
    assert (last.algorithm.name, last.training.epochs, last.rounds.count) == ("fedprox", 2, 2)
    assert plan.seeds == (4, 5)
    assert [(trial.seed, trial.recipe.seed) for trial in plan.trials()] == [(4, 4)] * 4 + [
        (5, 5)
    ] * 4


def test_cases_are_named_or_name_themselves(tmp_path: Path) -> None:
    cases = """
    [[cases]]
    name = "strong"
    algorithm = { name = "fedprox", mu = 1.0 }
    [[cases]]
    training.epochs = 3
    wire.uplink = "int8"
    [[cases]]
    """
    plan = planned(write(tmp_path, f'recipe = "recipe.toml"\n{cases}'))
    assert [case.name for case in plan.cases] == ["strong", "epochs=3 uplink=int8", "recipe"]
    assert plan.cases[0].settings == {"algorithm.name": "fedprox", "algorithm.mu": 1.0}
    assert plan.cases[0].recipe.algorithm.settings() == {"mu": 1.0}


def test_words_that_two_keys_share_are_told_whole(tmp_path: Path) -> None:
    grid = "[grid]\nrounds.count = [1]\nmodel.hidden = [[8, 4]]\n"
    assert names(write(tmp_path, grid)) == ["count=1 hidden=[8, 4]"]
    grid = "[grid]\ndata.limit = [9]\nalgorithm.limit = [8]\n"
    assert names(write(tmp_path, grid)) == ["data.limit=9 algorithm.limit=8"]


def test_a_recipe_may_stand_in_the_sweep(tmp_path: Path) -> None:
    text = '[recipe.model]\nname = "mlp"\nhidden = [3]\n[grid]\ntraining.epochs = [7]\n'
    (case,) = planned(write(tmp_path, text)).cases
    assert case.recipe.model.settings() == {"hidden": [3]}
    assert case.recipe.training.epochs == 7


def test_without_cases_the_recipe_is_the_only_one(tmp_path: Path) -> None:
    plan = planned(write(tmp_path, 'recipe = "recipe.toml"\n'))
    assert [case.name for case in plan.cases] == ["recipe"]
    assert plan.seeds == (1, 2, 3)


def test_sets_and_seeds_of_the_command_count_for_every_case(tmp_path: Path) -> None:
    file = write(tmp_path, GRID)
    plan = planned(file, sets={"rounds.count": "9"}, seeds=(8, 7))
    assert {case.recipe.rounds.count for case in plan.cases} == {9}
    assert plan.seeds == (8, 7)
    with pytest.raises(UsageError, match="The seed 7 is there twice"):
        planned(file, seeds=(8, 7, 7))
    with pytest.raises(UsageError, match=r"--set training\.learning_rate"):
        planned(file, sets={"training.learning_rate": "1"})


HEAD = 'recipe = "recipe.toml"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{HEAD}sedes = [1]\n", r'sweep.toml:2: sedes: unknown key; did you mean "seeds"'),
        (f"{HEAD}seeds = []\n", r"sweep.toml:2: seeds: must have at least 1 value"),
        (f'{HEAD}seeds = ["a"]\n', r'sweep.toml:2: seeds\[0\]: must be a whole number, got "a"\Z'),
        (f"{HEAD}seeds = [-1]\n", r"sweep.toml:2: seeds\[0\]: must be at least 0"),
        (f"{HEAD}seeds = [1.5]\n", r"sweep.toml:2: seeds\[0\]: must be a whole number"),
        (f"{HEAD}target = 2\n", r"sweep.toml:2: target: must be at most 1"),
        ("recipe = 3\n", r"sweep.toml:1: recipe: must be a quoted file name"),
        ('recipe = "other.toml"\n', r"other.toml: the file does not exist"),
        (f"{HEAD}[grid]\nrounds.count = 3\n", r"sweep.toml:3: grid.rounds.count: must be a list"),
        (f"{HEAD}[grid]\nrounds.count = []\n", r"sweep.toml:3: grid.rounds.count: must be a list"),
        (
            f"{HEAD}[grid]\ntraining.epoch = [1]\n",
            r'sweep.toml:3: training.epoch: unknown key; did you mean "epochs"',
        ),
        (f"{HEAD}[grid]\nrounds.count = [2, 0]\n", r"sweep.toml:3: rounds.count: .*1, got 0"),
        (f"{HEAD}[grid]\nseed = [1]\n", r"sweep.toml:3: grid.seed: seeds are not varied here"),
        (f"{HEAD}[[cases]]\n\nseed = 1\n", r"sweep.toml:4: cases\[0\].seed: seeds are not varied"),
        (
            f'{HEAD}[[cases]]\nname = "a"\n[[cases]]\nname = "a"\n',
            r"sweep.toml:4: cases\[1\]: there is a case 'a'",
        ),
        (
            f"{HEAD}[grid]\nrounds.count = [1]\n[[cases]]\nname = 'a'\n",
            r"sweep.toml:2: grid: a sweep has a grid or cases, not both",
        ),
        (
            f'{HEAD}[[cases]]\nname = "a"\n[[cases]]\ndata.limitt = 3\n',
            r'sweep.toml:5: data.limitt: unknown key; did you mean "limit"',
        ),
        (f"{HEAD}[grid]\ntraining = [1]\n", r"sweep.toml:3: training: must be a table"),
        (
            f'{HEAD}[grid]\ndata.partition = ["iid", "dirichlett"]\n',
            r'sweep.toml:3: data.partition: .* got "dirichlett"; did you mean "dirichlet"',
        ),
        (f"{HEAD}grid = 3\n", r"sweep.toml:2: grid: must be a table"),
        (f"{HEAD}report = []\n", r"sweep.toml:2: report: must have at least 1 value"),
        (f"{HEAD}report = [3]\n", r"sweep.toml:2: report\[0\]: must be a metric's name"),
        (f'{HEAD}report = ["loss", "loss"]\n', r"2: report\[1\]: loss is there already"),
        (f'{HEAD}report = ["a b"]\n', r"2: report\[0\]: 'a b' is no name of a metric"),
        (f'{HEAD}report = ["case"]\n', r"2: report\[0\]: 'case' is no name of a metric"),
        (
            f'{HEAD}report = [{{ metric = "loss", targt = 1 }}]\n',
            r"2: report\[0\].targt: unknown key",
        ),
        (
            f'{HEAD}report = [{{ metric = "device_accuracy", target = 90 }}]\n',
            r"2: report\[0\]: the target of device_accuracy must be more than 0 and at most 1",
        ),
        (
            f'{HEAD}report = [{{ metric = "train_loss", target = -1 }}]\n',
            r"2: report\[0\]: the target of train_loss must be more than 0",
        ),
        (
            f'{HEAD}report = [{{ metric = "loss", better = "higher" }}]\n',
            r"2: report\[0\]: of loss, lower values are better",
        ),
        (
            f'{HEAD}report = [{{ metric = "bytes", target = 5 }}]\n',
            r"2: report\[0\]: bytes is a number of the whole run",
        ),
        (
            f'{HEAD}report = [{{ metric = "tau_eff", target = 5 }}]\n',
            r'2: report\[0\]: a target of tau_eff needs better = "higher" or "lower"',
        ),
        (
            f'{HEAD}target = 0.5\nreport = [{{ metric = "accuracy", target = 0.6 }}]\n',
            r"3: report\[0\]: accuracy has a target twice",
        ),
        (f'{HEAD}target = 0.5\nreport = ["loss"]\n', r"2: target: is the accuracy's, which"),
        (
            f'{HEAD}baseline = "other"\n[[cases]]\nname = "fast"\n[[cases]]\nname = "slow"\n',
            r'2: baseline: there is no case .other.; the cases are "fast", "slow"',
        ),
        (
            f'{HEAD}baseline = {{ algorithm.name = "fedprox" }}\n'
            '[grid]\nalgorithm.name = ["fedavg"]\n',
            r"2: baseline: no case has algorithm=fedprox; its keys are those of the grid",
        ),
        (f"{HEAD}baseline = 3\n", "2: baseline: must be a case's name in quotes, or a table"),
        (
            f'{HEAD}baseline = "fast"\n[[cases]]\nname = "fest"\n',
            r"""2: baseline: there is no case 'fast'; did you mean "fest"?""",
        ),
        (
            f'{HEAD}baseline = "fedavg"\n[grid]\nrounds.count = [1, 2]\n',
            r"""no case 'fedavg'; the cases are "count=1", "count=2"$""",
        ),
        (
            f'{HEAD}baseline = "fedavg"\n[grid]\nrounds.count = {list(range(1, 12))}\n',
            r"""; the cases are "count=1", .*"count=10", …$""",
        ),
        (f"{HEAD}seeds = [3, 1, 1]\n", r"2: seeds: must have each seed once, not 1 twice"),
        # Metrics that no case can have, and choices that are not apart from the test.
        (
            f'{HEAD}report = ["acuracy"]\n',
            r"2: report\[0\]: no run has 'acuracy': did you mean 'acc",
        ),
        (f'{HEAD}report = ["secconds"]\n', r"2: report\[0\]: .* did you mean 'seconds'"),
        (
            f'{HEAD}report = ["loss", "device_loss"]\n',
            r"2: report\[1\]: no run has 'device_loss': devices do not evaluate the model",
        ),
        (f'{HEAD}report = ["validation_loss"]\n', r"2: .*: it needs evaluation.validation_share"),
        (f'{HEAD}[choose]\nby = "accuracy"\n', r"3: choose.by: must be a score of other samples"),
        (f"{HEAD}[choose]\n", r"2: choose: validation_accuracy needs evaluation.validation_share"),
        (
            f'{HEAD}[choose]\nby = "device_lift"\n',
            r'2: choose: device_lift needs better = "higher"',
        ),
        (
            f'{HEAD}[choose]\nwithin = ["algorithm.nam"]\n',
            r"""2: choose: no recipe has 'algorithm.nam'; did you mean "algorithm.name"?""",
        ),
        (
            f'{HEAD}[choose]\nby = "device_accuracy"\n[[cases]]\nevaluation.on = "devices"\n',
            r'2: choose: device_accuracy needs evaluation.on = "both" in every recipe',
        ),
        (
            f'{HEAD}report = ["device_loss"]\n[choose]\nby = "device_accuracy"\n[[cases]]\n'
            'evaluation.on = "both"\n',
            r"3: choose: device_loss is a test score of report",
        ),
        (f"{HEAD}[grid\n", r"sweep.toml:2:\d+: not valid TOML"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=told):
        planned(write(tmp_path, text))


def test_a_report_names_metrics_with_directions_and_targets(tmp_path: Path) -> None:
    items = """["accuracy", "mae", "tau_eff", "train_loss", "bytes", "fruit_recall",
        { metric = "lift", better = "higher", target = -2.5 }]"""
    text = f'{HEAD}target = 0.5\nreport = {items}\nbaseline = "b"\n'
    recipe = f'{RECIPE}[evaluation]\nmetrics = ["a:mae", "b:lift", "c:fruit_recall"]\n'
    cases = '[[cases]]\nname = "a"\n[[cases]]\nname = "b"\nalgorithm.name = "fednova"\n'
    plan = planned(write(tmp_path, text + cases, recipe))
    assert [(metric.name, metric.better, metric.target) for metric in plan.report] == [
        ("accuracy", "higher", 0.5),
        ("mae", "lower", None),
        ("tau_eff", None, None),
        ("train_loss", "lower", None),
        ("bytes", "lower", None),
        ("fruit_recall", "higher", None),
        ("lift", "higher", -2.5),
    ]
    assert (plan.target, plan.baseline, plan.choose) == (0.5, "b", None)
    plan = planned(write(tmp_path, f"{HEAD}target = 0.25\n"))
    assert [metric.name for metric in plan.report] == ["accuracy", "loss", "bytes", "seconds"]
    assert (plan.target, plan.baseline) == (0.25, "recipe")


def test_a_metric_that_one_case_can_have_is_reported(tmp_path: Path) -> None:
    cases = '[[cases]]\n[[cases]]\nevaluation.on = "both"\n'
    plan = planned(write(tmp_path, f'{HEAD}report = ["device_loss"]\n{cases}'))
    assert [metric.name for metric in plan.report] == ["device_loss"]


def test_a_sweep_has_a_limit(tmp_path: Path) -> None:
    axis = list(range(1, 101))
    grid = f"[grid]\nrounds.count = {axis}\ntraining.epochs = {axis}\ntraining.batch_size = {axis}"
    with pytest.raises(RecipeError, match=f"more than {MAX_RUNS} runs"):
        planned(write(tmp_path, f"{HEAD}{grid}\n"))


def test_a_result_is_named_by_what_it_depends_on(tmp_path: Path) -> None:
    file = write(tmp_path, GRID)

    def digests(**sets: str) -> list[str]:
        dotted = {key.replace("__", "."): value for key, value in sets.items()}
        return [trial.digest for trial in planned(file, sets=dotted).trials()]

    plain = digests()
    assert len(set(plain)) == 4
    assert digests(name="other", simulation__workers="2") == plain
    assert not set(digests(rounds__count="3")) & set(plain)
    assert digests(algorithm__name="fedavg") == plain
    assert digests(evaluation__validation_share="0.0") == plain
    assert not set(digests(evaluation__validation_share="0.1")) & set(plain)
    assert digests(labels__wait="5", labels__mix_share="1") == plain, "nobody gets supplements"
    assert not set(digests(labels__count="3")) & set(plain)
    assert digests(labels__count="3") != digests(labels__count="3", labels__mix_share="1")
    with_default = digests(algorithm__name="fedprox")
    written_out = write(tmp_path, GRID, RECIPE + '[algorithm]\nname = "fedprox"\n')
    assert [trial.digest for trial in planned(written_out).trials()] == with_default


def test_an_unknown_algorithm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EdgeFedError, match="alchemy"):
        list(planned(write(tmp_path, f'{HEAD}[grid]\nalgorithm.name = ["alchemy"]\n')).trials())
