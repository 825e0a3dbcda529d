"""A token that another program is to be given, and an answer that another authority gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.control.enrolment_client import Applicant, _credentials, enroll
from edgefed.errors import NotAllowedError
from edgefed.process.clock import SystemClock
from edgefed.trust.tokens import Token
from edgefed.wire.enrolment_messages import EnrolmentResponse
from tests.signed_fleet import Trust


def test_a_token_that_names_nobody_is_for_a_device(tmp_path: Path) -> None:
    token = Token(bytes(32), bytes(16), "192.0.2.1", 8884, "plant-a")
    applicant = Applicant(token, "", ("operator", "viewer"), tmp_path)
    with pytest.raises(NotAllowedError) as caught:
        enroll(applicant, SystemClock(), print)
    assert caught.value.code == "enrol.role"
    assert "edgefed-agent enroll" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_an_answer_of_another_authority_than_the_tokens_is_refused(tmp_path: Path) -> None:
    ours, theirs = Trust(tmp_path / "ours"), Trust(tmp_path / "theirs")
    token = Token(ours.authority.public_bytes, bytes(16), "192.0.2.1", 8884, ours.fleet, "cam-1")
    applicant = Applicant(token, "", ("device",), tmp_path)

    def answered(by: Trust, authority: Trust) -> str:
        own = by.issue("device", "cam-1")
        answer = EnrolmentResponse(
            status="enrolled", certificate=own.certificate.der, authority=authority.authority.der
        )
        try:
            return _credentials(applicant, own.keys, answer, by.now).certificate.name
        except NotAllowedError as error:
            return error.code

    assert answered(theirs, theirs) == answered(theirs, ours) == "enrol.answer"
    assert answered(ours, ours) == "cam-1"
