"""Compare matched averaging with FedAvg, FedProx and pooled training on two cores.

Settings are chosen on samples that no test sees, with another seed; only the chosen ones are
tested. ``one-shot``: runs of one round, and what devices' networks are worth alone and averaged.
``rounds``: runs of many rounds, by rounds, by bytes and by epochs of local training.
``settings``: other settings of FedMA, on the samples that settings are chosen on.

    python -m benchmarks.matching_study --data DIR [--work DIR] [--setups NAME …] [--only PART …]
        [--methods NAME …] [--epochs E …] [--seeds 3] [--tables] [--json]

DIR holds ``mnist/mnist.npz`` and ``shakespeare/shakespeare_roles.jsonl``. Every finished run is a
file in the work folder and is not repeated. ``--tables`` prints what is known and runs nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.matching_study.local_models import STARTS, local_scores
from benchmarks.matching_study.setups import (
    METHODS,
    SETUPS,
    VARIATIONS,
    VARIED,
    Case,
    Setup,
    axes,
    cases,
    choices,
    words_of,
)
from benchmarks.shared.harness import parser, show, table
from benchmarks.studies.runs import Run, Runner, best_of, difference
from benchmarks.studies.trials import Part, Row, Tables, Trials
from edgefed.config.recipes.recipe import Recipe
from edgefed.simulator.sweep.statistics import spread

PARTS = ("one-shot", "rounds", "settings")
TUNING_SEED = 101
SLACK = 1.02
"""Bytes of equal rounds differ a little, as blobs are compressed."""

REACH = 1.1
"""A run that spent a little less than a milestone has a cell there; beyond, it is empty."""

Table = list[Tables]
Local = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class CaseRow(Row):
    """What is known of a case, whose runs have all finished."""

    case: Case

    @property
    def final(self) -> tuple[float, ...]:
        """The accuracy after the last round, by seed."""
        return tuple(run.score() for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Return the row as ``--json`` has it."""
        return {
            "method": self.method,
            "epochs": self.case.epochs,
            "chosen": self.chosen,
            "tuning": self.tuning,
            "accuracy": spread(self.final),
            "curves": [run.values("accuracy") for run in self.runs],
            "bytes": [traffic(run) for run in self.runs],
            "growth": [[None, *run.values("growth")][-1] for run in self.runs],
        }


