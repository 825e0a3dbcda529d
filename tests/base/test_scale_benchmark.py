"""The computed part of the scale benchmark: real messages, and sums by hand."""

from __future__ import annotations

import pytest

from benchmarks.scale.computed import HEADER, TaskBytes, row, task_bytes

pytestmark = pytest.mark.slow

VALUES = 64 * 333 + 333 + 333 * 10 + 10
"""Of a network with 64 inputs, 333 hidden units and 10 classes."""


def test_a_task_counts_the_bytes_of_every_message_once() -> None:
    plain, coded = task_bytes("fp32"), task_bytes("int8")
    assert plain.values == coded.values == VALUES
    assert plain.down == coded.down > 4 * VALUES, "the weights are fp32 for both"
    assert VALUES / 2 < coded.update < VALUES + 1000
    assert 3 * VALUES < plain.update < 4 * VALUES + 1000
    assert plain.up - plain.update == pytest.approx(coded.up - coded.update, abs=HEADER)
    kinds = {"birth", "task", "need", "chunk", "progress", "reply", "receipt"}
    assert plain.by_kind.keys() == kinds
    assert plain.up + plain.down == sum(plain.by_kind.values()) - plain.by_kind["birth"]


def test_a_round_is_added_up_by_hand() -> None:
    task = TaskBytes(up=1100, down=3000, update=1000, values=500, by_kind={})
    figures = row(2500, task, reply_ms=4.0, site=1000, sum_bytes=5.0)
    assert figures == {
        "devices": 2500,
        "flat: cpu s": pytest.approx(10.0),
        "flat: GB up": pytest.approx(2.75e-3),
        "flat: GB down": pytest.approx(7.5e-3),
        "gateways": 3,
        "coordinator: cpu s": pytest.approx(0.012),
        "coordinator: GB up": pytest.approx(7.8e-6),  # 100 and 2500 bytes, three times
        "coordinator: GB down": pytest.approx(9e-6),
        "gateway: cpu s": pytest.approx(4.0),
        "gateway: GB up": pytest.approx(1.1e-3),
    }
