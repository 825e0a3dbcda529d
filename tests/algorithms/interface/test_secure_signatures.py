"""With certificates a coordinator cannot put its own keys in between, nor tell two stories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.interface.exchange import Exchange, Payload
from edgefed.algorithms.secure.secure_phases import FORM
from edgefed.sharing.pairwise_keys import public_key
from edgefed.trust.credentials import Credentials
from edgefed.trust.known_device_keys import KnownKeys
from edgefed.trust.succession import Succession, save_succession
from edgefed.worker.device_credentials import DeviceCredentials
from tests.algorithms.play import bits
from tests.algorithms.secure.test_secure_aggregation import LOST, devices, plain
from tests.algorithms.secure_play import (
    ALL,
    FIT,
    KEYS,
    LISTS,
    SHARES,
    UNMASK,
    Round,
    algorithm,
    question_of,
    refusal,
)
from tests.signed_fleet import Trust

ORDER = [KEYS, SHARES, FIT, LISTS, UNMASK]
ME = "device-03"


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path / "trust")


@pytest.fixture
def signed(trust: Trust) -> Round:
    """A round of devices with certificates."""
    there = devices()
    there.trust = {name: of(trust.issue("device", name)) for name in ALL}
    return Round.of(algorithm(), there)


def of(credentials: Credentials) -> DeviceCredentials:
    return DeviceCredentials(lambda: credentials)


def refused(secure: Round, planned: Exchange) -> str:
    return refusal(secure, planned, question_of(planned, ME))


@pytest.mark.parametrize("moment", ORDER)
def test_the_result_is_the_plain_one(signed: Round, moment: str) -> None:
    exchanges = [
        signed.step(name, LOST if ORDER.index(name) >= ORDER.index(moment) else ())
        for name in ORDER
    ]
    absent = LOST if moment in (KEYS, SHARES, FIT) else ()
    assert bits(signed.half.weights(signed.state)) == bits(signed.half.weights(plain(absent)))
    assert exchanges[3].detail == "secure aggregation, 4 of 5"


def swapped(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Exchange], Exchange]:
    """Return an exchange in which a coordinator tells other keys."""

    def swap(planned: Exchange) -> Exchange:
        ((name, payload),) = planned.payloads.items()
        arrays = change({key: each.copy() for key, each in payload.arrays.items()})
        return replace(planned, payloads={name: Payload(arrays, "fp32")})

    return swap


def own_channel(arrays: dict[str, Any]) -> dict[str, Any]:
    """Put a key of the coordinator in the place of a device's."""
    arrays["channel"][5] = np.frombuffer(public_key(bytes(range(32))), np.uint8)
    return arrays


def unsigned(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: arrays[name] for name in ("mask", "channel", "seed")}


def other_signature(arrays: dict[str, Any]) -> dict[str, Any]:
    arrays["signature.data"][64 * 5 : 64 * 6] = arrays["signature.data"][64 * 6 : 64 * 7]
    return arrays


@pytest.mark.parametrize("change", [own_channel, unsigned, other_signature])
def test_keys_of_the_coordinator_are_not_taken_for_a_devices(signed: Round, change: Any) -> None:
    planned = swapped(change)(signed.until(SHARES))
    reason = refused(signed, planned)
    assert reason.startswith("the keys of device-05 are not its own") or (
        change is unsigned and reason == "the keys of device-00 are not signed"
    )


def test_keys_of_another_fleets_device_are_refused(signed: Round, tmp_path: Path) -> None:
    """The coordinator makes an authority and certificates of its own."""
    other = Trust(tmp_path / "other")
    before = signed.devices.trust["device-05"]
    signed.devices.trust["device-05"] = of(other.issue("device", "device-05"))
    signed.step(KEYS)
    signed.devices.trust["device-05"] = before
    assert "the keys of device-05 are not its own" in refused(signed, signed.plan())


