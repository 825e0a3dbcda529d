"""The targets of a typed line: screens and a few actions by name, or the rounds of a replay."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.tui.keys.actions import actions_of

_OTHERS = {"help": "help", "quit": "quit"}
_SHORT = {"q": "quit", "q!": "quit", "?": "help", "h": "help"}


def jumps() -> dict[str, str]:
    """Return the calls of the app by the names of jump targets."""
    screens = {action.name.removeprefix("screen."): action.call for action in actions_of("screens")}
    return {**screens, **_OTHERS}


def completions(text: str) -> tuple[str, ...]:
    """Return the names that begin with the typed text; all of them for an empty one."""
    word = text.strip().lower()
    return tuple(name for name in jumps() if name.startswith(word))


def jump_to(text: str) -> tuple[str | None, str]:
    """Return the call of a typed name, or None and the reason."""
    word = text.strip().lower()
    known = jumps()
    name = _SHORT.get(word, word)
    if name in known:
        return known[name], ""
    names = completions(word) if word else ()
    if len(names) == 1:
        return known[names[0]], ""
    if names:
        return None, f"several begin so: {', '.join(names)}"
    near = did_you_mean(nearest_name(word, known))
    return None, f"no such screen{near}" if near else f"screens: {' '.join(known)}"


@dataclass(frozen=True)
class JumpTargets:
    """The targets of a line.

    Attributes:
        mark: text before the line.
        completions: returns the names that begin with a text.
        jump_to: returns the app's call for a text, or None and the reason.
        hint: text in place of names where there are none.
    """

    mark: str = ":"
    completions: Callable[[str], tuple[str, ...]] = completions
    jump_to: Callable[[str], tuple[str | None, str]] = jump_to
    hint: str = ""


def round_targets(rounds: Collection[int]) -> JumpTargets:
    """Return the rounds of a replay as targets."""
    known = f"{min(rounds)} to {max(rounds)}"

    def jump_to_round(text: str) -> tuple[str | None, str]:
        word = text.strip()
        if word.isdecimal() and int(word) in rounds:
            return f"replay({int(word)})", ""
        return None, f"no finished round {word}; this recording has {known}"

    hint = "enter goes to the start of the round"
    return JumpTargets(f"Go to round ({known}): ", lambda text: (), jump_to_round, hint)
