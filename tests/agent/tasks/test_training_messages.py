"""What an agent and its training process tell each other arrives as it was sent."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.tasks import training_messages
from device_agent.tasks.training_data import TrainingData, read_training_data
from device_agent.tasks.training_messages import (
    outcome_fields,
    outcome_from,
    outcome_pieces,
    packed,
    unpacked,
)
from device_agent.tasks.training_process import TrainingProcess
from edgefed.data.base.types import DeviceData
from edgefed.errors import EdgeFedError, WireError
from edgefed.files.samples import PixelScale, Samples
from edgefed.process.clock import SystemClock
from edgefed.worker.outcomes import Outcome

TEXTS = st.text(max_size=8)
ARRAYS = st.dictionaries(
    st.text("abc/", min_size=1, max_size=4),
    st.builds(
        np.ones,
        st.sampled_from([(2, 3), (0, 3), ()]),
        st.sampled_from(["<f4", "<f8", "<i8", "|u1", "|b1"]),
    ),
    max_size=3,
)
OUTCOMES = st.builds(
    Outcome,
    status=st.sampled_from(["ok", "refused", "failed"]),
    reason=TEXTS,
    samples=st.integers(0, 2**40),
    metrics=st.dictionaries(TEXTS, st.floats(), max_size=3),
    blobs=st.dictionaries(TEXTS, st.binary(max_size=9), max_size=3),
    private=st.dictionaries(st.sampled_from(["state", "feedback/delta"]), ARRAYS),
    device_state=st.dictionaries(st.sampled_from(["budget", "gate"]), ARRAYS),
    ledger=st.lists(st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=2)).map(tuple),
    relays=st.dictionaries(TEXTS, st.binary(max_size=9), max_size=3),
    trace=TEXTS,
)


def plain(outcome: Outcome) -> str:
    """Return an outcome as text; the order of a blob's arrays is that of their names."""
    fields = {f.name: getattr(outcome, f.name) for f in dataclasses.fields(outcome)}
    for name in ("private", "device_state"):
        fields[name] = {
            group: {key: (array.dtype.str, array.tolist()) for key, array in sorted(arrays.items())}
            for group, arrays in fields[name].items()
        }
    return repr(fields)


@given(OUTCOMES)
def test_an_outcome_arrives_as_it_was_sent(outcome: Outcome) -> None:
    message = unpacked(packed("done", outcome=outcome_fields(outcome)))
    pieces = map(bytes, outcome_pieces(outcome))
    assert plain(outcome_from(message["outcome"], pieces.__next__)) == plain(outcome)
    assert not list(pieces)


def test_an_outcome_that_comes_too_late_is_read_to_its_end() -> None:
    outcome = Outcome(status="ok", blobs={"delta": b"1"}, private={"state": {"w": np.ones(3)}})
    message = unpacked(packed("done", exchange="given-up", outcome=outcome_fields(outcome)))
    pieces = map(bytes, outcome_pieces(outcome))
    agent: Any = SimpleNamespace(_clock=SystemClock(), _order=None)  # any report would fail
    TrainingProcess._take(agent, message, pieces.__next__)
    assert not list(pieces), "the next message begins here"


def test_what_cannot_be_packed_shows_before_anything_is_sent() -> None:
    outcome = Outcome(status="ok", private={"state": {"w": np.ones(3, np.complex64)}})
    with pytest.raises(WireError, match="complex64"):
        outcome_fields(outcome)


@pytest.mark.parametrize("names", [[None], "ab", [2.5], {"a": 1}])
def test_names_are_a_list_of_texts(names: Any) -> None:
    fields = {**outcome_fields(Outcome(status="ok")), "blobs": names}
    with pytest.raises(TypeError):
        outcome_from(fields, lambda: b"")


def test_pieces_without_an_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_messages, "MAX_BLOB_BYTES", 2**20)
    fields = {**outcome_fields(Outcome(status="ok")), "blobs": ["delta"]}
    with pytest.raises(ValueError, match="pieces of more than"):
        outcome_from(fields, lambda: bytes(2**16))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x81\xa1x\x01"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises((ValueError, EdgeFedError)):
        unpacked(data)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_samples_are_mapped_as_they_were_written(count: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(count)

    def samples(rows: int) -> Samples:
        inputs = rng.integers(0, 256, (rows, 3, 5, 5), dtype=np.uint8)
        columns = {"site": rng.integers(0, 9, rows)}
        return Samples(inputs, rng.integers(0, 4, rows), columns, PixelScale((0.5,), (2.0,)))

    data = DeviceData(samples(9), samples(count), 4, (3, 5, 5), "photos")
    written = TrainingData(data)
    read = read_training_data(written.file.fileno())
    written.close()
    for before, after in ((data.train, read.train), (data.test, read.test)):
        np.testing.assert_array_equal(before.inputs, after.inputs)
        np.testing.assert_array_equal(before.targets, after.targets)
        np.testing.assert_array_equal(before.columns["site"], after.columns["site"])
        assert before.scale == after.scale
    address: Any = read.train.targets.__array_interface__["data"][0]
    assert address % 64 == 0, "torch and numpy read aligned arrays faster"
