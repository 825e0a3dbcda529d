"""The bottom line: the most important keys, as many as fit completely."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text
from textual import events

from edgefed.events.base.bounty_tables import BOUNTIES
from edgefed.events.methods.expert_tables import EXPERTS
from edgefed.events.methods.matching_table import LAYERS
from edgefed.tui.keys.actions import ACTIONS, Action, Place, actions_of
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.theme import MUTED, SKY
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.key_orders import RESUMABLE, takes_orders

_CALL = "call"

_TABLES = {"screen.labels": BOUNTIES, "screen.experts": EXPERTS, "screen.matching": LAYERS}
"""The table that a screen is about, where it is about one."""

_DEVICE_RANK = 5
"""The rank of the keys that concern one device, as that of an action."""


_LAST = 100
"""The rank of the key of the present screen."""


class KeyLine(Pane):
    """As many keys as fit, in the registry's order; a click has the effect of the key."""

    def __init__(
        self,
        glyphs: Glyphs,
        *,
        read_only: bool,
        starts_runs: bool,
        device_keys: bool,
        id: str,  # noqa: A002
    ) -> None:
        super().__init__(glyphs, id=id)
        self._starts_runs = starts_runs
        self._device_keys = device_keys
        self._read_only = read_only

    def heading(self, shown: Shown) -> str:
        """Return nothing: the line has no border."""
        return ""

    def footing(self, shown: Shown) -> str:
        """Return nothing: the line has no border."""
        return ""

    def face(self, shown: Shown) -> None:
        """Return None: keys work without numbers too."""

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the keys that fit; where not all do, that of the present screen goes first."""
        offered, here = _offered(shown, self._starts_runs), f"screen.{self.app.current_mode}"
        ranks = (_LAST if action.name == here else action.footer for action in offered)
        keys = [(rank, self._key(key, shown)) for rank, key in zip(ranks, offered, strict=True)]
        if self._device_keys:
            keys.append((_DEVICE_RANK, self._keys_of_device(shown)))
        kept: set[int] = set()
        for place in sorted(range(len(keys)), key=lambda place: keys[place][0]):
            width -= keys[place][1].cell_len
            if width < 0:
                break
            kept.add(place)
        return Text(no_wrap=True).join(keys[place][1] for place in sorted(kept))

    async def on_click(self, event: events.Click) -> None:
        """Run the action of the clicked key."""
        call = event.style.meta.get(_CALL)
        if call:
            await self.app.run_action(call)

    def _keys_of_device(self, shown: Shown) -> Text:
        """Return the keys that concern the chosen device, as one part."""
        labels = " ".join(shown.keys.label(action.name) for action in actions_of("device"))
        return Text.assemble(
            (f" {labels} ", f"bold {MUTED if self._read_only else SKY}"),
            ("Device ", MUTED if self._read_only else ""),
        )

    def _key(self, action: Action, shown: Shown) -> Text:
        refused = self._read_only and action.place == "run"
        key = Text.assemble(
            (f" {shown.keys.label(action.name)} ", f"bold {MUTED if refused else SKY}"),
            (f"{word_of(action, shown)} ", MUTED if refused else ""),
        )
        key.stylize(Style(meta={_CALL: f"app.{action.call}"}))
        return key


def _offered(shown: Shown, starts_runs: bool) -> list[Action]:
    """Return the actions of the line: orders to a run, or a new run where none takes orders.

    Screens about a table of the run's method are named in a run that has the table.
    """
    snapshot = shown.latest.snapshot
    tables = {view.table.name for view in snapshot.tables} if snapshot else set()
    run = snapshot.run if snapshot else None
    orders = snapshot is None or (run is not None and takes_orders(run))
    hidden: set[Place] = {"replay"} if shown.replay is None else {"run"}
    if not orders:
        hidden.add("run")
    return [
        action
        for action in ACTIONS
        if action.footer
        and action.place not in hidden
        and not (action.name == "run.new" and (orders or not starts_runs))
        and (action.name not in _TABLES or _TABLES[action.name] in tables)
    ]


def word_of(action: Action, shown: Shown) -> str:
    """Return the word of an action, which follows the state of the run and of the display."""
    run = shown.latest.snapshot.run if shown.latest.snapshot else None
    if action.name == "run.pause" and run is not None and run.status in RESUMABLE:
        return "Resume"
    if action.name == "replay.play" and shown.replay is not None and shown.replay.playing:
        return "Pause"
    if action.name == "view.freeze" and shown.frozen_at is not None:
        return "Go on"
    return action.word
