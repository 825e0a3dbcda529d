"""``edgefed config``: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from edgefed.cli.support.config import app
from edgefed.config.fleet.alert_settings import AlertSettings

runner = CliRunner()


@pytest.fixture(autouse=True)
def machine(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in the test's own folder, with its own home and no variables of ours."""
    for name in [name for name in os.environ if name.startswith(("EDGEFED_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folders / "home"))
    monkeypatch.chdir(folders / "cwd")
    return folders


def test_show_prints_each_value_and_its_origin(machine: Path) -> None:
    (machine / "cwd/edgefed.toml").write_text('broker = "mqtt://b:1"\n')
    result = runner.invoke(app, ["--fleet", "lab", "show"])
    assert result.exit_code == 0
    assert result.stderr == ""
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["broker", '"mqtt://b:1"', "./edgefed.toml", "line", "1"],
        ["insecure", "false", "default"],
        ["fleet", '"lab"', "flag", "--fleet"],
        ["state", f'"{machine}/home/.local/state/edgefed"', "default"],
        ["memory", "0", "default"],
        ["trackers", "[]", "default"],
        ["user_models", "false", "default"],
        ["certificate_days", "90.0", "default"],
        ["alerts.command", "[]", "default"],
        ["alerts.webhook", "-", "default"],
        ["alerts.lost_share", "0.3", "default"],
        ["alerts.round_seconds", "0.0", "default"],
        ["alerts.bell", "true", "default"],
        ["dashboard.keys", "{}", "default"],
    ]


@pytest.mark.parametrize(
    ("address", "good"),
    [
        ("https://hooks.example/T0/B0?x=1", True),
        ("http://[::1]:8080/x", True),
        ("http://127.0.0.1:80", True),
        ("https://hooks.example/s3cr\x7ft", False),
        ("https://hooks.example/s3crét", False),
        ("https://hööks.example/x", False),
        ("ftp://hooks.example/x", False),
    ],
)
def test_a_webhook_is_an_address_that_can_be_posted_to_as_it_is(address: str, good: bool) -> None:
    if good:
        assert AlertSettings(webhook=address).webhook == address
    else:
        with pytest.raises(ValidationError):
            AlertSettings(webhook=address)


def test_show_hides_what_a_webhook_may_hold_of_secrets(machine: Path) -> None:
    text = '[alerts]\nwebhook = "https://hooks.example/T0/s3cret"\nlost_share = 0.5\n'
    (machine / "cwd/edgefed.toml").write_text(text)
    for words in (["show"], ["show", "--json"]):
        told = runner.invoke(app, words).stdout
        assert "https://hooks.example/…" in told
        assert "s3cret" not in told
    rows = [line.split()[:2] for line in runner.invoke(app, ["show"]).stdout.splitlines()]
    assert ["alerts.lost_share", "0.5"] in rows


def test_check_reports_wrong_alerts(machine: Path) -> None:
    file = machine / "cwd/edgefed.toml"
    file.write_text('[alerts]\nwebhok = "x"\ncommand = "ls"\nwebhook = "https://a:b@c/d"\n')
    result = runner.invoke(app, ["check", str(file)])
    assert result.exit_code == 8
    assert 'alerts.webhok: unknown key; did you mean "webhook"?' in result.stdout
    assert "alerts.command: must be an array" in result.stdout
    assert "alerts.webhook: must be an address without a login" in result.stdout


def test_check_reports_keys_that_the_projects_file_must_not_have(machine: Path) -> None:
    file = machine / "cwd/edgefed.toml"
    file.write_text("user_models = true\n")
    result = runner.invoke(app, ["check", str(file), "--json"])
    assert result.exit_code == 8
    codes = [each["code"] for each in json.loads(result.stdout)["problems"]]
    assert codes == ["config.project"]
    file.rename(machine / "cwd/other.toml")
    assert runner.invoke(app, ["check", "other.toml", "--as", "settings"]).exit_code == 0


def test_check_reports_wrong_keys_of_the_dashboard_with_their_lines(machine: Path) -> None:
    file = machine / "cwd/edgefed.toml"
    text = '[dashboard.keys]\n"run.paus" = "P"\n"run.step" = "nokey"\n"run.abort" = 5\n'
    file.write_text(text)
    result = runner.invoke(app, ["check", str(file)])
    assert result.exit_code == 8
    assert [line.partition("edgefed.toml:")[2] for line in result.stdout.splitlines()] == [
        '2: dashboard.keys.run.paus: there is no such action; did you mean "run.pause"?',
        '3: dashboard.keys.run.step: there is no key "nokey"',
        "4: dashboard.keys.run.abort: must be text, in quotes, got 5",
    ]


def test_show_prints_the_chosen_keys(machine: Path) -> None:
    (machine / "cwd/edgefed.toml").write_text('[dashboard.keys]\n"run.pause" = "P"\n')
    shown = json.loads(runner.invoke(app, ["show", "--json"]).stdout)["settings"]
    assert shown["dashboard.keys.run.pause"]["value"] == "P"
    assert shown["dashboard.keys.run.pause"]["line"] == 2


def test_the_schema_of_settings_lists_the_dashboards_actions() -> None:
    schema = json.loads(runner.invoke(app, ["schema", "settings"]).stdout)
    keys = schema["$defs"]["DashboardSettings"]["properties"]["keys"]["properties"]
    assert keys["run.pause"]["default"] == "p"


def test_the_schema_of_settings_describes_alerts() -> None:
    schema = json.loads(runner.invoke(app, ["schema", "settings"]).stdout)
    described = schema["$defs"]["AlertSettings"]["properties"]
    assert "without a shell" in " ".join(described["command"]["description"].split())
    assert described["lost_share"]["maximum"] == 1


def test_show_a_recipe_as_json(machine: Path) -> None:
    (machine / "cwd/run.toml").write_text("[training]\nepochs = 3\n[model]\nscale = inf\n")
    result = runner.invoke(app, ["show", "run.toml", "--set", "rounds.count=4", "--json"])
    shown = json.loads(result.stdout)
    assert set(shown) == {"settings", "recipe"}
    assert shown["recipe"]["training.epochs"] == {
        "value": 3,
        "source": "run.toml line 2",
        "file": "run.toml",
        "line": 2,
    }
    assert shown["recipe"]["rounds.count"]["source"] == "flag --set rounds.count"
    assert shown["recipe"]["model.scale"]["value"] is None
    assert shown["recipe"]["seed"]["source"] == "default"


def test_show_reports_a_wrong_file_on_stderr(machine: Path) -> None:
    (machine / "cwd/edgefed.toml").write_text("brokr = 1\nstate = 2\n")
    result = runner.invoke(app, ["show"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        'edgefed: error: ./edgefed.toml:1: brokr: unknown key; did you mean "broker"?'
        "  [recipe.unknown_key]",
        "  ./edgefed.toml:2: state: must be text, in quotes, got 2",
    ]
    as_json = runner.invoke(app, ["show", "--json"])
    assert (as_json.exit_code, as_json.stdout) == (2, "")
    assert json.loads(as_json.stderr)["error"]["code"] == "recipe.unknown_key"


def test_show_reports_a_hint(machine: Path) -> None:
    result = runner.invoke(app, ["show", "none.toml"])
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "edgefed: error: none.toml: the file does not exist.  [recipe.missing]",
        "  try: check the path",
    ]


def test_check_lists_every_problem_and_exits_8(machine: Path) -> None:
    (machine / "cwd/run.toml").write_text("[training]\nepocs = 3\nbatch_size = 0\n")
    result = runner.invoke(app, ["check", "run.toml"])
    assert result.exit_code == 8
    assert result.stdout.splitlines() == [
        'run.toml:2: training.epocs: unknown key; did you mean "epochs"?',
        "run.toml:3: training.batch_size: must be at least 1, got 0",
    ]
    as_json = runner.invoke(app, ["check", "run.toml", "--json"])
    report = json.loads(as_json.stdout)
    assert (as_json.exit_code, report["kind"]) == (8, "recipe")
    assert report["problems"][0] == {
        "source": "run.toml line 2",
        "file": "run.toml",
        "line": 2,
        "key": "training.epocs",
        "code": "recipe.unknown_key",
        "message": 'unknown key; did you mean "epochs"?',
        "nearest": "epochs",
    }


def test_check_knows_the_algorithms_keys_too(machine: Path) -> None:
    (machine / "cwd/run.toml").write_text('[algorithm]\nname = "fedavg"\nmu_of_none = 3\n')
    result = runner.invoke(app, ["check", "run.toml"])
    assert result.exit_code == 8
    assert result.stdout == "run.toml:3: algorithm.mu_of_none: unknown key\n"
    (machine / "cwd/run.toml").write_text('[algorithm]\nname = "fedavgg"\n')
    result = runner.invoke(app, ["check", "run.toml"])
    assert result.exit_code == 8
    assert result.stdout.startswith("run.toml:2: algorithm.name: No algorithm 'fedavgg'")


def test_check_reports_a_syntax_error_as_a_problem(machine: Path) -> None:
    (machine / "cwd/run.toml").write_text("a = 1\nb =\n")
    result = runner.invoke(app, ["check", "run.toml"])
    assert result.exit_code == 8
    assert result.stdout == "run.toml:2: not valid TOML: invalid value (column 4)\n"


REFUSED = {
    "algorithm.labels": '[algorithm]\nname = "fedrs"\n[training]\nclass_weights = "balanced"\n',
    "train.labels": '[training]\nloss = "squared_error"\nlabel_smoothing = 0.1\n',
    "train.class_weights": '[data]\nclasses = ["a", "b"]\n[training]\nclass_weights = [1.0]\n',
    "algorithm.loss": '[algorithm]\nname = "fedmix"\n[training]\nloss = "a.b:c"\n',
    "algorithm.model": '[algorithm]\nname = "pfnm"\n[model]\nname = "cnn"\n',
    "algorithm.optimizer": '[algorithm]\nname = "fednova"\n[training]\noptimizer = "adam"\n',
    "algorithm.same_class": '[algorithm]\nname = "naivemix"\nsame_class = true\n'
    '[training]\nloss = "squared_error"\n',
    "personal.algorithm": '[algorithm]\nname = "ifca"\n[personal]\npreset = "fedbn"\n',
    "label.unfit": '[labels]\nsupplement = 1\n[training]\nloss = "squared_error"\n',
    "secure.unfit": '[secure_aggregation]\nenabled = true\n[merging]\nrule = "median"\n',
    "model.start": '[model]\nweights = "a.pth"\nstart = "run:r"\n',
    "model.weights": '[model]\nweights = "default"\n',
    "metric.name": '[evaluation]\nmetrics = ["a.b:accuracy"]\n',
    "evaluation.metric": '[evaluation]\nbest_metric = "acuracy"\n',
    "privacy.budget": '[privacy]\nmechanism = "central"\nepsilon = 0.01\nnoise_multiplier = 0.5\n',
}
"""A recipe that no run takes, by the code of its refusal."""


@pytest.mark.parametrize("code", REFUSED)
def test_check_finds_tables_that_do_not_go_together(machine: Path, code: str) -> None:
    (machine / "cwd/run.toml").write_text(REFUSED[code])
    result = runner.invoke(app, ["check", "run.toml", "--json"])
    found = json.loads(result.stdout)["problems"]
    assert (result.exit_code, [each["code"] for each in found]) == (8, [code])


def test_check_of_a_good_file_leaves_stdout_empty(machine: Path) -> None:
    (machine / "cwd/run.toml").write_text("seed = 3\n")
    result = runner.invoke(app, ["check", "run.toml"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "run.toml: no problems\n"
    quiet = runner.invoke(app, ["check", "run.toml", "--quiet"])
    assert quiet.stderr == ""
    absent = runner.invoke(app, ["check", "none.toml"])
    assert absent.exit_code == 2


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("edgefed.toml", "", "settings"),
        ("lab.toml", 'fleet = "lab"\n', "settings"),
        ("lab.toml", "[recipe.training]\nepochs = 2\n", "settings"),
        ("edgefed-agent.toml", "threads = 2\n", "agent"),
        ("run.toml", "[rounds]\ncount = 2\n", "recipe"),
    ],
)
def test_check_knows_what_kind_of_file_it_is(
    machine: Path, name: str, text: str, kind: str
) -> None:
    (machine / "cwd" / name).write_text(text)
    result = runner.invoke(app, ["check", name, "--json"])
    assert json.loads(result.stdout) == {"file": name, "kind": kind, "problems": []}


def test_check_as_another_kind(machine: Path) -> None:
    (machine / "cwd/dev.toml").write_text("threads = 2\n")
    assert runner.invoke(app, ["check", "dev.toml", "--as", "agent"]).exit_code == 0
    assert runner.invoke(app, ["check", "dev.toml"]).exit_code == 8


def test_path_lists_where_files_are_looked_for(machine: Path) -> None:
    (machine / "cwd/edgefed.toml").write_text("")
    result = runner.invoke(app, ["path"])
    first, second, third = (line.split() for line in result.stdout.splitlines())
    assert first == ["project", f"{machine}/cwd/edgefed.toml", "exists"]
    assert second == ["user", f"{machine}/home/.config/edgefed/config.toml", "absent"]
    assert third[:2] == ["system", "/etc/edgefed/edgefed.toml"]
    only = runner.invoke(app, ["path", "--json", "--config", "lab.toml"])
    assert json.loads(only.stdout) == [
        {"level": "flag", "path": f"{machine}/cwd/lab.toml", "exists": False}
    ]
    none = runner.invoke(app, ["path", "--no-config"])
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "no settings file is read\n")


@pytest.mark.parametrize("kind", ["recipe", "settings", "agent"])
def test_schema_is_json(kind: str) -> None:
    result = runner.invoke(app, ["schema", kind])
    assert json.loads(result.stdout)["type"] == "object"


@pytest.mark.parametrize(
    ("command", "verb"),
    [("show", "Show"), ("check", "Report"), ("path", "Print"), ("schema", "Print")],
)
def test_help_is_imperative_and_has_examples(command: str, verb: str) -> None:
    result = runner.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"{verb} " in result.stdout
    assert f"edgefed config {command}" in result.stdout


RUN = "from edgefed.cli.support.config import app; app()"


def run_python(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own."""
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": root},
    )


def test_the_command_brings_no_torch_textual_or_paho(machine: Path) -> None:
    code = (
        "import sys; from typer.testing import CliRunner;"
        "from edgefed.cli.support.config import app;"
        "result = CliRunner().invoke(app, ['show', '--set', 'mu=1']); assert not result.exit_code;"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    result = run_python(code, cwd=machine / "cwd")
    assert result.returncode == 0, result.stderr
    assert "'typer'" in result.stdout
    for heavy in ("torch", "textual", "paho"):
        assert f"'{heavy}'" not in result.stdout


def test_runs_are_listed_and_backed_up_without_torch(machine: Path) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from edgefed.cli.main import app;"
        "words = [['run', 'list', '--local'], ['backup', 'none'], ['run', 'show', '--local']];"
        "print([CliRunner().invoke(app, each).exit_code for each in words], 'torch' in sys.modules)"
    )
    assert run_python(code, cwd=machine / "cwd").stdout == "[0, 5, 5] False\n"


def test_importing_the_command_reads_no_models(machine: Path) -> None:
    code = (
        "import sys, edgefed.cli.support.config;"
        "print('edgefed.config.recipes.recipe' in sys.modules)"
    )
    assert run_python(code, cwd=machine / "cwd").stdout == "False\n"


def test_a_reader_that_leaves_ends_the_command_quietly(machine: Path) -> None:
    code = (
        "import os, sys\n"
        "read, write = os.pipe()\n"
        "os.close(read)\n"
        "os.dup2(write, 1)\n"
        "os.close(write)\n" + RUN
    )
    result = run_python(code, "schema", cwd=machine / "cwd")
    assert (result.returncode, result.stderr) == (0, "")


def test_a_poor_terminal_gets_question_marks(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / "cwd/run.toml").write_text('[model]\nnote = "naïve → λ"\n', encoding="utf-8")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    result = run_python(RUN, "show", "run.toml", cwd=machine / "cwd")
    assert result.returncode == 0, result.stderr
    assert '"na?ve ? ?"' in result.stdout
