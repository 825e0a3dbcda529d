"""Tell how strong the tests are: which of 150 small changes of the code no test notices.

``draw`` writes the changes, ``map`` measures which quick tests run which lines, ``run`` runs those
tests on each change and appends to FOLDER, and ``compare`` names the changes that survive now but
did not in an earlier result. A change whose code is gone is replaced by the next spare one of its
package. Tests marked ``slow`` are left out. ``map`` and ``run`` take about an hour on two cores.

    python -m benchmarks.mutants draw
    python -m benchmarks.mutants map [--folder FOLDER]
    python -m benchmarks.mutants run [--folder FOLDER] [--spares] [--write FILE] [--json]
    python -m benchmarks.mutants compare FIRST [--result FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.mutants.measurement import measure, read
from benchmarks.mutants.mutation import PACKAGES, Mutant, Place, draw, find, read_tree
from benchmarks.mutants.running import LIMIT, Runner, chosen, import_libraries, start_process

ROOT = Path(__file__).parents[2]
FOLDER = Path(tempfile.gettempdir()) / "edgefed-mutants"
DRAWN = Path(__file__).with_name("drawn.json")
SEED = 25
COUNT = 25
SPARES = 15
WORKERS = 2
QUICK = ("-m", "not slow")
OUTCOMES = ("killed", "survived", "timeout", "not covered")

Row = dict[str, Any]
Found = list[tuple[Mutant, Place]]
Task = tuple[Mutant, Place, list[str], int]
"""A mutant, where it is, the chosen tests, and how many cover it."""


def drawn() -> list[Mutant]:
    """Return the mutants of the committed list, with the spare ones."""
    told = json.loads(DRAWN.read_text(encoding="utf-8"))
    return [Mutant(**{**each, "path": tuple(each["path"])}) for each in told["rows"]]


def present(root: Path, mutants: Sequence[Mutant], count: int = COUNT) -> tuple[Found, list[str]]:
    """Return each package's first ``count`` mutants that are in a tree, and a line per lost one."""
    tree = read_tree(root)
    found: Found = []
    lost: list[str] = []
    for package in PACKAGES:
        own: Found = []
        for mutant in (each for each in mutants if each.package == package):
            place = find(tree, mutant)
            if len(own) == count:
                break
            if place is None:
                lost.append(f"gone, replaced by the next draw: {mutant.key}")
            else:
                own.append((mutant, place))
        if len(own) < count:
            lost.append(f"{package}: only {len(own)} of {count} left; draw more")
        found += own
    return found, lost


