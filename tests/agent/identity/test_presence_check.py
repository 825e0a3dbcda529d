"""When a birth that does not come back is missed, and when it is not."""

from __future__ import annotations

import math

from device_agent.identity.presence_check import REPEAT, WAIT, PresenceCheck, unheard
from edgefed.config.values.address import Address
from edgefed.wire.messages import Birth

OURS, THEIRS = "0" * 8, "f" * 8


def test_a_birth_that_comes_back_is_not_missed() -> None:
    check = PresenceCheck(OURS)
    assert not check.missed(1000.0)  # no connection yet
    check.connected(10.0)
    assert not check.missed(10.0 + WAIT / 2)
    assert not check.heard(Birth(session=OURS, status="online"))
    assert not check.missed(1000.0)
    assert check.next_due == math.inf


def test_only_our_own_presence_counts() -> None:
    check = PresenceCheck(OURS)
    check.connected(10.0)
    check.heard(Birth(session=THEIRS, status="online"))
    check.heard(Birth(session=OURS, status="lost"))  # our will of an earlier connection
    assert check.missed(10.0 + WAIT)


def test_it_is_missed_again_until_it_comes_back() -> None:
    check = PresenceCheck(OURS)
    check.connected(0.0)
    assert check.missed(WAIT)
    check.silent = True
    assert not check.missed(WAIT + REPEAT / 2)
    assert check.missed(WAIT + REPEAT)
    assert check.heard(Birth(session=OURS, status="online"))
    assert not check.silent
    check.connected(100.0)
    check.disconnected()
    assert not check.missed(1000.0)


def test_the_error_names_who_may_not_write_what() -> None:
    other = unheard(Address("192.0.2.7", 1883, "cam-1", "secret"), "lab", "cam-2")
    assert "device cam-2 of fleet lab" in other.message
    assert "user cam-1" in other.message
    assert "--name cam-1" in other.hint
    same = unheard(Address("192.0.2.7", 1883, "cam-2", "secret"), "lab", "cam-2")
    assert "--name" not in same.hint
    assert "edgefed broker config --acl --fleet lab" in same.hint
    nobody = unheard(Address("192.0.2.7"), "lab", "cam-2")
    assert "a client without a login" in nobody.message
    enrolled = unheard(Address("192.0.2.7", 8884, tls=True), "lab", "cam-2")
    assert "published as the holder of its certificate" in enrolled.message
    assert enrolled.hint.startswith("name the port of devices in --broker")
    assert "secret" not in other.message + other.hint
