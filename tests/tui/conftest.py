"""The screen looks the same wherever the tests run, and its style sheets are parsed once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw in colour, even where the environment asks for none."""
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Let all apps share the parsed rules; each would spend half of its start on parsing them."""
    parse, known = Stylesheet._parse_rules, dict[Any, list[RuleSet]]()

    def shared(sheet: Stylesheet, *words: Any, **named: Any) -> list[RuleSet]:
        key = (words, *named.items(), *sheet._variables.items())
        if key not in known:
            known[key] = parse(sheet, *words, **named)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", shared)
        yield
