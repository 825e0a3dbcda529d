"""The screen looks the same wherever the tests run, and is not drawn more often than it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from rich.console import RenderableType
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.geometry import Size
from textual.strip import Strip


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


@pytest.fixture(scope="session", autouse=True)
def drawn_where_read() -> Iterator[None]:
    """Spare apps without a terminal the updates of one, which are half of their work.

    Updates are put off until a test reads the screen, and are then made at once. An error in a
    screen that it does not read fails the test at the end of a step: ``tests.tui.driving`` draws
    the screen then.
    """
    update, strips = Compositor.render_update, Compositor.render_strips
    below = WeakKeyDictionary[Compositor, Any]()

    def put_off(
        made: Compositor, full: bool = False, screen_stack: Any = None, simplify: bool = False
    ) -> RenderableType | None:
        root = made.root
        if full or root is None or not root.app.is_headless:
            return update(made, full, screen_stack, simplify)
        below[made] = screen_stack
        return None

    def read(made: Compositor, size: Size | None = None) -> list[Strip]:
        if made in below:
            visible_screen_stack.set(below.pop(made) or [])
            made._dirty_regions.clear()
        return strips(made, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compositor, "render_update", put_off)
        patch.setattr(Compositor, "render_strips", read)
        yield
