"""The beginning of a run's id: the run, or the runs that it may mean."""

from __future__ import annotations

import pytest

from edgefed.coordinator.storage.run_names import MOST_NAMED, only_match
from edgefed.errors import UnknownNameError

RUNS = ["r-0012-aa", "r-0011-bb", "r-0001-cc", "r-0001-c"]


def test_an_id_or_an_unambiguous_beginning_is_a_run() -> None:
    assert only_match("r-0012", RUNS) == "r-0012-aa"
    assert only_match("r-0001-c", RUNS) == "r-0001-c"  # although another begins with it
    assert only_match("r-0001-cc", RUNS) == "r-0001-cc"


def test_several_matches_are_named_the_newest_first() -> None:
    with pytest.raises(UnknownNameError) as told:
        only_match("r-001", RUNS)
    assert told.value.message == "'r-001' is the beginning of 2 runs: r-0012-aa, r-0011-bb."
    many = [f"r-{number}" for number in range(20)]
    with pytest.raises(UnknownNameError, match=r"20 runs in /state: r-0, .* and 15 more\.") as told:
        only_match("r", many, "/state")
    assert told.value.message.count("r-") == MOST_NAMED


def test_no_match_says_what_was_looked_for() -> None:
    with pytest.raises(UnknownNameError, match=r"No run r-9 in /state\.") as told:
        only_match("r-9", RUNS, "/state")
    assert told.value.code == "run.unknown"
