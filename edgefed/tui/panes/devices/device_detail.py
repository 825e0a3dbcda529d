"""The panes of one device: its state, hardware, health, data, and last rounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from rich.text import Text

from edgefed.events.base.coordinator_states import who_paused
from edgefed.events.base.snapshot import DeviceRoundView, DeviceSnapshot
from edgefed.events.state.awaited_devices import consequence, is_awaited
from edgefed.terminal.units import age, ago, counted, duration, size, used_of
from edgefed.tui.look.symbols import DEVICE_LOOKS, HOT, OUTCOME_LOOKS, Glyphs
from edgefed.tui.look.text_format import bar, binned, clean, cut_middle, sparks, trend
from edgefed.tui.look.theme import MUTED, ORANGE, SKY, VERMILLION
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.device_key_orders import words_for_device
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.telemetry_history import Measure
from edgefed.tui.state.trouble import since, why

_WORD = 11
"""Cells of the word before a fact."""

_TIME = 11
"""Cells of the time of a round."""

_BAR, _BEFORE_BAR = 30, 19 + _TIME
"""Largest width of a round's bar, and the cells before it."""

_COURSE = 24
"""Largest width of the course of a reading."""

_READING = 9
"""Cells of a reading before its course, unless it is longer."""

_HINTS = ("device.ping", "device.pause", "detail.log", "detail.next")

_REASON_LINES = 3
_NOT_ASKED = "Not asked in this run yet."
_NO_ROUND = "No run yet; its rounds are listed here."

_CLASS = 12
"""Largest width of the name of a class."""


class DevicePane(Pane):
    """A pane about one device, which may leave the fleet while it is shown."""

    def __init__(self, glyphs: Glyphs, device: str, *, id: str) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self.device = device

    def nothing(self, shown: Shown) -> str:
        """Return that the device has left."""
        return "" if self.view(shown) else "The fleet does not know this device any more."

    def view(self, shown: Shown) -> DeviceSnapshot | None:
        """Return the device, None when it has left."""
        devices = shown.snapshot.devices if shown.snapshot else ()
        return next((view for view in devices if view.device == self.device), None)

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return as many lines about the device as fit."""
        view = self.view(shown)
        lines = list(self.lines(view, shown, width, height)) if view else []
        for line in lines:
            line.truncate(max(1, width), overflow="ellipsis")
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines[: max(1, height)])

    def lines(self, view: DeviceSnapshot, shown: Shown, width: int, height: int) -> Iterable[Text]:
        """Return the lines about the device."""
        raise NotImplementedError


class DeviceStatePane(DevicePane):
    """Its state and reason, its replies, its trust, its traffic and shared data."""

    def heading(self, shown: Shown) -> str:
        """Return the id."""
        return cut_middle(clean(self.device), max(8, self.size.width - 4))

    def footing(self, shown: Shown) -> str:
        """Return the most important keys; none about a device that has left."""
        gone = shown.snapshot is not None and self.view(shown) is None
        words = words_for_device(shown.latest.snapshot, self.device)
        return super().footing(shown) or ("" if gone else shown.keys.hint(*_HINTS, words=words))

    def nothing(self, shown: Shown) -> str:
        """Return that the device has left, and the key to go back."""
        text, other = super().nothing(shown), shown.keys.label("detail.next")
        return f"{text} It is listed again once it connects; {other} shows another." if text else ""

    def lines(self, view: DeviceSnapshot, shown: Shown, width: int, height: int) -> Iterable[Text]:
        """Return one fact a line, the most urgent first."""
        yield _fact("state", _state(view, shown))
        yield from _reason(view, shown, width - _WORD - 1)
        if view.paused_by and view.state != "paused":
            yield _fact("paused", Text(clean(who_paused(view)), ORANGE))
        yield _fact("seen", _ago(shown, view.seen_at))
        yield _fact("replies", _replies(view))
        if view.refused_at:
            yield _fact("refused", _refused(view, shown))
        yield _fact("trust", _trust(view, shown))
        moved = f"▲ {size(view.sent)}   ▼ {size(view.received)}"
        loss = "" if view.loss is None else f"   loss {view.loss:.3f}"
        fits = len(moved) + len(loss) <= width - _WORD - 1
        yield _fact("bytes", f"{moved}{loss}" if fits else moved)
        yield _fact("shared", _shared(view))
        if view.board_model:
            yield _fact("model", Text(clean(view.board_model)))
        if view.mixture:
            yield _fact("experts", _mixture(view))


class DeviceHealthPane(DevicePane):
    """Its board, its versions, and its last readings."""

    def heading(self, shown: Shown) -> str:
        """Return the pane's name."""
        return "Hardware"

    def footing(self, shown: Shown) -> str:
        """Return the time span of its curves."""
        known = shown.telemetry.span(self.device, shown.now)
        return super().footing(shown) or (f"courses of {duration(int(known))}" if known else "")

    def lines(self, view: DeviceSnapshot, shown: Shown, width: int, height: int) -> Iterable[Text]:
        """Return board, versions and readings."""
        yield _fact("board", _known(view.hardware))
        yield _fact("accelerator", _known(view.accelerator))
        yield _fact("agent", _versions(view))
        if view.site:
            yield _fact("site", _known(view.site))
        hot = (view.temperature or 0.0) >= HOT
        temperature = _reading(view.temperature, "{:.0f} °C", ORANGE if hot else "")
        memory = _known("" if view.memory is None else used_of(view.memory, view.memory_total))
        room = width - _WORD - 1
        yield _fact("temperature", _with_course(temperature, shown, view, "temperature", room))
        yield _fact(
            "power", _with_course(_reading(view.power, "{:.1f} W"), shown, view, "power", room)
        )
        if view.joules is not None:
            yield _fact("energy", f"{view.joules:,.0f} J for its replies in this run")
        yield _fact("machine RAM", _with_course(memory, shown, view, "memory", room))
        yield _fact("load", _load(view))
        yield _fact("battery", _reading(view.battery, "{:.0f} %"))