@dataclass(frozen=True)
class Study:
    """The cases of one set-up.

    Attributes:
        data: folder of the data sets.
        seeds: of the tests.
    """

    name: str
    setup: Setup
    data: Path
    runner: Runner
    seeds: Sequence[int]

    def row(self, case: Case) -> CaseRow | None:
        """Return what is known of a case; None where a run failed or is left out."""
        tuning = self.tuning(case)
        if not tuning:
            return None
        best = best_of(tuning)
        runs = self._trials(case, self._choices(case)).tested(best, self.seeds)
        if not runs or any(run.ended != "finished" for run in runs):
            return None
        return CaseRow(self.name, case.method, best, tuning, runs, case)

    def tuning(self, case: Case) -> dict[str, float]:
        """Return the accuracy on the samples kept apart, by setting; empty where some lack.

        The learning rate is chosen first, with the first value of every other setting, and these
        with the chosen rate.
        """
        values = axes(self.setup, case.method)
        rate_as = METHODS[case.method].rate_as
        if rate_as:
            other = Case(rate_as, case.epochs, case.total)
            known = self.tuning(other)
            if not known:
                return {}
            values["rate"] = [self._choices(other)[best_of(known)]["rate"]]
        trials = self._trials(case, self._choices(case), self.setup.tuning_share)
        best: Tables = {key: each[0] for key, each in values.items()}
        found: dict[str, float] = {}
        for key, each in values.items():
            tried = [words_of({**best, key: value}) for value in each]
            scores = trials.tuned(tried, [TUNING_SEED])
            if not scores:
                return {}
            found |= scores
            best = self._choices(case)[best_of(found)]
        return found

    def settings(self) -> dict[str, float]:
        """Return the accuracy of other settings of FedMA on the samples kept apart, by words."""
        case = Case("FedMA", VARIED, dict(self.setup.lengths).get(VARIED, 0))
        tuning = self.tuning(case) if case.total else {}
        if not tuning:
            return {}
        base = self._choices(case)[best_of(tuning)]
        trials = self._trials(case, {words: {**base, **own} for words, own in VARIATIONS.items()})
        scores = (trials.tuned([words], [TUNING_SEED]) for words in VARIATIONS)
        return {words: score for found in scores for words, score in found.items()}

    def locals(self) -> dict[str, dict[str, list[float]]]:
        """Return the accuracy of local networks by seed, by their start and epochs."""
        found = {}
        for epochs, start in itertools.product(self.setup.one_shot, STARTS):
            case, words = Case("FedAvg", epochs), f"{start}, E = {epochs}"
            tuning = self.tuning(case)
            if not tuning:
                continue
            trials = self._trials(case, self._choices(case))
            recipes = [trials.recipe(best_of(tuning), "test", seed) for seed in self.seeds]
            scores = [local_scores(self.runner, words, recipe, start) for recipe in recipes]
            known = [each for each in scores if each is not None]
            if len(known) == len(scores):
                found[words] = {name: [each[name] for each in known] for name in known[0]}
        return found

    def _trials(self, case: Case, known: Mapping[str, Tables], share: float = 1.0) -> Trials:
        """Return the runs of a case with known choices, and with this share of its epochs."""

        def recipe(words: str, part: Part, seed: int) -> Recipe:
            file = self.setup.file(self.data, self.runner.folder / "data", part, seed)
            return case.recipe(self.setup, known[words], file, seed, share)

        words = f"{self.name}: {case.method}, E = {case.epochs}, {case.total or 'one round'}"
        return Trials(self.runner, words, recipe)

    def _choices(self, case: Case) -> dict[str, Tables]:
        return choices(self.setup, case.method)


def traffic(run: Run) -> list[int]:
    """Return the bytes that all devices were sent and sent, until the end of each round."""
    return list(itertools.accumulate(row["sent"] + row["received"] for row in run.rows))


# -- tables ---------------------------------------------------------------------------------------


def tables(setup: Setup, part: str, rows: Sequence[CaseRow], local: Local) -> dict[str, Table]:
    """Return the tables of a part by their titles."""
    found: dict[str, Table] = {
        "after the last round": final(setup, rows),
        "chosen": [
            {"E": row.case.epochs, "method": row.method, "chosen": row.chosen, "tuning": row.tuning}
            for row in rows
        ],
        "networks of single devices": [
            {"initial weights": words, **{name: spread(each) for name, each in scores.items()}}
            for words, scores in local.items()
        ],
    }
    for epochs in sorted({row.case.epochs for row in rows}) if part == "rounds" else ():
        alike = [row for row in rows if row.case.epochs == epochs]
        found |= {f"E = {epochs}, {title}": t for title, t in curves(setup, alike).items()}
    return found


def final(setup: Setup, rows: Sequence[CaseRow]) -> Table:
    """Return accuracy, cost and growth of each case; differences are from FedAvg, by seed."""
    base = {row.case.epochs: row.final for row in rows if row.method == "FedAvg"}
    return [
        {
            "E": row.case.epochs,
            "method": row.method,
            "rounds": row.case.rounds(setup),
            "epochs": row.case.rounds(setup) * row.case.round_epochs(setup),
            "MB": spread([traffic(run)[-1] / 1e6 for run in row.runs]),
            "accuracy": spread(row.final),
            "against FedAvg": difference(row.final, base[row.case.epochs])
            if row.case.epochs in base
            else None,
            "growth": spread([each for run in row.runs for each in run.values("growth")[-1:]]),
            "CPU s": spread([run.seconds for run in row.runs]),
        }
        for row in rows
    ]


