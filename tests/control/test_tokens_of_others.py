"""A token that another program is to be given."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.clock import SystemClock
from edgefed.control.enrolment_client import Applicant, enroll
from edgefed.errors import NotAllowedError
from edgefed.trust.tokens import Token


def test_a_token_that_names_nobody_is_for_a_device(tmp_path: Path) -> None:
    token = Token(bytes(32), bytes(16), "192.0.2.1", 8884, "plant-a")
    applicant = Applicant(token, "", ("operator", "viewer"), tmp_path)
    with pytest.raises(NotAllowedError) as caught:
        enroll(applicant, SystemClock(), print)
    assert caught.value.code == "enrol.role"
    assert "edgefed-agent enroll" in caught.value.hint
    assert list(tmp_path.iterdir()) == []