def copy_tree(root: Path, target: Path) -> None:
    """Copy the files that git does not ignore, and the compiled kernels."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout
    kernels = [str(path.relative_to(root)) for path in (root / "edgefed").rglob("*.so")]
    for name in (*names.split("\0"), *kernels):
        if name and (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)
    if (root / ".venv").exists():
        (target / ".venv").symlink_to(root / ".venv")


def table(rows: Iterable[Row]) -> str:
    """Return how many mutants of each package were killed, survived and so on."""
    counts = Counter((row["package"], row["outcome"]) for row in rows)
    lines = [f"{'package':14}" + "".join(f"{outcome:>13}" for outcome in OUTCOMES)]
    for package in PACKAGES:
        numbers = "".join(f"{counts[package, outcome]:>13}" for outcome in OUTCOMES)
        lines.append(f"{package:14}{numbers}")
    totals = (sum(counts[package, outcome] for package in PACKAGES) for outcome in OUTCOMES)
    return "\n".join([*lines, f"{'total':14}" + "".join(f"{total:>13}" for total in totals)])


def new_survivors(first: Iterable[Row], now: Iterable[Row]) -> list[str]:
    """Return the mutants that survive now and did not at first, spare ones among them."""
    before = {row["key"] for row in first if _survives(row)}
    return [row["key"] for row in now if _survives(row) and row["key"] not in before]


def run(folder: Path, found: Found, limit: float = LIMIT) -> list[Row]:
    """Judge all mutants that a folder has no row of, in two processes; return all rows."""
    file = folder / "rows.jsonl"
    done = {row["key"] for row in _rows(file)}
    covering = read(folder / "tree", folder / "map")
    queue: list[Task] = []
    for mutant, place in found:
        if mutant.key not in done:
            tests = covering.of(place.file, place.lines)
            queue.append((mutant, place, chosen(tests, covering.seconds), len(tests)))
    import_libraries()
    workers = []
    for k in range(min(WORKERS, len(queue))):
        runner = Runner(_own_tree(folder, k), folder / f"worker-{k}", limit)
        workers.append(start_process(partial(_judge, runner, queue[k::WORKERS], file)))
    for worker in workers:
        os.waitpid(worker, 0)
    order = {mutant.key: k for k, (mutant, _) in enumerate(found)}
    judged = {row["key"]: row for row in _rows(file) if row["key"] in order}
    return sorted(judged.values(), key=lambda row: order[row["key"]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one of the steps; return 1 if a comparison finds a new survivor."""
    options = _parser().parse_args(arguments)
    if options.step == "draw":
        return _write_drawn()
    if options.step == "compare":
        first, now = (
            json.loads(file.read_text())["rows"] for file in (options.first, options.result)
        )
        more = new_survivors(first, now)
        print("\n".join(f"survives now: {key}" for key in more) or "no more survive")
        return int(bool(more))
    folder = options.folder.resolve()
    tree = folder / "tree"
    if options.step == "map":
        shutil.rmtree(folder, ignore_errors=True)
        copy_tree(ROOT, tree)
        found, _ = present(tree, drawn(), COUNT + SPARES)
        measure(tree, [place.file for _, place in found], folder / "map", QUICK)
        return 0
    found, lost = present(tree, drawn(), COUNT + SPARES if options.spares else COUNT)
    rows = run(folder, found)
    about = {"about": options.about, "lost": lost}
    write_rows(options.write or folder / "result.json", about, rows)
    print(json.dumps({**about, "rows": rows}) if options.json else "\n".join([*lost, table(rows)]))
    return int(len(rows) != len(found))


def write_rows(file: Path, about: Mapping[str, Any], rows: Iterable[Row]) -> None:
    """Write what a file is about, then ``rows``, each on a line of its own."""
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = json.dumps(about, indent=1).removesuffix("\n}")
    file.write_text(f'{head},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def _write_drawn() -> int:
    mutants = [each for some in draw(ROOT, SEED, COUNT + SPARES).values() for each in some]
    assert len({each.key for each in mutants}) == len(mutants)
    write_rows(DRAWN, {"seed": SEED}, map(asdict, mutants))
    return 0


def _judge(runner: Runner, tasks: Sequence[Task], rows: Path) -> None:
    for mutant, place, tests, covering in tasks:
        verdict = runner.judge(place, tests)
        row = {"key": mutant.key, "package": mutant.package, "operator": mutant.operator}
        with rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, **asdict(verdict), "covering": covering}) + "\n")


def _own_tree(folder: Path, number: int) -> Path:
    """Return a copy of the measured tree for one worker, with its compiled files."""
    tree = folder / f"worker-{number}" / "tree"
    if not tree.exists():
        shutil.copytree(folder / "tree", tree, symlinks=True)
        collect = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]
        subprocess.run(collect, cwd=tree, check=False, capture_output=True)
    return tree


def _rows(file: Path) -> list[Row]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines]


def _survives(row: Mapping[str, Any]) -> bool:
    return row["outcome"] in {"survived", "not covered"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutants", description=(__doc__ or "").split("\n", 1)[0]
    )
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("draw", help="write the list of mutants again")
    for name, about in (("map", "measure which tests run which lines"), ("run", "judge mutants")):
        step = steps.add_parser(name, help=about)
        step.add_argument("--folder", type=Path, default=FOLDER)
        if name == "map":
            continue
        step.add_argument("--spares", action="store_true", help="judge the spare ones, too")
        step.add_argument("--write", type=Path, metavar="FILE")
        step.add_argument("--about", default="", help="a word about the measured tree")
        step.add_argument("--json", action="store_true")
    step = steps.add_parser("compare", help="name the mutants that survive only now")
    step.add_argument("first", type=Path, metavar="FIRST")
    step.add_argument("--result", type=Path, default=FOLDER / "result.json")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
