"""Random input on every decoder and handler, the corpus again, and the harness that feeds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.fuzz import shares, table
from benchmarks.fuzzing.all_targets import TARGETS
from benchmarks.fuzzing.harness import Report, draws_of, in_own_process, outcome, run, saver
from benchmarks.fuzzing.targets import Reader, Target
from edgefed.errors import UsageError

CORPUS = Path(__file__).parent.parent / "corpus"
WIRE = [name for name, target in TARGETS.items() if target.kind == "wire"]
CARRIED = ["token", "credentials"]
"""Files that grant access; ``tests/data`` feeds the readers of samples random input."""


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_read_or_refused(name: str, tmp_path: Path) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs, "each target has a corpus"
    with TARGETS[name].open(tmp_path) as read:
        for path in inputs:
            found = outcome(read, path.read_bytes())
            assert path.name.startswith(f"{found}-"), f"{path.name}: {found}"


@pytest.mark.parametrize("name", [*WIRE, *CARRIED])
def test_random_messages_end_in_errors_of_ours(name: str) -> None:
    report = run(TARGETS[name], 300, 0, lambda found, data: None)
    assert report.crashes == []
    assert sum(report.outcomes.values()) == report.inputs == 300


def test_inputs_are_the_same_for_the_same_seed() -> None:
    for target in TARGETS.values():
        made = [target.make(draws_of(target.name, 3, 7)) for _ in range(2)]
        assert made[0] == made[1], target.name
        assert target.make(draws_of(target.name, 4, 7)) is not None


@contextmanager
def fragile(folder: Path) -> Iterator[Reader]:
    del folder

    def read(data: bytes) -> None:
        if data == b"\x00":
            raise KeyError("x")
        if data < b"\x80":
            raise UsageError("It is small.", code="usage.small")

    yield read


def test_a_crash_is_told_with_its_number_and_kept(tmp_path: Path) -> None:
    target = Target("fragile", lambda draws: draws.randbytes(1), fragile, 1, "wire")
    report = run(target, 2000, 0, saver(tmp_path))
    numbers = [n for n in range(2000) if target.make(draws_of("fragile", 0, n)) == b"\x00"]
    assert report.outcomes["crash: KeyError"] == len(numbers) > 0
    assert f"fragile 0 {numbers[0]}: " in report.crashes[0]
    assert "KeyError" in report.crashes[0]
    assert (tmp_path / "crash-KeyError-1").read_bytes() == b"\x00"
    assert sum(report.outcomes.values()) == 2000
    assert set(report.outcomes) == {"ok", "usage.small", "crash: KeyError"}


def test_a_process_that_ends_is_a_crash() -> None:
    assert in_own_process("no-such-target", 1, seed=0).crashes


def test_inputs_are_shared_out_and_none_is_lost() -> None:
    given = shares(1000, "wire")
    assert set(given) == set(WIRE)
    assert sum(given.values()) >= 1000
    assert min(given.values()) > 0


def test_the_table_shows_each_target_and_its_refusals() -> None:
    report = Report("envelope", 10, 2.0, {"ok": 7, "wire.malformed": 3}, [], 2**21, (0.25, 4))
    told = table([report])
    for word in ("envelope", "10", "wire.malformed 3", "2.0", "250.0"):
        assert word in told
    assert "crash" in table([Report("topic", crashes=["topic 0 1: KeyError"])])
