"""The dashboard draws letters where the locale has no symbols."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from edgefed.tui.look.terminal_locale import only_ascii

LOCALES = ("LC_ALL", "LC_CTYPE", "LANG")


@pytest.mark.parametrize(
    ("locale", "letters"),
    [
        ({"LANG": "C"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, True),
        ({"LC_ALL": "POSIX"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LANG": "de_DE@euro"}, True),
        ({"LANG": "C.UTF-8"}, False),
        ({"LANG": "en_US.utf8"}, False),
        ({"LC_ALL": "", "LANG": "de_DE.UTF-8@euro"}, False),
        ({}, False),
    ],
)
def test_a_new_process_knows_its_locale(locale: dict[str, str], letters: bool) -> None:
    """In a process of its own, since Python coerces the C locale when it starts."""
    inherited = {key: value for key, value in os.environ.items() if key not in LOCALES}
    code = (
        "import os; from edgefed.tui.look.terminal_locale import only_ascii as a;"
        "print(a(os.environ))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=inherited | locale, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(letters)
    assert only_ascii(locale) == letters


def test_the_locale_of_characters_goes_before_the_language() -> None:
    assert not only_ascii({"LC_CTYPE": "en_US.UTF-8", "LANG": "C"})
    assert only_ascii({"LC_CTYPE": "C", "LANG": "en_US.UTF-8"})
