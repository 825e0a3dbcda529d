"""The report of a run: one complete, escaped, self-contained page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import zstandard
from typer.testing import CliRunner

from edgefed.advise.advice import answer
from edgefed.advise.race import RaceScore
from edgefed.advise.twin import Twin
from edgefed.cli.main import app
from edgefed.config.loading.write import to_toml
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.process.challenges import Challenges
from edgefed.coordinator.process.request_handler import RequestHandler
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.events.history.summary import RunSummary
from edgefed.report import sections
from edgefed.report.page import report
from edgefed.report.run_data import run_data_of_folder, run_data_of_response
from edgefed.simulator.sweep.plan import SweepCase
from edgefed.transport.inbox import InboxCounts
from edgefed.wire.messages import Request
from tests.cli.commands import edgefed
from tests.coordinator.conftest import MakeWorld
from tests.run_fixture import Ticking, World, recipe, shards

EVIL = "<script>alert('&\"')</script>"
runner = CliRunner()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[MakeWorld]:
    """Make worlds, each in a folder of its own."""
    made: list[World] = []

    def new(plan: Recipe | None = None) -> World:
        made.append(World(tmp_path / f"world-{len(made)}", plan))
        return made[-1]

    yield new
    for each in made:
        each.close()


class Page(HTMLParser):
    """Reads a page and sees that every element is closed.

    Attributes:
        words: the texts.
        tags: how often each element is there.
    """

    VOID = ("meta", "!doctype")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: dict[str, int] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        assert not {name for name, _ in attrs} & {"src", "href", "onload", "onclick"}
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append(data.strip())


def folder_of(here: World) -> Path:
    """Run a world with its events on disk, and return the run's folder."""
    folder = here.store().run_folder(here.run)
    engine = here.engine()
    engine._deps.journal.open(folder / "events.jsonl")
    assert engine.run().status == "finished"
    engine._deps.journal.close()
    return folder


def command(*words: str, state: Path) -> Any:
    return runner.invoke(app, ["--no-config", "--state", str(state), "run", "report", *words])


def test_a_runs_folder_becomes_a_page(world: MakeWorld, tmp_path: Path) -> None:
    here = world(recipe(evaluation={"on": "both"}))
    folder, file = folder_of(here), tmp_path / "page.html"
    told = command(str(folder), "--out", str(file), "--json", state=tmp_path)
    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout) == {"run": here.run, "file": str(file)}
    page = Page(file.read_text())
    assert page.tags["svg"] == 8
    assert {"Accuracy", "Loss", "Bytes per round", "Time per device", "Events"} <= set(page.words)
    assert {each.device for each in here.devices.roster()} <= set(page.words)
    assert f"{here.record.accuracy:.4f}" in page.words
    assert here.record.weights_digest in page.words
    assert f"{len(here.rows)} rounds" in page.words
    assert any("[training]" in words for words in page.words)


def test_a_run_that_followed_an_advice_shows_it(world: MakeWorld, tmp_path: Path) -> None:
    own = recipe(name="yard")
    here = world(own)
    folder, file = folder_of(here), tmp_path / "page.html"
    advised = tmp_path / "advice" / "yard"
    advised.mkdir(parents=True)
    score = RaceScore(SweepCase("fedavg", {}, Recipe()), 0, 3, {1: 0.75}, {})
    made = answer([score], {}, Recipe(), (1,), 4, Twin({}, (), timed=False)).to_json()
    (advised / "advice.json").write_text(json.dumps(made))
    (advised / "recommended.toml").write_text(to_toml(own, comments=False))
    assert command(str(folder), "--out", str(file), state=tmp_path).exit_code == 0
    words = Page(file.read_text()).words
    assert {"advice", "advice, predicted and reached", "0.750", "0.75"} <= set(words)
    assert f"{here.record.accuracy:.4g}" in words
    other = recipe(name="yard", algorithm={"name": "fedprox", "mu": 0.1})
    (advised / "recommended.toml").write_text(to_toml(other, comments=False))
    assert command(str(folder), "--out", str(file), state=tmp_path).exit_code == 0
    assert "advice" not in Page(file.read_text()).words


