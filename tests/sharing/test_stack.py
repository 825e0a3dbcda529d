"""The stack of all averages, in an order that does not reveal their owners."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.sharing.pooled_means import as_noise, kept_of, runs_of, stack
from edgefed.sharing.types import Entries


def share(*values: float) -> Entries:
    inputs = np.array(values, np.float32)[:, None]
    return Entries(inputs, np.concatenate([inputs, -inputs], axis=1))


SHARES = {"b": share(4, 5), "a": share(1, 2, 3), "c": share(6)}


def test_all_entries_are_there_with_their_targets_whatever_the_order_of_devices() -> None:
    entries, owners = stack(SHARES, 7)
    assert sorted(entries.inputs[:, 0]) == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(entries.targets[:, 1], -entries.inputs[:, 0])
    again, _ = stack(dict(reversed(SHARES.items())), 7)
    assert again.inputs.tobytes() == entries.inputs.tobytes()
    for device, rows in owners.items():
        assert sorted(entries.inputs[rows, 0]) == sorted(SHARES[device].inputs[:, 0])


def test_the_order_tells_nothing_unless_it_is_wanted() -> None:
    orders = {tuple(stack(SHARES, seed)[0].inputs[:, 0]) for seed in range(20)}
    assert len(orders) > 15
    plain, owners = stack(SHARES, 7, shuffle=False)
    assert plain.inputs[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert owners == {"a": [0, 1, 2], "b": [3, 4], "c": [5]}


@pytest.mark.parametrize("merge_entries", [1, 2])
def test_who_knows_the_seed_learns_no_owner(merge_entries: int) -> None:
    """A recipe's seed is easily guessed, so the order must not come of names and seed alone."""
    swapped = {"a": SHARES["b"], "b": SHARES["c"], "c": SHARES["a"]}
    one, other = (stack(each, 7, merge_entries=merge_entries) for each in (SHARES, swapped))
    assert one[0].inputs.tobytes() == other[0].inputs.tobytes()
    assert one[0].targets.tobytes() == other[0].targets.tobytes()
    assert one[1]["a"] == other[1]["c"]


@given(st.integers(2, 9), st.integers(0, 50))
def test_averaging_again_leaves_no_entry_alone(merge_entries: int, seed: int) -> None:
    entries, owners = stack(SHARES, seed, merge_entries=merge_entries)
    assert len(entries) == max(1, 6 // merge_entries)
    sizes = [len(part) for part in np.array_split(np.arange(6), len(entries))]
    assert min(sizes) >= 2
    whole = np.average(entries.inputs[:, 0], weights=sizes)
    assert whole == pytest.approx(3.5)
    assert set().union(*owners.values()) == set(range(len(entries)))


def test_averages_of_averages_are_summed_in_double_precision() -> None:
    """A thousand times the float32 next to 0.1 is no float32, so a sum of such would drift off."""
    tenth = np.full((1000, 2), 0.1, np.float32)
    entries, _ = stack({"a": Entries(tenth, tenth)}, 7, merge_entries=1000)
    assert set(entries.inputs.flat) == set(entries.targets.flat) == {np.float32(0.1)}


def test_noise_takes_the_inputs_place_only() -> None:
    inputs = np.zeros((400, 30), np.float32)
    entries = Entries(inputs, np.ones((400, 2), np.float32))
    noise = as_noise(entries, 3)
    assert noise.inputs.std() == pytest.approx(1, rel=0.02)
    assert noise.inputs.dtype == np.float32
    assert noise.targets is entries.targets
    assert as_noise(entries, 3).inputs.tobytes() == noise.inputs.tobytes()


@given(st.sets(st.integers(0, 40)))
def test_runs_of_rows_say_what_is_left(rows: set[int]) -> None:
    runs = runs_of(sorted(rows))
    assert set(np.flatnonzero(kept_of(runs, 41))) == set(range(41)) - rows
    assert all(start < stop for start, stop in runs)


@pytest.mark.parametrize("runs", [[], [[-3, 0]], [[-3, -1]], [[2, 9]], [[1, 1]]])
def test_runs_outside_the_rows_leave_out_none(runs: list[list[int]]) -> None:
    assert kept_of(runs, 2).all()