def test_keys_of_another_run_or_session_are_refused(
    signed: Round, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.algorithms.secure_play.RUN", "r-0002-test")
    planned = signed.plan()
    old = {each.device: each for each in signed.answers(planned)}
    signed.devices.private.clear()
    monkeypatch.setattr("tests.algorithms.secure_play.RUN", "r-0001-test")
    answers = signed.answers(planned)
    signed.merge(planned, [old[a.device] if a.device == "device-05" else a for a in answers])
    assert "the keys of device-05 are not its own" in refused(signed, signed.plan())


def test_a_device_without_a_certificate_is_left_out(signed: Round) -> None:
    del signed.devices.trust["device-05"]
    signed.step(KEYS)
    asked = [each.device for each in signed.plan().questions]
    assert asked == [name for name in ALL if name != "device-05"]


def test_a_sum_is_uncovered_only_if_enough_devices_signed_the_same_list(signed: Round) -> None:
    lists = signed.until(LISTS)
    signed.merge(lists, signed.answers(lists))
    planned = signed.plan()
    question = question_of(planned, ME)

    def asking(**params: Any) -> Exchange:
        changed = replace(question, params={**question.params, **params})
        return replace(planned, questions=(changed,))

    other = [name for name in ALL if name != "device-05"]
    assert "another list than it signed" in refused(
        signed, asking(survivors=other, lost=["device-05"])
    )
    few = question.params["signers"][:6]
    assert "fewer than 7 devices signed the list" in refused(signed, asking(signers=few))
    twice = [*few, *few[:4]]
    assert "fewer than 7 devices signed the list" in refused(signed, asking(signers=twice))


def test_a_device_whose_keys_are_replaced_in_mid_round_takes_part(
    signed: Round, trust: Trust
) -> None:
    lists = signed.until(LISTS)
    before = signed.devices.trust["device-05"]
    signed.devices.trust["device-05"] = of(trust.issue("device", "device-05"))
    assert signed.devices.trust["device-05"].certificate != before.certificate
    signed.merge(lists, signed.answers(lists))
    planned = signed.plan()
    signed.merge(planned, signed.answers(planned))
    assert bits(signed.half.weights(signed.state)) == bits(signed.half.weights(plain(())))


def test_a_signature_of_another_list_does_not_count(signed: Round) -> None:
    """The coordinator tells some devices that one was lost, and others that it was not."""
    lists = signed.until(LISTS)
    other = [name for name in ALL if name != "device-05"]
    questions = tuple(
        replace(each, params={**each.params, "devices": other})
        if each.device == "device-00"
        else each
        for each in lists.questions
    )
    signed.merge(lists, signed.answers(replace(lists, questions=questions)))
    planned = signed.plan()
    assert "the signatures of the list of device-00 are not its own" in refused(signed, planned)


def test_devices_with_certificates_uncover_nothing_without_lists(signed: Round) -> None:
    planned = signed.until(LISTS)
    params = {
        "form": FORM,
        "number": 1,
        "survivors": ALL,
        "lost": [],
        "commitments": [],
        "signers": [],
    }
    questions = tuple(replace(each, params=params) for each in planned.questions)
    reason = refused(signed, replace(planned, name=UNMASK, questions=questions))
    assert reason == "in this secure session it has masked its update already"


def test_devices_without_certificates_sign_no_lists() -> None:
    secure = Round.of(algorithm(), devices())
    planned = secure.until(UNMASK)
    params = {"form": FORM, "number": 1, "devices": ALL}
    questions = tuple(replace(each, params=params) for each in planned.questions)
    assert "no certificate to sign with" in refused(
        secure, replace(planned, name=LISTS, questions=questions)
    )


# -- keys that are known --------------------------------------------------------------------------


@pytest.fixture
def knowing(trust: Trust, tmp_path: Path) -> Round:
    """A round of devices that remember each other's keys, from a session before."""
    there = devices()
    issued = {name: trust.issue("device", name) for name in ALL}
    there.trust = {
        name: DeviceCredentials(partial(issued.__getitem__, name), KnownKeys(tmp_path / name))
        for name in ALL
    }
    secure = Round.of(algorithm(), there)
    planned = secure.until(FIT)
    secure.state = secure.half.begin_anew(secure.state, planned)
    return secure


def test_a_second_certificate_for_a_known_device_is_refused(knowing: Round, trust: Trust) -> None:
    """The coordinator has the authority's key, and takes part as one of the devices."""
    liar = trust.issue("device", "device-05")
    knowing.devices.trust["device-05"] = of(liar)
    knowing.step(KEYS)
    reason = refused(knowing, knowing.plan())
    assert reason.startswith("the keys of device-05 are not its own")
    assert "another key than before" in reason


def test_a_known_device_whose_keys_are_replaced_takes_part(knowing: Round, trust: Trust) -> None:
    lists = knowing.until(LISTS)
    before = knowing.devices.trust["device-05"]
    assert isinstance(before, DeviceCredentials)
    old = before.current()
    after = trust.issue("device", "device-05")
    key = after.certificate.public_bytes
    save_succession(
        after.folder, Succession((old.certificate.public_bytes,)).followed_by(old.keys.signing, key)
    )
    knowing.devices.trust["device-05"] = replace(before, current=lambda: after)
    knowing.merge(lists, knowing.answers(lists))
    planned = knowing.plan()
    knowing.merge(planned, knowing.answers(planned))
    assert bits(knowing.half.weights(knowing.state)) == bits(knowing.half.weights(plain(())))