def test_the_classes_have_a_picture_and_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = shards((9, 6), tested=5)
    here = World(tmp_path / "lab", recipe(evaluation={"on": "both"}), parts)
    data = run_data_of_folder(folder_of(here))
    record = {**data.record, "class_names": ["ant", EVIL, "cow"]}
    text = report(replace(data, record=record))
    page = Page(text)
    assert "<script>" not in text
    assert {"Classes, tested on the coordinator", "Classes, tested on the devices"} <= set(
        page.words
    )
    assert page.words.count("true label") == 2
    assert {"worst device", "10th percentile of devices"} <= set(page.words)
    assert {"ant", EVIL, "cow", "most mistaken for"} <= set(page.words)
    last = here.rows[-1]
    for name in ("balanced_accuracy", "macro_f1", "device_balanced_accuracy"):
        assert f"{last[name]:.4f}" in page.words
    assert "Round 3, 10 held-out samples of 2 devices." in page.words
    assert page.tags["details"] == 1, "the rounds"
    monkeypatch.setattr(sections, "UNFOLDED", 2)
    folded = Page(report(replace(data, record=record)))
    assert folded.tags["details"] == 3
    assert folded.words.count("3 classes, lowest F1 first") == 2
    here.close()


def test_a_run_without_counts_has_no_section_about_classes(world: MakeWorld) -> None:
    here = world(recipe(evaluation={"confusion": False}))
    page = Page(report(run_data_of_folder(folder_of(here))))
    assert not [word for word in page.words if word.startswith("Classes, tested")]


def test_an_event_log_of_before_counts_is_still_read(world: MakeWorld) -> None:
    here = world(recipe())
    folder = folder_of(here)
    lines = (folder / "events.jsonl").read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["kind"] != "confusion"]
    assert len(kept) == len(lines) - 3
    (folder / "events.jsonl").write_text("".join(f"{line}\n" for line in kept))
    data = run_data_of_folder(folder)
    assert (len(data.rounds), data.summary.confusions) == (3, ())
    report(data)


def test_devices_of_different_modes_have_curves_of_their_own(tmp_path: Path) -> None:
    rounds = {"count": 2, "cohort": 2, "test_cohort": 0}
    algorithm = {"name": "fedmoe", "experts": 2}
    folder = tmp_path / "coordinator" / "lab"
    here = World(folder, recipe(algorithm=algorithm, rounds=rounds), shards((5, 9, 6, 4), tested=5))
    page = Page(report(run_data_of_folder(folder_of(here))))
    assert {"known devices", "fitted devices"} <= set(page.words)
    row = here.rows[-1]
    assert row["devices_known"] + row["devices_fitted"] == 4
    here.close()
    shown = edgefed("run", "show", here.run, "--local", state=tmp_path).out
    assert f"fitted accuracy {row['accuracy_fitted']:.4f} on" in " ".join(shown.split())


def test_a_round_that_few_devices_tested_is_said_and_hollow(world: MakeWorld) -> None:
    folder = folder_of(world())
    log = folder / "events.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    counts = {"tested_devices": 1, "all_testers": 4, "tested_labels": 3, "all_labels": 10}
    for event in events:
        if event["kind"] in ("run", "scored"):
            event |= {**counts, "compared": event["round"] < 3}
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    text = report(run_data_of_folder(folder))
    assert "1 of 4 devices · 3 of 10 labels" in text
    assert text.count('r="4" class="line') == 2, "accuracy and loss of round 3"


def test_averaged_data_have_a_section_where_there_are_some(world: MakeWorld) -> None:
    here = world(recipe(algorithm={"name": "fedmix"}))
    page = Page(report(run_data_of_folder(folder_of(here))))
    assert "Averaged data" in page.words
    at = page.words.index("devices that share")
    assert page.words[at + 1 : at + 6 : 2] == ["4", "4", "4"]
    plain = Page(report(run_data_of_folder(folder_of(world()))))
    assert "Averaged data" not in plain.words


def test_a_page_needs_nothing_from_elsewhere(world: MakeWorld) -> None:
    text = report(run_data_of_folder(folder_of(world())))
    assert "<script" not in text
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme:dark" in text


