"""Remove secrets from texts, and replace names of devices, hosts and people by pseudonyms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

REMOVED = "(removed)"

SECRET_WORDS = r"(?:pass(?:word|wd|phrase)?|secret|token|credentials?|api_?key|private|cookie|auth)"
"""Words in the name of a setting, a variable or a header whose value is a secret."""

LEAST_SECRET = 4
"""Characters below which a secret is not searched for: it would be found in every word."""

_SECRET_NAME = re.compile(rf"{SECRET_WORDS}|(?:^|_)key$", re.IGNORECASE)
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL)
_USERINFO = re.compile(r"(?<=://)[^/\s\"'@]+(?=@)")
_ASSIGNED = re.compile(
    rf"(?P<name>[\w.-]*(?:{SECRET_WORDS}|_key\b)[\w.-]*[\"']?\s*[:=]\s*)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|(?:Bearer|Basic)\s+\S+|[^\s,;}\]]+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(?:Bearer|Basic)\s+[\w.+/=~-]{8,}", re.IGNORECASE)
_OPAQUE = re.compile(r"(?<![\w+=-])(?=[\w+=-]*\d)(?=[\w+=-]*[A-Za-z])[\w+=-]{32,}")
"""Keys, tokens and digests; ids of runs and devices, and words, are shorter."""
_BASE64 = re.compile(
    r"(?<![\w+/])(?=[\w+/]*[a-z])(?=[\w+/]*[A-Z])(?=[\w+/]*\d)[\w+][\w+/]{31,}={0,2}", re.ASCII
)
_ADDRESS = re.compile(
    r"(?<![\w.:])(?:(?:\d{1,3}\.){3}\d{1,3}(?![\w.])|(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{0,4}(?!\w)"
    r"|(?:[0-9a-f]{0,4}:){1,6}:[0-9a-f]{1,4}(?!\w))",
    re.IGNORECASE,
)
_OWN_ADDRESSES = ("127.0.0.1", "0.0.0.0", "::1")


def is_secret_name(name: str) -> bool:
    """Whether the value of a setting, variable or field of this name is a secret."""
    return bool(_SECRET_NAME.search(name))


class Redactor:
    """Redacts the parts of one report: the same name has the same pseudonym in all of them.

    Args:
        secrets: values to remove wherever they occur.
        names: names to replace, by kind, such as ``{"DEVICE": ["cam-1"]}``.
        home: the user's home folder, which becomes ``~``.
        with_names: leave names as they are.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        names: Mapping[str, Iterable[str]] | None = None,
        home: str = "",
        *,
        with_names: bool = False,
    ) -> None:
        spelled = {form for secret in secrets for form in (secret, unquote(secret))}
        self._secrets = _any_of(form for form in spelled if len(form) >= LEAST_SECRET)
        self._home = home.rstrip("/")
        self._with_names = with_names
        self._pseudonyms: dict[str, str] = {}
        self._addresses = 0
        if not with_names:
            for kind, listed in (names or {}).items():
                known = sorted({name for name in listed if name} - set(self._pseudonyms))
                self._pseudonyms |= {n: f"{kind}-{i}" for i, n in enumerate(known, 1)}
        self._names = _any_of(self._pseudonyms, whole=True)

    def text(self, text: str) -> str:
        """Return a text without secrets and names."""
        text = _PEM.sub(REMOVED, text)
        if self._secrets is not None:
            text = self._secrets.sub(REMOVED, text)
        text = _USERINFO.sub(REMOVED, text)
        text = _BEARER.sub(REMOVED, text)
        text = _ASSIGNED.sub(rf"\g<name>{REMOVED}", text)
        text = _OPAQUE.sub(REMOVED, _BASE64.sub(REMOVED, text))
        if self._home:
            text = text.replace(self._home, "~")
        if self._with_names:
            return text
        if self._names is not None:
            text = self._names.sub(lambda match: self._pseudonyms[match[0]], text)
        return _ADDRESS.sub(self._address, text)

    def value(self, value: Any, name: str = "") -> Any:
        """Return a JSON value without secrets and names; the value of a secret's name is removed.

        Args:
            value: the value.
            name: of the field that holds it.
        """
        if isinstance(value, Mapping):
            return {self._key(str(k)): self.value(v, str(k)) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item, name) for item in value]
        if is_secret_name(name) and isinstance(value, str) and value:
            return REMOVED
        return self.text(value) if isinstance(value, str) else value

    def json_lines(self, text: str) -> str:
        """Return lines of JSON redacted value by value; lines that are none as text."""
        return "".join(f"{self._line(line)}\n" for line in text.splitlines())

    def _line(self, line: str) -> str:
        try:
            return json.dumps(self.value(json.loads(line)), ensure_ascii=False)
        except (ValueError, RecursionError):
            return self.text(line)

    def _key(self, key: str) -> str:
        return self._pseudonyms.get(key, key)

    def _address(self, match: re.Match[str]) -> str:
        address = match[0]
        if address in _OWN_ADDRESSES:
            return address
        if address not in self._pseudonyms:
            self._addresses += 1
            self._pseudonyms[address] = f"ADDRESS-{self._addresses}"
        return self._pseudonyms[address]


def _any_of(words: Iterable[str], *, whole: bool = False) -> re.Pattern[str] | None:
    """Return a pattern for any of some words, the longest first; None without words."""
    listed = sorted(words, key=len, reverse=True)
    if not listed:
        return None
    alternatives = "|".join(map(re.escape, listed))
    return re.compile(rf"(?<![\w-])(?:{alternatives})(?![\w-])" if whole else alternatives)
