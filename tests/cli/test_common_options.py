"""What both command lines share: common options, usage errors as JSON, help, ``--version``."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker.address import LOOPBACK, free_port
from device_agent.commands.cli import app as agent_app
from edgefed.cli.main import app as edgefed_app
from edgefed.terminal.command_line import CommandLine, program
from edgefed.terminal.common_options import CommonOptions
from edgefed.version import VERSION
from tests.cli.commands import Told, edgefed, only
from tests.processes import PATIENCE, clean_environment

PROGRAMS = {"edgefed": edgefed_app, "edgefed-agent": agent_app}


def agent(*words: str | Path, state: Path) -> Told:
    with only({**clean_environment(), "EDGEFED_STATE": str(state)}):
        told = CliRunner().invoke(agent_app, [str(word) for word in words])
    return Told(told.exit_code, told.stdout, told.stderr)


@pytest.mark.parametrize("place", range(3))
def test_a_common_option_counts_wherever_it_stands(place: int) -> None:
    url = f"mqtt://{LOOPBACK}:{free_port()}"
    words = ["run", "list"]
    words[place:place] = ["--broker", url, "--json"]
    told = edgefed(*words)
    assert (told.code, told.out) == (3, "")
    assert url in json.loads(told.err)["error"]["message"]


def test_of_two_values_the_one_nearest_to_the_end_wins() -> None:
    near, group, far = (f"mqtt://{LOOPBACK}:{free_port()}" for _ in range(3))
    edgefed("--broker", far, "run", "--broker", group, "list", "--broker", near).failed(
        3, "broker.unreachable", near
    )
    edgefed("--broker", far, "run", "--broker", group, "list").failed(
        3, "broker.unreachable", group
    )


def test_options_are_typed_again_as_they_were() -> None:
    words = ("--config", "a b.toml", "--broker", "mqtt://u:p@h", "--fleet", "lab", "--state", "s")
    flags = ("--no-config", "--insecure", "--json", "--quiet", "--verbose")
    assert CommonOptions().words() == ()
    assert CommonOptions(
        config=Path("a b.toml"), no_config=True, broker="mqtt://u:p@h", insecure=True,
        fleet="lab", json=True, quiet=True, verbose=True, state=Path("s"), no_color=True,
    ).words() == (*words, *flags, "--no-color")  # fmt: skip


def test_a_next_step_works_as_it_is_printed() -> None:
    typed = CommonOptions(state=Path("my state"), fleet="plant", quiet=True, broker="mqtts://hub")
    assert typed.command("init --host H", fleet="hall-2", broker=None) == (
        "edgefed --fleet hall-2 --state 'my state' init --host H"
    )


def test_what_one_command_was_told_is_forgotten_by_the_next() -> None:
    assert edgefed("config", "show", "--fleet", "lab", "--json").json["settings"]["fleet"]["value"]
    shown = edgefed("config", "show", "--json").json["settings"]["fleet"]
    assert (shown["value"], shown["source"]) == ("default", "default")


def test_the_agent_takes_common_options_before_and_after_its_command(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('name = "cam"\n')
    for words in (
        ("--state", tmp_path, "--config", file, "--json", "status"),
        ("status", "--state", tmp_path, "--config", file, "--json"),
        ("--state", tmp_path / "other", "status", "--state", tmp_path, "--config", file, "--json"),
    ):
        told = agent(*words, state=tmp_path / "unused")
        error = json.loads(told.err)["error"]
        assert (told.code, error["code"]) == (5, "agent.unknown")
        assert f"{tmp_path}/agents" in error["message"]
        assert "cam" in error["message"]


USAGE = [
    ("edgefed", ["status", "--jsn"], "--jsn"),
    ("edgefed", ["stats"], "status"),
    ("edgefed", ["run", "show", "a", "b"], "unexpected extra argument"),
    ("edgefed", ["data", "split"], "--out"),
    ("edgefed", ["run", "start", "--rounds", "many"], "--rounds"),
    ("edgefed", ["run"], "Missing command"),
    ("edgefed-agent", ["run", "--threads", "many"], "--threads"),
    ("edgefed-agent", ["runn"], "run"),
    ("edgefed-agent", [], "Missing command"),
]


@pytest.mark.parametrize(("program", "words", "told"), USAGE)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_with_json_a_usage_error_is_one_json_object_on_stderr(
    program: str, words: list[str], told: str, first: bool
) -> None:
    words = ["--json", *words] if first else [*words, "--json"]
    ended = CliRunner().invoke(PROGRAMS[program], words)
    assert (ended.exit_code, ended.stdout) == (2, "")
    error = json.loads(ended.stderr)["error"]
    assert error["code"] == "usage"
    assert told in error["message"]
    assert error["hint"].endswith("--help")


def has_form(program: str, told: str, errors: str) -> None:
    first, hint = errors.splitlines()
    assert first.startswith("edgefed: error: ")
    assert first.endswith("  [usage]")
    assert told in first
    assert hint.startswith(f"  try: {program} ")
    assert hint.endswith(" --help")


@pytest.mark.parametrize(
    ("program", "words", "told"), [each for each in USAGE if "Missing command" not in each]
)
def test_a_usage_error_has_the_form_of_every_other_error(
    program: str, words: list[str], told: str
) -> None:
    ended = CliRunner().invoke(PROGRAMS[program], words, prog_name=program)
    assert (ended.exit_code, ended.stdout) == (2, "")
    has_form(program, told, ended.stderr)


@pytest.mark.parametrize(("program", "words", "told"), [USAGE[0], USAGE[-2]])
def test_a_console_script_is_named_in_its_usage_errors(
    program: str, words: list[str], told: str
) -> None:
    script = Path(sys.executable).parent / program
    ended = subprocess.run([script, *words], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    has_form(program, told, ended.stderr)


def test_ctrl_c_at_a_question_is_told_like_any_other() -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "edgefed.cli.main", "run", "abort", "r-1"]
    asking = subprocess.Popen(words, stdin=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    assert asking.stderr is not None
    said = asking.stderr.read(len("Abort r-1?"))
    assert said == "Abort r-1?"
    asking.send_signal(signal.SIGINT)
    rest = asking.communicate(timeout=PATIENCE)[1]
    os.close(ours)
    assert asking.returncode == 130
    assert rest.splitlines()[-1] == "edgefed: error: Interrupted.  [interrupted]"


def test_with_json_what_works_and_what_fails_ends_as_without() -> None:
    assert edgefed("algo", "list", "--json").code == 0
    assert edgefed("--json", "algo", "show", "none").code == 5
    assert edgefed("--json", "algo", "--help").code == 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_version_is_an_option_too(program: str) -> None:
    told = CliRunner().invoke(PROGRAMS[program], ["--version"])
    assert (told.exit_code, told.stdout) == (0, f"{program} {VERSION}\n")
    told = CliRunner().invoke(PROGRAMS[program], ["--version", "--json"])
    assert json.loads(told.stdout) == {program: VERSION}


@pytest.mark.parametrize("program", PROGRAMS)
def test_options_alone_are_no_command(program: str) -> None:
    told = CliRunner().invoke(PROGRAMS[program], ["--quiet"])
    assert (told.exit_code, told.stdout) == (2, "")
    assert "Missing command" in told.stderr


@pytest.mark.parametrize(
    ("program", "words", "named"),
    [
        ("edgefed", ["--fleet", "", "status"], "--fleet"),
        ("edgefed", ["status", "--fleet="], "--fleet"),
        ("edgefed", ["run", "abort", "", "--yes"], "argument"),
        ("edgefed", ["device", "show", ""], "argument"),
        ("edgefed-agent", ["run", "--name", ""], "--name"),
        ("edgefed-agent", ["--state=", "run"], "--state"),
    ],
)
def test_an_empty_value_is_refused(program: str, words: list[str], named: str) -> None:
    told = CliRunner().invoke(PROGRAMS[program], words)
    assert (told.exit_code, told.stdout) == (2, "")
    assert f"{named} is empty" in told.stderr


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    told = capsys.readouterr()
    return told.out, told.err


def test_an_answer_is_text_or_json_or_the_file_that_has_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain, as_json, quiet = CommonOptions(), CommonOptions(json=True), CommonOptions(quiet=True)
    for options, expected in ((plain, "one row\n"), (quiet, "one row\n"), (as_json, '{"a": 1}\n')):
        options.answer({"a": 1}, lambda value: "one row" if value["a"] else "", empty="none")
        assert printed(capsys) == (expected, "")
    for options, told in ((plain, ("", "none yet\n")), (as_json, ("[]\n", ""))):
        options.answer([], "a table's head", empty="none yet")
        assert printed(capsys) == told
    for options, out in ((plain, "x.svg\n"), (as_json, '{"a": 1, "file": "x.svg"}\n')):
        options.answer({"a": 1}, "one row", file=Path("x.svg"))
        assert printed(capsys) == (out, "")


def test_a_note_is_for_people_who_want_notes(capsys: pytest.CaptureFixture[str]) -> None:
    for options, note in ((CommonOptions(), "done\n"), (CommonOptions(quiet=True), "")):
        options.note("done")
        assert printed(capsys) == ("", note)
        options.done({"a": 1}, "done")
        assert printed(capsys) == ("", note)
    as_json = CommonOptions(json=True)
    as_json.note("done")
    assert printed(capsys) == ("", "")
    as_json.done({"a": 1}, "done")
    assert printed(capsys) == ('{"a": 1}\n', "")


@pytest.mark.parametrize(("command", "own"), [("list", True), ("pause", False)])
def test_json_is_shown_among_the_options_of_commands_that_print_a_value(
    command: str, own: bool
) -> None:
    told = CliRunner().invoke(edgefed_app, ["run", command, "--help"], terminal_width=100).stdout
    before, _, common = told.partition("Common options")
    assert ("Print JSON" in before, "Print JSON" in common) == (own, not own)


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["one"], ["one"]),
        (["--fleet", "two", "--json", "one"], ["one"]),
        (["--fleet=one", "two"], ["two"]),
        (["--fleet", "one", "group", "one"], ["group"]),
        (["oen"], ["one", "two", "group"]),
        (["--fleet", "one"], ["one", "two", "group"]),
        (["--help"], ["one", "two", "group"]),
    ],
)
def test_only_the_parser_of_the_command_at_hand_is_made(
    words: list[str], made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, group = program("edgefed", help="Lab."), CommandLine()
    for command in ("one", "two"):
        app.command(command)(lambda: None)
        group.command(command)(lambda: None)
    app.add_typer(group, name="group")
    monkeypatch.setattr(sys, "argv", ["edgefed", *words])
    with pytest.raises(SystemExit) as ended:
        app()
    assert ended.value.code == (2 if len(made) == 3 and "--help" not in words else 0)
    commands = [each.name for each in app.registered_commands]
    assert [*commands, *(each.name for each in app.registered_groups)] == made


def test_all_commands_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    app = program("edgefed", help="Lab.")
    for command in ("one", "two"):
        app.command(command)(lambda: None)
    monkeypatch.setattr(sys, "argv", ["edgefed", "one"])
    monkeypatch.setenv("_EDGEFED_COMPLETE", "")
    with pytest.raises(SystemExit):
        app()
    assert len(app.registered_commands) == 2