def test_whatever_devices_and_files_say_is_shown_as_it_is(world: MakeWorld) -> None:
    folder = folder_of(world())
    events: list[dict[str, Any]] = [
        {"kind": "device", "device": EVIL, "samples": 3, "labels": [1, 2], "hardware": EVIL},
        {"kind": "reply", "device": EVIL, "exchange": "x", "outcome": "accepted", "bytes": 3},
        {"kind": "reply", "device": EVIL, "exchange": "y", "outcome": "rejected", "reason": EVIL},
        {"kind": "note", "level": "warning", "text": EVIL},
        {"kind": "run", "run": EVIL, "name": EVIL, "status": "failed", "reason": EVIL},
        {"kind": "scored", "run": EVIL, "round": 1, "accuracy": 0.5, EVIL: EVIL},
    ]
    with (folder / "events.jsonl").open("a") as file:
        for event in events:
            file.write(json.dumps({"time": EVIL, **event}) + "\n")
    (folder / "recipe.toml").write_text(f"[\"{EVIL[:8]}\"]\nkey = '''{EVIL}'''\n")
    text = report(run_data_of_folder(folder))
    page = Page(text)
    assert "script" not in page.tags
    assert "<script" not in text
    assert sum(EVIL in words for words in page.words) >= 5


def test_a_page_shows_no_character_that_turns_or_hides_text(world: MakeWorld) -> None:
    folder = folder_of(world())
    turned = "cam\u202egpj\x9b2J\u2066"
    events: list[dict[str, Any]] = [
        {"kind": "device", "device": turned, "samples": 3, "hardware": turned},
        {"kind": "note", "level": "warning", "text": turned},
    ]
    with (folder / "events.jsonl").open("a") as file:
        for event in events:
            file.write(json.dumps({"time": turned, **event}) + "\n")
    text = report(run_data_of_folder(folder))
    assert "cam\ufffdgpj" in text
    assert all(char.isprintable() for char in text if char != "\n")


@pytest.mark.parametrize("lines", [[], ["{}"], ['{"kind": "note", "time": "", "text": "hm"}']])
def test_a_log_of_almost_nothing_makes_a_page(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("".join(f"{line}\n" for line in lines))
    text = report(run_data_of_folder(tmp_path))
    assert "nothing was measured" in Page(text).words
    assert "<b></b>" not in text, "a tile without a value"


def test_a_folder_that_is_no_runs_is_refused(tmp_path: Path) -> None:
    for words in ((str(tmp_path),), ("r-0001", "--local"), ("--local",)):
        told = command(*words, state=tmp_path)
        assert told.exit_code == 5
        assert "run.unknown" in told.stderr


# -- what the coordinator answers -----------------------------------------------------------------


class Nobody:
    """Starts nothing."""

    def start(self, recipe: Recipe, *, paused: bool) -> RunRecord:
        raise NotImplementedError

    def order(self, run: str, action: str) -> str:
        raise NotImplementedError

    def delete(self, run: str) -> None:
        raise NotImplementedError

    def check(self, recipe: Recipe) -> dict[str, Any]:
        raise NotImplementedError

    def evaluate(self, run: str, on: str | None, mode: str, *, best: bool) -> str:
        raise NotImplementedError


def asked(here: World, action: str) -> Any:
    clock = Ticking()
    challenges = Challenges(clock, lambda: "0" * 8)
    requests = RequestHandler(
        "0" * 16,
        here.store(),
        EventJournal("tests", clock),
        Nobody(),
        challenges,
        InboxCounts,
        lambda name: None,
    )
    parts = requests.answer(Request(nonce="0" * 8, action=action, arguments={"run": here.run}))
    assert all(part.ok for part in parts)
    packed = b"".join(part.body for part in parts)
    return json.loads(zstandard.ZstdDecompressor().decompress(packed, max_output_size=1 << 26))


def test_tiles_hold_whatever_is_in_them(world: MakeWorld) -> None:
    here = world()
    params = run_data_of_folder(folder_of(here))
    text = report(replace(params, record={**params.record, "loss": 1.5e30}))
    assert "<b>1.5e+30</b>" in text
    rules = dict(re.findall(r"^(\.tile[^{]*)\{([^}]*)\}", text, re.MULTILINE))
    for text_of_a_tile in (".tile b", ".tile span"):
        assert "overflow-wrap:anywhere" in rules[text_of_a_tile]
        assert "nowrap" not in rules[text_of_a_tile]


def test_the_coordinators_answers_make_the_same_devices_and_curves(world: MakeWorld) -> None:
    here = world()
    local = run_data_of_folder(folder_of(here))
    summary = asked(here, "run.summary")
    assert "rounds" not in summary
    far = run_data_of_response(asked(here, "run.show"), RunSummary.model_validate(summary))
    assert far.rounds == here.rows == list(local.rounds)
    assert far.summary.devices == local.summary.devices
    assert far.recipe == json.loads(here.record.recipe)
    assert far.record["accuracy"] == asdict(here.record)["accuracy"]
    Page(report(far))
