"""Which experts a device is sent, as bytes on the wire, and which it may answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest

from edgefed.algorithms.experts.expert_device_half import EXPERTS
from edgefed.algorithms.experts.expert_records import GATE, MIXTURE, TABLE, role
from edgefed.algorithms.interface.answer import Group
from edgefed.algorithms.interface.base import State
from edgefed.wire.codecs import CODECS
from edgefed.wire.tensors import pack
from tests.algorithms.moe_play import made_answer, merged, moe, shares_known, with_mixtures
from tests.algorithms.play import Players
from tests.run_fixture import CLASSES

K = 4


def sent(half: Any, state: State, players: Players) -> dict[str, list[int]]:
    """Return the numbers of the experts that each device is sent, and check their payloads."""
    exchange = half.plan(state, players.roster, 1)
    found = {}
    for question in exchange.questions:
        numbers = question.params[EXPERTS]
        shared = {name for name in (TABLE, GATE) if name in state.groups}
        assert question.blobs == {each: each for each in {*map(role, numbers), *shared}}
        found[question.device] = numbers
    return found


def test_a_device_is_sent_all_experts_at_first_and_then_those_from_ninety_percent_on() -> None:
    half, players = moe(experts=K, prune=0.8), Players()  # eta / K = 0.2, times 0.9 = 0.18
    state = with_mixtures(
        players.start(half),
        {
            "device-00": (0.181, 0.179, 0.44, 0.2),
            "device-01": (0.0, 0.0, 1.0, 0.0),
            "device-02": (0.25, 0.25, 0.25, 0.25),
        },
    )
    assert sent(half, state, players) == {
        "device-00": [0, 2, 3],
        "device-01": [2],
        "device-02": [0, 1, 2, 3],
        "device-03": [0, 1, 2, 3],
    }
    everything = moe(experts=K)
    assert set(map(tuple, sent(everything, state, players).values())) == {(0, 1, 2, 3)}


def test_an_expert_comes_back_when_its_share_rises_unless_pruned_for_good() -> None:
    for permanent in (False, True):
        half = moe(9, experts=2, prune=0.8, permanent_prune=permanent)  # a half of 0.8: 0.4
        players = Players()
        state = players.start(half)
        exchange = players.planned(half, state)
        low = made_answer(state, "device-00", (1.0, 0.0))
        raw = np.array([0.62, 0.38], np.float32)  # below 0.4, and above 0.36
        low.groups[MIXTURE].arrays["raw"] = raw
        state = merged(half, state, exchange, low)
        assert shares_known(state)["device-00"][1] == pytest.approx(0.0 if permanent else 0.38)
        assert sent(half, state, players)["device-00"] == ([0] if permanent else [0, 1])


def test_at_most_so_many_experts_those_with_the_largest_shares() -> None:
    half, players = moe(experts=K, most_experts=2), Players()
    state = with_mixtures(players.start(half), {"device-01": (0.1, 0.4, 0.1, 0.4)})
    found = sent(half, state, players)
    assert found["device-01"] == [1, 3]
    others = [found[device] for device in ("device-00", "device-02", "device-03")]
    assert all(len(each) == 2 for each in others)
    assert found == sent(half, state, players)
    starts = {tuple(sent(half, replace(state, params={**state.params, "seed": n}), players)
                    ["device-00"]) for n in range(12)}  # fmt: skip
    assert len(starts) > 1, "devices without a mixture begin with different experts"


def test_every_expert_reaches_a_device_at_first_under_a_cap() -> None:
    half = moe(experts=3, most_experts=1)
    players = Players([*Players().parts] * 6)
    found = sent(half, players.start(half), players)
    assert {number for (number,) in found.values()} == {0, 1, 2}


def test_a_tie_of_shares_goes_to_the_lower_number() -> None:
    half, players = moe(experts=K, most_experts=1), Players()
    state = with_mixtures(players.start(half), {"device-00": (0.1, 0.4, 0.4, 0.1)})
    assert sent(half, state, players)["device-00"] == [1]


def test_an_expert_that_nobody_uses_is_not_a_payload() -> None:
    half, players = moe(experts=K, prune=0.9), Players()
    one = {member.device: (0.5, 0.0, 0.5, 0.0) for member in players.roster}
    exchange = players.planned(half, with_mixtures(players.start(half), one))
    assert set(exchange.payloads) == {role(0), role(2), TABLE}
    assert exchange.payloads[TABLE].codec == "fp32"


def test_bytes_are_four_for_each_weight_and_a_header() -> None:
    """The formula of docs/experts.md, for what is sent and for what is answered."""
    half, players = moe(experts=K), Players()
    state = players.start(half)
    exchange = players.planned(half, state)
    for group, payload in exchange.payloads.items():
        arrays = payload.arrays
        specs = [(name, "float32", list(array.shape)) for name, array in arrays.items()]
        header = 8 + len(msgpack.packb(specs))
        count = sum(array.size for array in arrays.values())
        assert len(pack(arrays)) == 4 * count + header
        assert header <= 11 + sum(len(name) + 24 for name in arrays)
        if group == TABLE:
            assert count == CLASSES * K
    (answer, *_) = players.answers(half, exchange)
    sizes = {name: group_bytes(group) for name, group in answer.groups.items()}
    expert = sum(array.nbytes for array in state.groups[role(0)].values())
    assert set(sizes) == {*map(role, range(K)), TABLE, MIXTURE}
    for name, size in sizes.items():
        wanted = {TABLE: 4 * CLASSES * K, MIXTURE: 2 * 4 * K}.get(name, expert)
        assert size <= wanted + 256  # compressed, behind a header


def group_bytes(group: Group) -> int:
    return len(CODECS["fp32"].encode(group.arrays, np.random.default_rng(1)))


# -- answers ------------------------------------------------------------------------------------


def rejected(half: Any, kept: Any, raw: Any = None, drop: str = "", add: str = "") -> str:
    players = Players()
    state = with_mixtures(players.start(half), {"device-00": (0.5, 0.5, 0.0, 0.0)})
    exchange = half.plan(state, players.roster, 1)
    answer = made_answer(state, "device-00", kept)
    if raw is not None:
        answer.groups[MIXTURE].arrays["raw"] = np.asarray(raw, np.float32)
    groups = {name: each for name, each in answer.groups.items() if name != drop}
    if add:
        groups[add] = answer.groups[role(0)]
    reason: str = half.reject_reason(
        exchange, replace(answer, groups=groups), players.trainer.model
    )
    return reason


@pytest.mark.parametrize(
    ("kept", "changes", "reason"),
    [
        ((0.5, 0.5, 0, 0), {}, ""),
        ((1, 0, 0, 0), {}, ""),
        ((0.5, 0.6, 0, 0), {}, "its raw shares are not shares of sum 1"),
        ((0.5, 0.5, 0, 0), {"raw": (1.5, -0.5, 0, 0)}, "its raw shares are not shares of sum 1"),
        ((1.1, 0, 0, 0), {"raw": (1, 0, 0, 0)}, "its kept shares are not shares of sum 1"),
        ((0.5, 0.5, 0, 0), {"drop": role(1)},
         "it does not contain the experts that it says it uses"),
        ((1, 0, 0, 0), {"add": role(1)}, "it does not contain the experts that it says it uses"),
        ((0.5, 0.25, 0.25, 0), {}, "it uses an expert that it was not sent"),
    ],
)  # fmt: skip
def test_an_answer_whose_shares_and_experts_disagree_is_rejected(
    kept: Any, changes: dict[str, Any], reason: str
) -> None:
    assert rejected(moe(experts=K, prune=0.9), kept, **changes) == reason
