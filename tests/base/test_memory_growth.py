"""Whether memory grows: a leak is found, and what comes and goes with each run is none."""

from __future__ import annotations

import random

import pytest

from benchmarks.fleets.memory_growth import growth, slope_of, t_quantile, verdict

RUNS, ROUNDS, PER_RUN = 40, 200, 8
ENDS = [(40.0 * (run + 1), ROUNDS * (run + 1)) for run in range(RUNS)]
TIMES = [5.0 * (number + 1) for number in range(RUNS * PER_RUN)]


def memory(bytes_a_round: float, *, of_a_run: float = 5.0, noise: float = 0.05) -> list[float]:
    """Return MB: what a run takes rises from nothing, and some of it is freed late."""
    drawn = random.Random(1)
    return [
        600
        + bytes_a_round * 5 * time / 1e6
        + of_a_run * (number % PER_RUN) / PER_RUN
        + drawn.gauss(0, noise)
        for number, time in enumerate(TIMES)
    ]


@pytest.mark.parametrize("leak", [300.0, 1000.0])
def test_a_leak_is_found(leak: float) -> None:
    row = growth(TIMES, memory(leak), ENDS)
    assert row["verdict"] == "grows"
    assert abs(row["bytes_a_round"] - leak) < 2 * row["interval"] < leak
    assert row["mb_an_hour"] == pytest.approx(row["bytes_a_round"] * 18_000 / 1e6)
    assert row["thirds_mb"] == sorted(row["thirds_mb"])


def test_what_comes_and_goes_with_a_run_is_no_growth() -> None:
    row = growth(TIMES, memory(0), ENDS)
    assert row["verdict"] == "flat"
    assert row["ratio"] == pytest.approx(1, abs=1e-4)
    assert row["most_mb"] > 604
    assert max(row["thirds_mb"]) < 601


def test_what_noise_hides_is_not_decided() -> None:
    assert growth(TIMES, memory(0, noise=20), ENDS)["verdict"] == "undecided"


def test_warming_up_is_left_out() -> None:
    warming = [mb + min(0.0, time - 600) / 50 for time, mb in zip(TIMES, memory(0), strict=True)]
    assert growth(TIMES, warming, ENDS)["verdict"] == "flat"


def test_few_runs_tell_nothing() -> None:
    assert growth(TIMES[:40], memory(0)[:40], ENDS[:5])["verdict"] == "undecided"


def test_runs_that_resemble_their_neighbours_count_less() -> None:
    noise = [random.Random(number).gauss(0, 1) for number in range(20)]
    alone = [(float(x), noise[x]) for x in range(20)]
    in_pairs = [(float(x), noise[x // 4]) for x in range(20)]
    assert slope_of(in_pairs)[1] > 1.5 * slope_of(alone)[1]


@pytest.mark.parametrize(("freedom", "wanted"), [(3, 3.182), (6, 2.447), (18, 2.101)])
def test_quantiles_are_those_of_the_tables(freedom: int, wanted: float) -> None:
    assert t_quantile(freedom) == pytest.approx(wanted, rel=0.02)


@pytest.mark.parametrize(
    ("slope", "interval", "wanted"),
    [(0, 100, "flat"), (50, 20, "flat"), (200, 100, "grows"), (200, 300, "undecided")],
)
def test_a_verdict_says_what_is_excluded(slope: float, interval: float, wanted: str) -> None:
    assert verdict(slope, interval) == wanted
