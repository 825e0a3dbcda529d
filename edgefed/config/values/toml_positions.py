"""Find the line of each key in a TOML text; ``tomllib`` does not report lines."""

from __future__ import annotations

import json
import re
from bisect import bisect_right

KeyPath = tuple[str | int, ...]
"""Keys from the top table to a value; a number counts the elements of an array from 0."""

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(e)|.)")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, on which each key, table and array element first appears.

    Args:
        text: a TOML document that a parser has already accepted; of any other the answer is
            meaningless.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    """Walks the keys of a document and steps over its values."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._elements: dict[KeyPath, int] = {}

    def document(self) -> None:
        """Note every key of the document."""
        table: KeyPath = ()
        self._step(_BLANK)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._step(_BLANK)

    def _header(self) -> KeyPath:
        """Step over ``[table]`` or ``[[table]]`` and return the path of the table."""
        start = self._at
        brackets = 2 if self._text.startswith("[[", start) else 1
        self._at += brackets
        *parents, last = self._key()
        self._step(_SPACE)
        self._at += brackets
        path = (*self._resolve(parents), last)
        if brackets == 2:
            index = self._elements.get(path, 0)
            self._elements[path] = index + 1
            path = (*path, index)
        self._note(path, start)
        return path

    def _resolve(self, parts: list[str | int]) -> KeyPath:
        """Return the path with, after each array of tables, the number of its newest element."""
        path: KeyPath = ()
        for part in parts:
            path = (*path, part)
            if path in self._elements:
                path = (*path, self._elements[path] - 1)
        return path

    def _key(self) -> list[str | int]:
        """Step over a key, dotted or not, and return its parts."""
        parts: list[str | int] = []
        while True:
            self._step(_SPACE)
            quote = self._text[self._at]
            part = self._step(_STRING if quote in "\"'" else _BARE_KEY)
            parts.append(_unquote(part))
            self._step(_SPACE)
            if not self._text.startswith(".", self._at):
                return parts
            self._at += 1

    def _pair(self, table: KeyPath) -> None:
        """Step over ``key = value``."""
        start = self._at
        path = (*table, *self._key())
        self._note(path, start)
        self._step(_SPACE)
        self._at += 1
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        """Step over a value, noting the keys and elements inside it."""
        self._step(_SPACE)
        first = self._text[self._at]
        if first in "[{":
            self._container(path, "]" if first == "[" else "}")
        else:
            self._step(_STRING if first in "\"'" else _BARE_VALUE)

    def _container(self, path: KeyPath, close: str) -> None:
        """Step over an array or an inline table."""
        self._at += 1
        index = 0
        while True:
            self._step(_BLANK)
            char = self._text[self._at]
            if char in (close, ","):
                self._at += 1
                index += 1
                if char == close:
                    return
            elif close == "}":
                self._pair(path)
            else:
                self._note((*path, index), self._at)
                self._value((*path, index))

    def _step(self, pattern: re.Pattern[str]) -> str:
        """Move past the match of ``pattern`` here, and return it."""
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match.group()

    def _note(self, path: KeyPath, at: int) -> None:
        """Remember the line of a path, and of the tables that it opens on the way."""
        line = bisect_right(self._line_starts, at)
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], line)


def _unquote(part: str) -> str:
    """Return the key that a bare or quoted part of a key spells."""
    if part.startswith("'"):
        return part[1:-1]
    if not part.startswith('"') or "\\" not in part:
        return part.strip('"')
    return str(json.loads(_ESCAPE.sub(_json_escape, part), strict=False))


def _json_escape(match: re.Match[str]) -> str:
    r"""Return TOML's escape as JSON's; they differ in ``\UXXXXXXXX``, ``\xHH`` and ``\e``."""
    code = "1b" if match[3] else match[1] or match[2]
    return json.dumps(chr(int(code, 16)))[1:-1] if code else match[0]
