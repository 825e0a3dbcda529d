"""Data from device to device: only the receiver reads it, and only from the sender."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import NotAllowedError, WireError
from edgefed.trust.sealed_data import OVERHEAD, SealContext, open_data, seal_data
from edgefed.wire.limits import MAX_SEAL_BYTES
from tests.signed_fleet import Trust

CONTEXT = SealContext("r-1", "r-1-4", "cam-1", "cam-2")


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return Trust(tmp_path_factory.mktemp("trust"))


def test_the_receiver_reads_what_was_sent(trust: Trust) -> None:
    one, two = trust.issue("device", "cam-1"), trust.issue("device", "cam-2")

    @settings(max_examples=30, deadline=None)
    @given(st.binary(max_size=300))
    def check(data: bytes) -> None:
        sealed = seal_data(one, two.certificate, CONTEXT, data)
        assert open_data(two, CONTEXT, sealed) == data
        assert len(sealed) - len(data) <= min(OVERHEAD, MAX_SEAL_BYTES)
        assert len(data) < 8 or data not in sealed

    check()


def test_nobody_else_reads_it_and_no_bit_can_be_changed(trust: Trust) -> None:
    one, two, three = (trust.issue("device", f"cam-{k}") for k in (1, 2, 3))
    sealed = seal_data(one, two.certificate, CONTEXT, b"private")
    for other in (one, three):
        with pytest.raises(WireError) as caught:
            open_data(other, CONTEXT, sealed)
        assert caught.value.code == "wire.sealed"
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(WireError):
            open_data(two, CONTEXT, bytes(changed))
    for short in (b"", sealed[:40], sealed[:-1]):
        with pytest.raises(WireError):
            open_data(two, CONTEXT, short)


@pytest.mark.parametrize("part", ["run", "exchange", "sender", "receiver"])
def test_it_holds_for_its_context_only(trust: Trust, part: str) -> None:
    one, two = trust.issue("device", "cam-1"), trust.issue("device", "cam-2")
    sealed = seal_data(one, two.certificate, CONTEXT, b"private")
    with pytest.raises(WireError):
        open_data(two, replace(CONTEXT, **{part: "cam-3"}), sealed)


def test_a_coordinator_cannot_put_its_own_data_in_their_place(trust: Trust) -> None:
    two, coordinator = trust.issue("device", "cam-2"), trust.issue("coordinator")
    forged = seal_data(coordinator, two.certificate, CONTEXT, b"forged")
    with pytest.raises(WireError):
        open_data(two, CONTEXT, forged)


def test_a_device_of_another_fleet_cannot_take_the_senders_place(
    trust: Trust, tmp_path_factory: pytest.TempPathFactory
) -> None:
    two = trust.issue("device", "cam-2")
    stranger = Trust(tmp_path_factory.mktemp("other")).issue("device", "cam-1")
    cheat = replace(stranger, authority=trust.authority)
    with pytest.raises(WireError):
        open_data(two, CONTEXT, seal_data(cheat, two.certificate, CONTEXT, b"forged"))


def test_data_is_sealed_only_for_the_device_that_is_meant(
    trust: Trust, tmp_path_factory: pytest.TempPathFactory
) -> None:
    one = trust.issue("device", "cam-1")
    stranger = Trust(tmp_path_factory.mktemp("stranger")).issue("device", "cam-2")
    wrong = (trust.issue("device", "cam-3"), trust.issue("coordinator"), stranger)
    for each in wrong:
        with pytest.raises(NotAllowedError) as caught:
            seal_data(one, each.certificate, CONTEXT, b"private")
        assert caught.value.code == "trust.receiver"
