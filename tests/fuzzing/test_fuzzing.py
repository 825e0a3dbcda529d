"""Random input on every decoder and handler, the corpus again, and the search for crashes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import strategies as st

from benchmarks.fuzz import shares, table
from benchmarks.fuzzing import running
from benchmarks.fuzzing.running import Report, Target, always, in_own_process, outcome, run, saver
from benchmarks.fuzzing.strategies import seeds
from benchmarks.fuzzing.targets import TARGETS
from edgefed.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore:Parsed a serial number which wasn't positive")
"""cryptography warns of certificates that EdgeFed refuses."""

CORPUS = Path(__file__).parent.parent / "corpus"
WIRE = [name for name, target in TARGETS.items() if target.kind == "wire"]
CARRIED = ["token", "credentials"]
"""Files that grant access; ``tests/data`` feeds the readers of samples random input."""


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_read_or_refused(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs, "each target has a corpus"
    with TARGETS[name].open() as read:
        for path in inputs:
            found = outcome(read, path.read_bytes())
            assert path.name.startswith(f"{found}-"), f"{path.name}: {found}"


@pytest.mark.parametrize("name", [*WIRE, *CARRIED])
def test_random_messages_end_in_errors_of_ours(name: str) -> None:
    report = run(TARGETS[name], 80, 0)
    assert report.crashes == []
    assert sum(report.outcomes.values()) == report.inputs >= 80


def fragile(data: bytes) -> None:
    if data >= b"\xf0":
        raise KeyError("x")
    if data < b"\x80":
        raise UsageError("It is small.", code="usage.small")


def fragile_target(inputs: st.SearchStrategy[bytes]) -> Target:
    return Target("fragile", always(fragile), inputs.map(lambda data: [data]))


def test_inputs_are_the_same_for_the_same_seed() -> None:
    def made(seed: int) -> list[bytes]:
        inputs = list[bytes]()
        run(Target("t", always(inputs.append), st.lists(st.binary(), max_size=3)), 50, seed)
        return inputs

    assert made(3) == made(3)
    assert made(3) != made(4)


def test_a_crash_is_shrunk_and_kept(tmp_path: Path) -> None:
    report = run(fragile_target(st.binary(min_size=1, max_size=1)), 3000, 0, saver(tmp_path))
    assert report.outcomes["crash: KeyError"] > 0
    assert len(report.crashes) == 1
    assert report.crashes[0].startswith("fragile 0 ")
    assert "KeyError: 'x'\nb'\\xf0'" in report.crashes[0]
    assert (tmp_path / "crash-KeyError-1").read_bytes() >= b"\xf0"
    assert sum(report.outcomes.values()) == report.inputs
    assert set(report.outcomes) == {"ok", "usage.small", "crash: KeyError"}


def test_an_input_that_takes_too_long_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "HANG", 0.1)

    def hang(data: bytes) -> None:
        while True:
            pass

    report = run(Target("endless", always(hang), seeds.map(lambda seed: [b"x"])), 10, 0)
    assert report.outcomes == {"crash: HungError": 1}
    assert "HungError" in report.crashes[0]


def test_an_error_that_hides_a_lack_of_memory_is_a_crash() -> None:
    def read(data: bytes) -> None:
        raise UsageError("It is large.", code="usage.large") from MemoryError()

    with pytest.raises(AssertionError, match="memory was short"):
        outcome(read, b"")


def test_a_target_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    report = in_own_process("topic", 64, seed=0, corpus=tmp_path)
    assert report.crashes == []
    assert report.outcomes == {"ok": report.inputs}
    assert report.inputs >= 64
    assert (tmp_path / "topic" / "ok-1").exists()


def test_a_process_that_ends_is_a_crash() -> None:
    assert in_own_process("no-such-target", 1, seed=0).crashes


def test_inputs_are_shared_out_and_none_is_lost() -> None:
    given = shares(1000, "wire")
    assert set(given) == set(WIRE)
    assert sum(given.values()) >= 1000
    assert min(given.values()) > 0


def test_the_table_shows_each_target_and_its_refusals() -> None:
    outcomes = {"ok": 7, "wire.malformed": 3}
    report = Report("envelope", 10, 2.0, Counter(outcomes), [], 2**21, (0.25, 4))
    shown = table([report])
    for word in ("envelope", "10", "wire.malformed 3", "2.0", "250.0"):
        assert word in shown
    assert "crash" in table([Report("topic", crashes=["topic 0 1: KeyError"])])
