"""A simulation that learns nothing says so where an operator looks."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commands import edgefed

STILL = ("--rounds", "5", "--set", "training.learning_rate=1e-7")
"""A run whose weights stay where they began."""


def test_a_run_that_learned_nothing_says_so_and_what_to_try(tmp_path: Path) -> None:
    ran = edgefed("sim", "run", "--json", *STILL, state=tmp_path)
    assert ran.code == 0, ran
    told = [line for line in ran.err.splitlines() if "the model learned nothing" in line]
    assert len(told) == 1, "once, with what to try"
    assert told[0].startswith("! ")
    assert "; try: lower training.learning_rate" in told[0]

    shown = edgefed("run", "show", "--local", state=tmp_path).out
    assert "finished: the model learned nothing: it predicts" in shown
    assert "lower training.learning_rate" in shown
    report = tmp_path / "report.html"
    words = ("run", "report", ran.json["run"], "--local", "--out", report)
    assert edgefed(*words, state=tmp_path).code == 0
    assert "the model learned nothing" in report.read_text()


def test_a_run_that_learned_something_does_not(tmp_path: Path) -> None:
    learning = (
        "--rounds",
        "5",
        "--set",
        "data.partition=iid",
        "--set",
        "training.learning_rate=0.2",
    )
    ran = edgefed("sim", "run", "--json", *learning, state=tmp_path)
    assert ran.json["accuracy"] > 0.3
    assert "learned nothing" not in ran.err
    assert "hint" not in edgefed("run", "show", "--local", state=tmp_path).out