def curves(setup: Setup, rows: Sequence[CaseRow]) -> dict[str, Table]:
    """Return accuracy by rounds, by bytes and by epochs, of cases with the same epochs."""
    base = next((row for row in rows if row.case.method == "FedAvg"), None)
    spent: dict[str, Callable[[CaseRow, Run], list[float]]] = {
        "by rounds": lambda row, run: run.values("round")
    }
    if base is not None:
        one = fmean(traffic(run)[-1] / len(run.rows) for run in base.runs)
        own = base.case.epochs
        spent["by bytes, in rounds of FedAvg"] = lambda row, run: [
            each / one / SLACK for each in traffic(run)
        ]
        spent["by epochs, in rounds of FedAvg"] = lambda row, run: [
            each * row.case.round_epochs(setup) / own for each in run.values("round")
        ]
    return {title: _curve(rows, setup.milestones, cost) for title, cost in spent.items()}


def _curve(
    rows: Sequence[CaseRow],
    milestones: Sequence[int],
    spent: Callable[[CaseRow, Run], Sequence[float]],
) -> Table:
    """Return the accuracy after the last round that has spent no more than each milestone."""
    found: Table = []
    for row in rows:
        cells: dict[str, Any] = {"method": row.method}
        for milestone in milestones:
            scores = [_within(run, spent(row, run), milestone) for run in row.runs]
            known = [each for each in scores if each is not None]
            cells[str(milestone)] = spread(known) if len(known) == len(scores) else None
        found.append(cells)
    return found


def _within(run: Run, spent: Sequence[float], most: float) -> float | None:
    """Return the accuracy of the last round within a budget; None outside of what was run."""
    inside = [row["accuracy"] for row, each in zip(run.rows, spent, strict=True) if each <= most]
    return inside[-1] if inside and spent[-1] * REACH >= most else None


# -- the command ----------------------------------------------------------------------------------


def main() -> None:
    """Run the study and print its tables."""
    lists = {"setups": SETUPS, "only": PARTS}
    command = parser("matching_study", __doc__, data=Path, work=Path("matching-study"), **lists)
    command.add_argument("--methods", nargs="*", choices=list(METHODS))
    command.add_argument("--epochs", nargs="*", type=int)
    command.add_argument("--seeds", type=int, choices=range(1, 11), default=3)
    command.add_argument("--tables", action="store_true")
    options = command.parse_args()
    runner = Runner(options.work, not options.json, lacking=options.tables)
    found: dict[str, Any] = {}
    for name, part in itertools.product(options.setups, options.only):
        study = Study(name, SETUPS[name], options.data, runner, range(1, options.seeds + 1))
        found[f"{name}, {part}"], titled = _part(study, part, options.methods, options.epochs)
        for title, lines in titled.items():
            if options.json or not lines:
                continue
            print(f"\n{name}, {part}: {title}\n{table(lines)}", flush=True)
    if options.json:
        show(options, found, indent=2)


def _part(
    study: Study, part: str, methods: Sequence[str] | None, epochs: Sequence[int] | None
) -> tuple[Any, dict[str, Table]]:
    """Return a part of the study as JSON has it, and its tables."""
    if part == "settings":
        scores = study.settings()
        lines: Table = [{"setting": words, "accuracy": score} for words, score in scores.items()]
        return scores, {"accuracy on the samples kept apart": lines}
    wanted = [
        case
        for case in cases(study.setup, part)
        if case.method in (methods or study.setup.methods)
        and case.epochs in (epochs or [case.epochs])
    ]
    rows = [row for row in map(study.row, wanted) if row is not None]
    local = study.locals() if part == "one-shot" and not methods else {}
    told = {"cases": [row.to_json() for row in rows], "local": local}
    return told, tables(study.setup, part, rows, local)


if __name__ == "__main__":
    main()
