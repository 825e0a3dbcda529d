"""The key of each action, its own or the one that the user chose for it, and the names of keys."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from textual.keys import KEY_NAME_REPLACEMENTS

from edgefed.config.fleet.settings import Settings
from edgefed.config.loading.load import Loaded
from edgefed.config.values.layers import Origin, ValueLayer
from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.config.values.problems import BAD_VALUE, UNKNOWN_KEY, Problem, problems_error
from edgefed.tui.keys.actions import ACTIONS, Action, work_together

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
    if not key or any(modifier not in _MODIFIERS for modifier in modifiers):
        near = "" if len(word) < 3 else nearest_name(word, (*_NAMED, *_SHORT, *_CHARACTERS))
        raise ValueError(f'there is no key "{word}"{did_you_mean(near)}')
    if len(key) == 1 and "ctrl" in modifiers:
        key = key.lower()
    elif len(key) == 1 and "shift" in modifiers:
        modifiers.remove("shift")
        key = key.upper()
    name = "+".join((*(modifier for modifier in _MODIFIERS if modifier in modifiers), key))
    return _ONE_CODE.get(name, name)


def _plain(word: str) -> str:
    """Return Textual's name of a key without modifiers; empty if there is none."""
    if len(word) == 1:
        return _character_name(word) if word.isprintable() and not word.isspace() else ""
    lower = word.lower()
    name = _SHORT.get(lower, lower)
    return name if name in _NAMED or name in _CHARACTERS else ""


_TABLE = ("dashboard", "keys")
_BY_NAME = {action.name: action for action in ACTIONS}
_OWN_WORDS: Mapping[str, str] = {}

FIXED = {
    "ctrl+p": "opens the palette of commands",
    "ctrl+c": "copies what is selected",
    "tab": "goes to the next field",
    "shift+tab": "goes to the field before",
}
"""Keys that no action can have, and their functions."""


@dataclass(frozen=True)
class Keymap:
    """The keys of all actions.

    Attributes:
        chosen: the user's keys by the actions' names; each other action has its own.
    """

    chosen: Mapping[str, Keys] = field(default_factory=dict)

    def label(self, name: str) -> str:
        """Return the label of an action's key."""
        keys = self.chosen.get(name)
        return _BY_NAME[name].label if keys is None else keys.label

    def hint(self, *names: str, words: Mapping[str, str] = _OWN_WORDS) -> str:
        """Return actions in the form of a pane's lower border: ``o Sort  w Wide``.

        Args:
            names: of the actions.
            words: by names of actions, in place of their own ones.
        """
        named = ((self.label(name), words.get(name, _BY_NAME[name].word)) for name in names)
        return "  ".join(f"{label} {word}" for label, word in named)

    def bindings(self) -> dict[str, str]:
        """Return the keymap in Textual's form: keys by the ids of bindings."""
        return {name: ",".join(keys.names) for name, keys in self.chosen.items()}

    def types_character(self, name: str) -> bool:
        """Return whether a key of an action types a character into a field."""
        return any(types_character(key) for key in self.names_of(_BY_NAME[name]))

    def names_of(self, action: Action) -> tuple[str, ...]:
        """Return Textual's names of the keys of an action."""
        keys = self.chosen.get(action.name)
        return tuple(action.key.split(",")) if keys is None else keys.names


OWN_KEYS = Keymap()
"""Every action with its own key."""


def read_keymap(written: Mapping[str, str], layer: ValueLayer) -> tuple[Keymap, list[Problem]]:
    """Return the keymap of ``[dashboard.keys]``, and its problems.

    Args:
        written: keys by names of actions.
        layer: their places.
    """
    chosen: dict[str, Keys] = {}
    problems: list[Problem] = []
    for name, text in written.items():
        origin = layer.nearest((*_TABLE, name))
        if name not in _BY_NAME:
            near = nearest_name(name, _BY_NAME) or _by_last_part(name)
            message = f"there is no such action{did_you_mean(near)}"
            problems.append(_problem(origin, name, message, UNKNOWN_KEY, near))
            continue
        try:
            chosen[name] = keys_from(text)
        except ValueError as error:
            problems.append(_problem(origin, name, str(error)))
    keymap = Keymap(chosen)
    for name in chosen:
        origin = layer.nearest((*_TABLE, name))
        problems += [_problem(origin, name, message) for message in _taken(keymap, _BY_NAME[name])]
    return keymap, problems


def checked_keymap(settings: Loaded[Settings]) -> Keymap:
    """Return the keymap of the settings.

    Raises:
        RecipeError: there is no such action or key, or two actions have one key.
    """
    keymap, problems = read_keymap(settings.value.dashboard.keys, settings.layer)
    if problems:
        raise problems_error(problems)
    return keymap


def _taken(keymap: Keymap, action: Action) -> Iterator[str]:
    """Yield the other functions of a key that was chosen for an action; of two chosen, once."""
    names = keymap.names_of(action)
    for key in names:
        if key in FIXED:
            yield f'"{keymap.chosen[action.name].label}" {FIXED[key]}'
    order = list(keymap.chosen)
    for other in ACTIONS:
        shared = set(names) & set(keymap.names_of(other))
        again = other.name in order[: order.index(action.name)]
        if other is not action and shared and work_together(action, other) and not again:
            yield f'"{keymap.label(action.name)}" is the key of {other.name} ({other.word}) too'


def _by_last_part(name: str) -> str:
    """Return the action whose name ends with the written text, such as ``pause``."""
    ends = [known for known in _BY_NAME if known.rpartition(".")[2] == name.rpartition(".")[2]]
    return ends[0] if len(ends) == 1 else ""


def _problem(
    origin: Origin, name: str, text: str, code: str = BAD_VALUE, near: str = ""
) -> Problem:
    hint = "edgefed config schema settings lists the actions" if code == UNKNOWN_KEY else ""
    return Problem(origin, f"dashboard.keys.{name}", text, code, near, hint)
