"""What each screen must say in each state: what would fill it, that it loads, since when, why."""

from __future__ import annotations

from tests.tui.screenshot_states import StateId

NO_RUN = "No run yet. Start one:"
NO_DEVICE = "Start its agent:"
UNKNOWN = ("run ?", "devices ?")
WAITS = ("Waiting for the coordinator…", "coord ?", *UNKNOWN)
READS = "Reading the runs…"
OLD = ("as of 14:02:31", "For 12 s, numbers from 14:02:31")
START_IT = ("The coordinator does not answer", "Start it: edgefed coordinator", *UNKNOWN)
GONE = ("The coordinator did not answer.", "see its log")

WORDS: dict[StateId, tuple[str, ...]] = {
    ("empty", "overview"): (NO_RUN, NO_DEVICE, "Drawn from the first round that"),
    ("empty", "devices"): (NO_DEVICE,),
    ("empty", "no-match"): ("No device matches 'jetson'. esc clears the filter.",),
    ("empty", "device"): ("No run yet; its rounds are listed here.", "load        —  "),
    ("empty", "device-log"): ("The agent has logged nothing yet.",),
    ("empty", "rounds-map"): ("Drawn when the first device has answered.",),
    ("empty", "classes"): ("a run has them once a round is", 'evaluation.on = "devices"'),
    ("empty", "labels"): ("start one with", "labels.supplement=0.1"),
    ("empty", "experts"): ("start one with", "--algorithm fedmoe"),
    ("empty", "matching"): ("start one with", "--algorithm fedma"),
    ("empty", "runs"): (NO_RUN,),
    ("empty", "comparison"): ("Drawn from the first round that measures accuracy.",),
    ("empty", "new-run"): ("No recipe (*.toml) in .", "defaults", "No past run yet"),
    ("empty", "form"): ("No key has this in it. esc clears.",),
    ("empty", "replay"): (
        "The recording has not come to a run yet.",
        "The recording has not come to a device",
    ),
    ("loading", "overview"): WAITS,
    ("loading", "devices"): ("Devices ?", *WAITS),
    ("loading", "device-log"): ("Asking xavier-07 for its log…",),
    ("loading", "rounds-map"): WAITS,
    ("loading", "classes"): WAITS,
    ("loading", "labels"): WAITS,
    ("loading", "experts"): WAITS,
    ("loading", "matching"): WAITS,
    ("loading", "runs"): ("Runs ?", READS),
    ("loading", "comparison"): (READS,),
    ("loading", "new-run"): ("line3.toml", "Past runs: asking the coordinator…"),
    ("loading", "form"): ("Loading algorithms, models and data sets…",),
    ("stale", "overview"): (*OLD, "from 14:02:31"),
    ("stale", "devices"): OLD,
    ("stale", "device"): OLD,
    ("stale", "rounds-map"): OLD,
    ("stale", "classes"): OLD,
    ("stale", "labels"): OLD,
    ("stale", "experts"): OLD,
    ("stale", "matching"): OLD,
    ("stale", "runs"): (*OLD, *GONE, "Runs as of 14:02:31."),
    ("stale", "comparison"): (*OLD, GONE[0], "Runs from 14:02:31"),
    ("stale", "form"): ("Broker unreachable: connection refused",),
    ("stale", "abort"): ("Connection lost; numbers from 14:02:31.",),
    ("error", "overview"): START_IT,
    ("error", "devices"): START_IT,
    ("error", "device"): ("does not know this device any more.", "shows another."),
    ("error", "device-log"): ("xavier-07 did not answer within 10 s.", "l twice asks again."),
    ("error", "rounds-map"): START_IT,
    ("error", "classes"): START_IT,
    ("error", "labels"): START_IT,
    ("error", "experts"): START_IT,
    ("error", "matching"): START_IT,
    ("error", "runs"): GONE,
    ("error", "comparison"): GONE,
    ("error", "new-run"): ("Past runs are not known", *GONE),
    ("error", "form"): ("Run r-0142 is at work.", "edgefed run finish r-0142"),
    ("error", "replay"): ("No such file or directory.", "Next step: check the path"),
}

UNSAID: dict[StateId, tuple[str, ...]] = {
    ("empty", "form"): ("data.normalize =",),
    ("empty", "replay"): (NO_DEVICE,),
    ("stale", "overview"): ("ETA", "deadline in"),
    ("stale", "form"): ("can be started", "finish or abort it first"),
    ("error", "device"): ("P Pause…",),
}
"""What would be wrong there."""
