"""Names of keys: in settings, in Textual, and on the screen."""

from __future__ import annotations

import string
import unicodedata
from dataclasses import dataclass

from textual.keys import KEY_NAME_REPLACEMENTS

from edgefed.config.values.nearest import did_you_mean, nearest_name

_SHORT = {"esc": "escape", "return": "enter", "del": "delete", "ins": "insert"}
_NAMED = (
    "enter", "escape", "space", "tab", "backspace", "delete", "insert", "home", "end", "pageup",
    "pagedown", "up", "down", "left", "right", *(f"f{number}" for number in range(1, 13)),
)  # fmt: skip
_MODIFIERS = ("ctrl", "shift", "alt")
_ONE_CODE = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+left_square_bracket": "escape"}
"""Keys that a terminal sends as another key."""


@dataclass(frozen=True)
class Keys:
    """The keys of one action.

    Attributes:
        names: Textual's names, the first one shown.
        label: of the first one on the screen.
    """

    names: tuple[str, ...]
    label: str


def keys_from(text: str) -> Keys:
    """Return the keys that a user wrote, such as ``P``, ``ctrl+x`` or ``?,f1``.

    Raises:
        ValueError: one of them is not a key; the message names it.
    """
    words = [","] if text.strip() == "," else [word.strip() for word in text.split(",")]
    names = tuple(_name(word) for word in words)
    return Keys(tuple(dict.fromkeys(names)), _label(names[0], words[0]))


def _label(name: str, word: str) -> str:
    """Return how a key that a user wrote is shown: a character as itself, whatever its name."""
    *modifiers, last = name.split("+")
    is_named = len(last) > 1 and last == _character_name(word[-1])
    return "+".join((*modifiers, word[-1])) if is_named else label_of(name)


def label_of(name: str) -> str:
    """Return the label of a key on the screen, by Textual's name of it."""
    *modifiers, last = name.split("+")
    shown = _CHARACTERS.get(last, "esc" if last == "escape" else last)
    return "+".join((*modifiers, shown))


def types_character(name: str) -> bool:
    """Return whether a key types a character into a field, by Textual's name of it."""
    return name == "space" or ("+" not in name and name not in _NAMED)


def _character_name(character: str) -> str:
    if character.isalnum():
        return character
    name = unicodedata.name(character, "").lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


_CHARACTERS = {_character_name(character): character for character in string.punctuation}


def _name(word: str) -> str:
    """Return Textual's name of a key that a user wrote."""
    before, plus, last = word.rpartition("+") if word[-1:] != "+" else (word[:-2], "+", "+")
    modifiers = [modifier.lower() for modifier in before.split("+")] if plus and before else []
    key = _plain(last) if word == "+" or not word.endswith("+") or word.endswith("++") else ""
    if not key or any(each not in _MODIFIERS for each in modifiers):
        near = "" if len(word) < 3 else nearest_name(word, (*_NAMED, *_SHORT, *_CHARACTERS))
        raise ValueError(f'there is no key "{word}"{did_you_mean(near)}')
    if len(key) == 1 and "ctrl" in modifiers:
        key = key.lower()
    elif len(key) == 1 and "shift" in modifiers:
        modifiers.remove("shift")
        key = key.upper()
    name = "+".join((*(each for each in _MODIFIERS if each in modifiers), key))
    return _ONE_CODE.get(name, name)


def _plain(word: str) -> str:
    """Return Textual's name of a key without modifiers; empty if there is none."""
    if len(word) == 1:
        return _character_name(word) if word.isprintable() and not word.isspace() else ""
    lower = word.lower()
    name = _SHORT.get(lower, lower)
    return name if name in _NAMED or name in _CHARACTERS else ""
