"""Notes on the fleet in a few lines: least progress, highest temperature, sums of answers."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from edgefed.events.base.coordinator_states import why_excluded
from edgefed.events.base.method_tables import TableView, table_named
from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.events.methods.expert_tables import ENTROPY, EXPERTS
from edgefed.events.state.attention import devices_there
from edgefed.terminal.units import counted
from edgefed.tui.look.symbols import HOT
from edgefed.tui.look.text_format import clean, cut, sparks
from edgefed.tui.look.theme import MUTED, ORANGE, SKY
from edgefed.tui.state.display_state import Shown
from edgefed.tui.tables.columns import has_supplements

NO_DEVICE = "No device yet. Start its agent: edgefed-agent run"
NONE_RECORDED = "The recording has not come to a device yet."


def no_device(shown: Shown) -> str:
    """Return that there is no device, and advice."""
    return NO_DEVICE if shown.replay is None else NONE_RECORDED


def fleet_notes(shown: Shown, width: int) -> list[Text]:
    """Return the load of the experts, least progress, highest temperature, sums of answers."""
    devices = shown.snapshot.devices if shown.snapshot else ()
    sums = [*_taking_part(shown), *_notes(devices, width)]
    return [note for note in [*_experts(shown, width), *sums] if note.plain]


def _taking_part(shown: Shown) -> list[Text]:
    """Return how many of the devices that are there the run may ask; nothing if it is all."""
    if shown.snapshot is None or not any(map(why_excluded, shown.snapshot.devices)):
        return []
    there = sum(device.state != "lost" for device in shown.snapshot.devices)
    return [Text.assemble(("take part ", MUTED), f"{devices_there(shown.snapshot)} of {there}")]


def _notes(devices: Sequence[DeviceSnapshot], width: int) -> list[Text]:
    name_width = width - 18
    training = [device for device in devices if device.state == "train"]
    warm = [device for device in devices if _measured(device)]
    notes = []
    if len(training) > 1:
        slow = min(training, key=lambda device: (device.fraction, device.device))
        name = cut(clean(slow.device), name_width)
        notes.append(Text.assemble(("behind ", MUTED), f"{name}  {slow.fraction * 100:.0f} %"))
    if warm:
        notes.append(_hottest(warm, width))
    refused = sum(device.rejected for device in devices)
    late = sum(device.late for device in devices)
    if refused or late:
        notes.append(Text.assemble(("answers ", MUTED), f"late {late}  rejected {refused}"))
    return [*notes, *_sharing(devices), *_supplements(devices)]


def _sharing(devices: Sequence[DeviceSnapshot]) -> list[Text]:
    """Return how much averaged data there is, and of how many devices; nothing without any."""
    sharers = [device.shared_entries for device in devices if device.shared_entries]
    if not sharers:
        return []
    whose = counted(len(sharers), "device")
    return [Text.assemble(("means ", MUTED), f"{sum(sharers)} from {whose}")]


def _supplements(devices: Sequence[DeviceSnapshot]) -> list[Text]:
    """Return open bounties, and mixes and noise of all devices; nothing without any."""
    if not any(map(has_supplements, devices)):
        return []
    wanted = sum(device.open_bounties for device in devices)
    added = sum(device.received_mixes + device.noise_samples for device in devices)
    return [Text.assemble(("labels ", MUTED), f"open {wanted}  added {added}")]


def experts_of(shown: Shown) -> TableView | None:
    """Return the table of the run's experts; None without any."""
    return table_named(shown.snapshot.tables, EXPERTS) if shown.snapshot else None


def _experts(shown: Shown, width: int) -> list[Text]:
    """Return the load of the experts; nothing without any."""
    view = experts_of(shown)
    load = [float(row.cells[0] or 0) for row in view.table.rows] if view is not None else []
    if view is None or not any(load):
        return []
    blocks = sparks([share if share >= 0.01 else 0.0 for share in load])
    line = Text.assemble(("experts ", MUTED), (cut(blocks, width - 24), SKY))
    line.append(f"  entropy {view.table.series.get(ENTROPY) or 0.0:.2f}")
    return [line]


def _measured(device: DeviceSnapshot) -> bool:
    """Whether a device's temperature is of now: a lost one had it before it was lost."""
    return device.temperature is not None and device.state != "lost"


def _hottest(warm: Sequence[DeviceSnapshot], width: int) -> Text:
    hot = max(warm, key=lambda device: (device.temperature or 0.0, device.device))
    degrees = hot.temperature or 0.0
    note = Text.assemble(("hottest ", MUTED), cut(clean(hot.device), width - 18))
    note.append(f"  {degrees:.0f} °C", ORANGE if degrees >= HOT else "")
    power = f"  {hot.power:.1f} W" if hot.power is not None else ""
    return note.append(power) if note.cell_len + len(power) <= width else note