class DeviceDataPane(DevicePane):
    """Its samples by label."""

    def heading(self, shown: Shown) -> str:
        """Return its number of samples."""
        view = self.view(shown)
        return f"Data  {counted(view.samples, 'sample')}" if view else "Data"

    def lines(self, view: DeviceSnapshot, shown: Shown, width: int, height: int) -> Iterable[Text]:
        """Return a bar for each label, or a character for some where there are too many."""
        if not view.labels:
            return [Text("Its owner does not share its labels.", MUTED)]
        if len(view.labels) > height:
            return _binned(view, width)
        names = [_class(view, label) for label in range(len(view.labels))]
        wide = min(_CLASS, max(map(len, names)))
        top = max(view.labels) or 1
        room = max(4, width - wide - 9)
        return [
            Text.assemble(
                f"{cut_middle(name, wide):<{wide}}  ",
                ("█" * max(round(count / top * room), int(count > 0)), SKY),
                (f" {count}", "" if count else MUTED),
            )
            for name, count in zip(names, view.labels, strict=True)
        ]


class DeviceRoundsPane(DevicePane):
    """Its last rounds, the newest first: the outcomes, and the durations."""

    def heading(self, shown: Shown) -> str:
        """Return in how many of its rounds it was accepted."""
        view = self.view(shown)
        if not view or not view.rounds:
            return "Rounds"
        accepted = sum(reply.outcome == "accepted" for reply in view.rounds)
        return f"Rounds  {accepted} of {len(view.rounds)} accepted"

    def lines(self, view: DeviceSnapshot, shown: Shown, width: int, height: int) -> Iterable[Text]:
        """Return a line for each round."""
        if not view.rounds:
            return [Text(_NOT_ASKED if shown.run else _NO_ROUND, MUTED)]
        slowest = max(reply.seconds for reply in view.rounds) or 1.0
        room = min(_BAR, width - _BEFORE_BAR)
        return [_round(reply, slowest, room) for reply in reversed(view.rounds)]


def _fact(word: str, value: Text | str) -> Text:
    return Text.assemble((f"{word:<{_WORD}} ", MUTED), value)


def _dash() -> Text:
    return Text("—", MUTED)


def _known(text: str) -> Text:
    return Text(clean(text)) if text else _dash()


def _reading(value: float | None, form: str, colour: str = "") -> Text:
    return _dash() if value is None else Text(form.format(value), colour)


def _load(view: DeviceSnapshot) -> Text:
    """Return the load of processor and GPU, as far as they are known."""
    shares = (("CPU", view.cpu), ("GPU", view.gpu))
    known = [f"{name} {share:.0f} %" for name, share in shares if share is not None]
    return Text("  ".join(known)) if known else _dash()


def _with_course(
    now: Text, shown: Shown, view: DeviceSnapshot, measure: Measure, room: int
) -> Text:
    """Return a reading with its course over the last minutes, from its least to its largest."""
    before = max(_READING, now.cell_len) + 1
    columns = min(_COURSE, room - before)
    course = shown.telemetry.course(view.device, measure, shown.now, columns)
    if len({value for value in course if value is not None}) < 2:
        return now
    now.append(" " * (before - now.cell_len))
    return now.append(trend(course), SKY)


