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
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.matching_study.local_models import STARTS, Start, local_scores
from benchmarks.matching_study.setups import (
    METHODS,
    SETUPS,
    VARIATIONS,
    VARIED,
    Case,
    Choice,
    Setup,
    cases,
    choices,
    recipe_of,
)
from benchmarks.shared.harness import parser
from benchmarks.studies.runs import Run, Runner, best_of, difference, spoken
from edgefed.simulator.sweep.statistics import spread
from edgefed.terminal.console import columns

PARTS = ("one-shot", "rounds", "settings")
TUNING_SEED = 101
SLACK = 1.02
"""Bytes of equal rounds differ a little, as blobs are compressed."""

REACH = 1.1
"""A run that spent a little less than a milestone has a cell there; beyond, it is empty."""

Table = list[tuple[str, ...]]
Local = Mapping[str, Mapping[str, tuple[float, ...]]]


@dataclass(frozen=True)
class Row:
    """One case.

    Attributes:
        chosen: words of its settings.
        tuning: accuracy on the samples kept apart, by setting.
        runs: with each seed.
    """

    case: Case
    chosen: str
    tuning: Mapping[str, float]
    runs: Sequence[Run]

    @property
    def final(self) -> tuple[float, ...]:
        """The accuracy after the last round, by seed."""
        return tuple(run.score() for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Return the row as ``--json`` has it."""
        return {
            "method": self.case.method,
            "epochs": self.case.epochs,
            "chosen": self.chosen,
            "tuning": dict(self.tuning),
            "accuracy": spread(self.final).__dict__,
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

    def row(self, case: Case) -> Row | None:
        """Return what is known of a case; None where a run failed or is left out."""
        tuning = self.tuning(case)
        if not tuning:
            return None
        best = best_of(tuning)
        recipes = {
            f"{self._words(case)}, {best}, {seed}": recipe_of(
                self.setup, case, self._choices(case)[best], self._file("test", seed), seed
            )
            for seed in self.seeds
        }
        runs = [run for run in self.runner.runs(recipes).values() if run is not None]
        finished = [run for run in runs if run.ended == "finished"]
        return Row(case, best, tuning, finished) if len(finished) == len(self.seeds) else None

    def tuning(self, case: Case) -> dict[str, float]:
        """Return the accuracy on the samples kept apart, by setting; empty where some lack.

        The learning rate is chosen first, with the first value of every other setting, and these
        with the chosen rate.
        """
        method = METHODS[case.method]
        rates: Sequence[float] = self.setup.rates
        if method.rate_as:
            known = self.tuning(Case(method.rate_as, case.epochs, case.total))
            if not known:
                return {}
            rates = [choices(self.setup, METHODS[method.rate_as])[best_of(known)].rate]
        first = {key: values[0] for key, values in method.grid.items()}
        found = self._tried(case, [Choice(rate, first) for rate in rates])
        for key, values in method.grid.items():
            if not found:
                return {}
            best = self._choices(case)[best_of(found)]
            more = [Choice(best.rate, {**best.more, key: value}) for value in values]
            scores = self._tried(case, more)
            found = {**found, **scores} if scores else {}
        return found

    def settings(self) -> dict[str, float]:
        """Return the accuracy of other settings of FedMA on the samples kept apart, by words."""
        case = Case("FedMA", VARIED, self.setup.lengths.get(VARIED, 0))
        tuning = self.tuning(case) if case.total else {}
        if not tuning:
            return {}
        base = self._choices(case)[best_of(tuning)]
        tried = {w: Choice(base.rate, {**base.more, **more}) for w, more in VARIATIONS.items()}
        scores = {words: self._tuned(case, choice, 1.0) for words, choice in tried.items()}
        return {words: score for words, score in scores.items() if score is not None}

    def locals(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """Return the accuracy of local networks by seed, by their start and epochs."""
        found = {}
        for epochs, start in itertools.product(self.setup.one_shot, STARTS):
            tuning = self.tuning(Case("FedAvg", epochs))
            if not tuning:
                continue
            choice = self._choices(Case("FedAvg", epochs))[best_of(tuning)]
            scores = [self._local(epochs, choice, start, seed) for seed in self.seeds]
            known = [each for each in scores if each is not None]
            if len(known) == len(scores):
                by_name = {name: tuple(each[name] for each in known) for name in known[0]}
                found[f"{start}, E = {epochs}"] = by_name
        return found

    def _local(
        self, epochs: int, choice: Choice, start: Start, seed: int
    ) -> dict[str, float] | None:
        case, file = Case("FedAvg", epochs), self._file("test", seed)
        recipe = recipe_of(self.setup, case, choice, file, seed)
        return local_scores(self.runner, f"{start}, E = {epochs}", recipe, start)

    def _tried(self, case: Case, several: Sequence[Choice]) -> dict[str, float]:
        """Return the scores of settings by their words; none where one lacks."""
        scores = {choice.words: self._tuned(case, choice) for choice in several}
        known = {words: score for words, score in scores.items() if score is not None}
        return known if len(known) == len(scores) else {}

    def _tuned(self, case: Case, choice: Choice, share: float | None = None) -> float | None:
        """Return the accuracy of a setting on the samples kept apart; None where it is unknown."""
        file, share = self._file("tune", TUNING_SEED), share or self.setup.tuning_share
        recipe = recipe_of(self.setup, case, choice, file, TUNING_SEED, share)
        run = self.runner.run(f"{self._words(case)}, tuned, {choice.words}", recipe)
        return None if run is None else run.score()

    def _choices(self, case: Case) -> dict[str, Choice]:
        return choices(self.setup, METHODS[case.method])

    def _file(self, part: Any, seed: int) -> Path:
        return self.setup.file(self.data, self.runner.folder / "data", part, seed)

    def _words(self, case: Case) -> str:
        return f"{self.name}: {case.method}, E = {case.epochs}, {case.total or 'one round'}"


def traffic(run: Run) -> list[int]:
    """Return the bytes that all devices were sent and sent, until the end of each round."""
    return list(itertools.accumulate(row["sent"] + row["received"] for row in run.rows))


# -- tables ---------------------------------------------------------------------------------------


def tables(setup: Setup, part: str, rows: Sequence[Row], local: Local) -> dict[str, Table]:
    """Return the tables of a part by their titles."""
    found = {"after the last round": final(setup, rows), "chosen": tuned(rows)}
    if local:
        found["networks of single devices"] = alone(local)
    for epochs in sorted({row.case.epochs for row in rows}) if part == "rounds" else ():
        alike = [row for row in rows if row.case.epochs == epochs]
        found |= {f"E = {epochs}, {title}": t for title, t in curves(setup, alike).items()}
    return found


def final(setup: Setup, rows: Sequence[Row]) -> Table:
    """Return accuracy, cost and growth of each case."""
    base = {row.case.epochs: row.final for row in rows if row.case.method == "FedAvg"}
    found: Table = [
        ("E", "METHOD", "ROUNDS", "EPOCHS", "MB", "ACCURACY", "AGAINST FEDAVG", "GROWTH", "CPU S")
    ]
    for row in rows:
        rounds, case = row.case.rounds(setup), row.case
        against = ""
        if case.method != "FedAvg" and case.epochs in base:
            against = spoken(difference(row.final, base[case.epochs]), "{:+.3f}")
        grown = [each for run in row.runs for each in run.values("growth")[-1:]]
        found.append(
            (
                *(str(case.epochs), case.method, str(rounds)),
                str(rounds * case.round_epochs(setup)),
                spoken(spread([traffic(run)[-1] / 1e6 for run in row.runs]), "{:.1f}"),
                *(spoken(spread(row.final)), against, spoken(spread(grown), "{:.2f}")),
                spoken(spread([run.seconds for run in row.runs]), "{:.0f}"),
            )
        )
    return found


def tuned(rows: Sequence[Row]) -> Table:
    """Return the accuracy of every setting on the samples kept apart."""
    found: Table = [("E", "METHOD", "CHOSEN", "ACCURACY OF EACH")]
    for row in rows:
        each = "; ".join(f"{words}: {score:.3f}" for words, score in row.tuning.items())
        found.append((str(row.case.epochs), row.case.method, row.chosen, each))
    return found


def alone(local: Local) -> Table:
    """Return what networks of single devices are worth."""
    found: Table = [("INITIAL WEIGHTS", "ALONE", "ENSEMBLE", "AVERAGE")]
    for words, scores in local.items():
        cells = [spoken(spread(scores[name])) for name in ("alone", "ensemble", "average")]
        found.append((words, *cells))
    return found


def curves(setup: Setup, rows: Sequence[Row]) -> dict[str, Table]:
    """Return accuracy by rounds, by bytes and by epochs, of cases with the same epochs."""
    base = next((row for row in rows if row.case.method == "FedAvg"), None)
    spent: dict[str, Callable[[Row, Run], list[float]]] = {
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
    rows: Sequence[Row], milestones: Sequence[int], spent: Callable[[Row, Run], Sequence[float]]
) -> Table:
    """Return the accuracy after the last round that has spent no more than each milestone."""
    found: Table = [("METHOD", *map(str, milestones))]
    for row in rows:
        cells = []
        for milestone in milestones:
            scores = [_within(run, spent(row, run), milestone) for run in row.runs]
            known = [each for each in scores if each is not None]
            cells.append(spoken(spread(known)) if len(known) == len(scores) else "")
        found.append((row.case.method, *cells))
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
        for title, table in titled.items() if not options.json else ():
            print(f"\n{name}, {part}: {title}\n{columns(table)}", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))


def _part(
    study: Study, part: str, methods: Sequence[str] | None, epochs: Sequence[int] | None
) -> tuple[Any, dict[str, Table]]:
    """Return a part of the study as JSON has it, and its tables."""
    if part == "settings":
        scores = study.settings()
        lines = [(words, f"{score:.3f}") for words, score in scores.items()]
        return scores, {"accuracy on the samples kept apart": [("SETTING", "ACCURACY"), *lines]}
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
