"""Whether the locale of the terminal has the dashboard's symbols."""

from __future__ import annotations

from collections.abc import Mapping

_COERCED = "C.UTF-8"
"""The value that Python writes into ``LC_CTYPE`` if the locale is C or not installed (PEP 538)."""


def only_ascii(environment: Mapping[str, str]) -> bool:
    """Return whether the locale is not a UTF-8 one; without any locale, it is taken for one."""
    name = _locale(environment)
    codeset = name.partition("@")[0].partition(".")[2]
    return bool(name) and codeset.lower().replace("-", "") != "utf8"


def _locale(environment: Mapping[str, str]) -> str:
    """Return the locale of characters as the user set it, not as Python coerced it."""
    language = environment.get("LANG", "")
    kind = environment.get("LC_CTYPE", "")
    if kind == _COERCED:
        kind = language or kind
    return environment.get("LC_ALL", "") or kind or language