def _ago(shown: Shown, stamp: str) -> Text:
    passed = shown.since(stamp)
    return _dash() if passed is None else Text(ago(passed.total_seconds()))


def _state(view: DeviceSnapshot, shown: Shown) -> Text:
    look = DEVICE_LOOKS[view.state]
    line = Text.assemble((f"{look.symbol} {view.state}", look.colour))
    if 0 < view.fraction < 1:
        line.append(f"  {view.fraction * 100:.0f} %")
    passed = shown.since(view.state_since or since(view))
    if passed is not None:
        stamp = shown.time_of(view.state_since or since(view))
        line.append(f"  {age(passed.total_seconds())} since {stamp}")
    return line


def _reason(view: DeviceSnapshot, shown: Shown, width: int) -> Iterator[Text]:
    """Yield why it is in trouble, in lines of ``width`` cells; and the consequence for a round."""
    run = shown.run
    text = why(view)
    if view.state in ("lost", "silent") and run is not None and is_awaited(view, run):
        text = f"{text}; {consequence(run, shown.now)}"
    lines = wrap(clean(text), max(8, width), max_lines=_REASON_LINES, placeholder="…")
    for index, line in enumerate(lines or ["—"]):
        yield _fact("" if index else "reason", Text(line, ORANGE if lines else MUTED))


def _replies(view: DeviceSnapshot) -> str:
    """Return how many were accepted, and how many were not, if any."""
    counts = ((view.late, "late"), (view.rejected, "rejected"))
    return ", ".join([f"{view.accepted} accepted", *(f"{n} {word}" for n, word in counts if n)])


def _refused(view: DeviceSnapshot, shown: Shown) -> Text:
    """Return when its reply was refused, and why unless that is its reason."""
    same = view.refused_reason in why(view)
    reason = "" if same else f"  {clean(view.refused_reason)}"
    return Text(f"at {shown.time_of(view.refused_at)}{reason}", VERMILLION)


def _versions(view: DeviceSnapshot) -> Text:
    """Return the versions of agent and torch, as far as they are known."""
    torch = f"torch {view.torch}" if view.torch else ""
    return _known(", ".join(filter(None, (view.agent, torch))))


def _trust(view: DeviceSnapshot, shown: Shown) -> Text:
    colour = {"trusted": "", "suspect": ORANGE, "quarantined": VERMILLION}[view.standing]
    line = Text.assemble(f"{view.trust:.2f}  ", (view.standing, colour))
    if view.standing != "trusted" and view.trust_since:
        line.append(f" since {shown.time_of(view.trust_since)}")
    return line.append(f"  {clean(view.trust_reason)}" if view.trust_reason else "", MUTED)


def _shared(view: DeviceSnapshot) -> Text:
    """Return the data that the device shared beside its updates, and its label supplements."""
    parts = []
    if view.shared_entries:
        means = counted(view.shared_entries, "mean")
        parts.append(f"{means} of {view.shared_group}+ samples, {size(view.shared_bytes)}")
    if view.open_bounties:
        parts.append(counted(view.open_bounties, "open bounty", "open bounties"))
    if view.received_mixes or view.noise_samples:
        parts.append(f"{view.received_mixes} mixes and {view.noise_samples} noise received")
    return Text("; ".join(parts)) if parts else Text("nothing beside its updates", MUTED)


def _mixture(view: DeviceSnapshot) -> Text:
    shares = [f"e{expert} {share:.2f}" for expert, share in enumerate(view.mixture)]
    return Text("  ".join(shares))


def _class(view: DeviceSnapshot, label: int) -> str:
    return clean(view.class_names[label]) if label < len(view.class_names) else str(label)


def _binned(view: DeviceSnapshot, width: int) -> list[Text]:
    present = sum(count > 0 for count in view.labels)
    most = max(range(len(view.labels)), key=view.labels.__getitem__)
    return [
        Text(sparks(binned(view.labels, max(1, width))), SKY),
        Text(f"labels 0 to {len(view.labels) - 1}: {present} present", MUTED),
        Text(f"most frequent: {_class(view, most)}, {view.labels[most]}", MUTED),
    ]


def _round(reply: DeviceRoundView, slowest: float, room: int) -> Text:
    look = OUTCOME_LOOKS[reply.outcome]
    line = Text.assemble(f"r{reply.round:<5}", (f"{look.symbol} {reply.outcome:<9}", look.colour))
    if reply.seconds <= 0:
        return line.append("—".rjust(_TIME), MUTED)
    full, _ = bar(reply.seconds / slowest, room)
    return line.append(f"{duration(reply.seconds):>{_TIME}} ").append(full, SKY)
