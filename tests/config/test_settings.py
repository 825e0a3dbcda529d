"""Settings: precedence of the levels, and the origin of each value."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from device_agent.identity.owners_policy import owners_policy
from edgefed.config.fleet.alert_settings import ALERT_PARTS
from edgefed.config.fleet.settings_files import places
from edgefed.config.loading.load import Flag, load_agent_settings, load_recipe, load_settings
from edgefed.errors import RecipeError
from edgefed.sharing.policy import Policy
from tests.config.conftest import MakeAround

LEVELS = ("flag", "environment", "project", "user", "system", "default")


@pytest.mark.parametrize("strongest", range(len(LEVELS)))
def test_each_level_stands_over_the_next(folders: Path, around: MakeAround, strongest: int) -> None:
    there = LEVELS[strongest:]
    user = folders / "home/.config/edgefed/config.toml"
    files = {
        "project": folders / "cwd/edgefed.toml",
        "user": user,
        "system": folders / "etc/edgefed.toml",
    }
    for level, file in files.items():
        if level in there:
            file.write_text(f'\nfleet = "{level}"\n')
    variables = {"EDGEFED_FLEET": "environment"} if "environment" in there else {}
    flags = [Flag("--fleet", "fleet", "flag" if "flag" in there else None)]
    loaded = load_settings(around(**variables), flags)
    assert loaded.value.fleet == there[0]
    assert (
        str(loaded.origin("fleet"))
        == {
            "flag": "flag --fleet",
            "environment": "environment EDGEFED_FLEET",
            "project": "./edgefed.toml line 2",
            "user": f"{user} line 2",
            "system": f"{files['system']} line 2",
            "default": "default",
        }[there[0]]
    )


def test_values_of_different_levels_come_together(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed.toml").write_text('broker = "mqtt://b:1"\n')
    loaded = load_settings(around(EDGEFED_FLEET="lab"))
    rows = [(one.key, str(one.value), str(one.origin)) for one in loaded.effective()]
    assert rows == [
        ("broker", "mqtt://b:1", "./edgefed.toml line 1"),
        ("insecure", "False", "default"),
        ("fleet", "lab", "environment EDGEFED_FLEET"),
        ("state", str(folders / "home/.local/state/edgefed"), "default"),
        ("memory", "0", "default"),
        ("trackers", "()", "default"),
        ("user_models", "False", "default"),
        ("certificate_days", "90.0", "default"),
        ("alerts.command", "()", "default"),
        ("alerts.webhook", "None", "default"),
        ("alerts.lost_share", "0.3", "default"),
        ("alerts.round_seconds", "0.0", "default"),
        ("alerts.bell", "True", "default"),
        ("dashboard.keys", "{}", "default"),
    ]


def test_a_variable_sets_a_key_of_a_table(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed.toml").write_text("[alerts]\nlost_share = 0.5\nround_seconds = 9\n")
    variables = {"EDGEFED_ALERTS__LOST_SHARE": "0.7", "EDGEFED_ALERTS__COMMAND": '["page", "me"]'}
    alerts = load_settings(around(**variables)).value.alerts
    assert (alerts.lost_share, alerts.round_seconds) == (0.7, 9.0)
    assert alerts.command == ("page", "me")


def test_what_the_command_of_an_alert_is_told_is_no_unknown_variable(around: MakeAround) -> None:
    told = {f"EDGEFED_ALERT_{part}": "x" for part in ALERT_PARTS}
    assert load_settings(around(**told)).value.fleet == "default"
    with pytest.raises(RecipeError, match="unknown variable"):
        load_settings(around(EDGEFED_ALERT_OTHER="x"))


def test_config_replaces_every_other_file(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed.toml").write_text('fleet = "project"\nbroker = "mqtt://b:1"\n')
    (folders / "cwd/lab.toml").write_text('fleet = "lab"\n')
    for made in (around(config=Path("lab.toml")), around(EDGEFED_CONFIG="lab.toml")):
        loaded = load_settings(made)
        assert (loaded.value.fleet, loaded.value.broker) == ("lab", None)
        assert str(loaded.origin("fleet")) == "lab.toml line 1"


def test_the_file_that_config_names_must_be_there(around: MakeAround) -> None:
    with pytest.raises(RecipeError, match=r"lab\.toml: the file does not exist"):
        load_settings(around(config=Path("lab.toml")))


def test_no_config_reads_no_file(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed.toml").write_text("not toml")
    for made in (around(no_config=True), around(EDGEFED_NO_CONFIG="1")):
        assert load_settings(made).value.fleet == "default"
        assert places("edgefed", made) == ()


def test_a_file_that_is_there_but_unusable_is_an_error(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed.toml").mkdir()
    with pytest.raises(RecipeError) as caught:
        load_settings(around())
    assert caught.value.code == "recipe.unreadable"


@pytest.mark.parametrize("program", ["edgefed", "edgefed-agent"])
@pytest.mark.parametrize(
    ("mode", "said"),
    [(0o646, "can be written by everybody"), (0o664, "can be written by a group"), (0o644, "")],
)
def test_a_project_file_that_others_can_write_is_refused(
    folders: Path,
    around: MakeAround,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    mode: int,
    said: str,
) -> None:
    def unknown(number: int) -> grp.struct_group:
        raise KeyError(number)

    monkeypatch.setattr(grp, "getgrgid", unknown)  # so that it is nobody's own group
    load = load_settings if program == "edgefed" else load_agent_settings
    file = folders / "cwd" / f"{program}.toml"
    file.write_text('fleet = "mine"\n')
    file.chmod(mode)
    if not said:
        assert load(around()).value.fleet == "mine"
        return
    with pytest.raises(RecipeError) as caught:
        load(around())
    assert caught.value.code == "config.owner"
    assert caught.value.message == f"./{program}.toml: {said}, and is not read."
    assert load(around(config=file)).value.fleet == "mine"  # it is asked for


def test_a_project_file_of_another_owner_is_refused(
    folders: Path, around: MakeAround, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folders / "cwd/edgefed.toml"
    file.write_text("[recipe.rounds]\ncount = 3\n")
    owner, user = os.geteuid(), os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)
    for load in (load_settings, lambda around: load_recipe(None, around)):
        with pytest.raises(RecipeError) as caught:
            load(around())
        assert caught.value.code == "config.owner"
        name = pwd.getpwuid(owner).pw_name
        assert caught.value.message == f"./edgefed.toml: belongs to {name}, and is not read."


def test_a_group_that_has_only_this_user_may_write_a_project_file(
    folders: Path, around: MakeAround, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folders / "cwd/edgefed.toml"
    file.write_text('fleet = "mine"\n')
    file.chmod(0o664)
    me = pwd.getpwuid(os.geteuid()).pw_name

    def with_group(name: str, members: list[str], others: list[str]) -> bool:
        group = grp.struct_group((name, "x", file.stat().st_gid, members))
        ids = (os.geteuid(), file.stat().st_gid)
        users = [pwd.struct_passwd((each, "x", *ids, "", "/", "")) for each in (me, *others)]
        monkeypatch.setattr(grp, "getgrgid", lambda number: group)
        monkeypatch.setattr(pwd, "getpwall", lambda: users)
        try:
            return load_settings(around()).value.fleet == "mine"
        except RecipeError as error:
            assert error.code == "config.owner"
            return False

    assert with_group(me, [], [])
    assert with_group(me, [me], [])
    assert with_group("lab", [me], [])
    assert not with_group(me, ["eve"], [])
    assert not with_group("lab", [me, "eve"], [])
    assert not with_group("users", [], ["eve"])


def test_a_project_file_starts_no_program_and_allows_no_code(
    folders: Path, around: MakeAround
) -> None:
    text = 'insecure = true\nuser_models = true\n[alerts]\ncommand = ["sh"]\nlost_share = 0.5\n'
    own = folders / "home/.config/edgefed/config.toml"
    (folders / "cwd/edgefed.toml").write_text(text)
    with pytest.raises(RecipeError) as caught:
        load_settings(around())
    told = f"is not taken from a project's file; set it in your own, {own}"
    assert caught.value.code == "config.project"
    assert caught.value.message.splitlines() == [
        f"./edgefed.toml:1: insecure: {told}",
        f"./edgefed.toml:2: user_models: {told}",
        f"./edgefed.toml:4: alerts.command: {told}",
    ]
    (folders / "cwd/edgefed.toml").rename(own)
    settings = load_settings(around()).value
    assert (settings.insecure, settings.user_models, settings.alerts.command) == (
        True,
        True,
        ("sh",),
    )
    (folders / "cwd/edgefed-agent.toml").write_text("user_models = true\n")
    with pytest.raises(RecipeError, match=r"edgefed/edgefed-agent\.toml$"):
        load_agent_settings(around())


def test_every_problem_is_listed_with_its_place(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed.toml").write_text('brokr = "mqtt://b:1"\nfleet = "Big Fleet"\n')
    with pytest.raises(RecipeError) as caught:
        load_settings(around(EDGEFED_BROKER="b:1", EDGEFED_FLET="x"))
    assert caught.value.message.splitlines() == [
        './edgefed.toml:1: brokr: unknown key; did you mean "broker"?',
        "./edgefed.toml:2: fleet: must be 1 to 64 lower-case letters, digits and hyphens, "
        'and not begin with a hyphen, got "Big Fleet"',
        "EDGEFED_BROKER: must be a broker address, mqtts://HOST:PORT or mqtt://HOST:PORT, "
        'got "b:1"',
        'EDGEFED_FLET: unknown variable; did you mean "EDGEFED_FLEET"?',
    ]
    assert caught.value.code == "recipe.unknown_key"


def test_a_flag_is_named_in_its_error(around: MakeAround) -> None:
    with pytest.raises(RecipeError) as caught:
        load_settings(around(), [Flag("--broker", "broker", "nowhere")])
    assert caught.value.message.startswith("--broker: must be a broker address")


def test_a_wrong_address_is_told_without_its_password(around: MakeAround) -> None:
    with pytest.raises(RecipeError, match="must be a broker address") as caught:
        load_settings(around(EDGEFED_BROKER="http://ops:s3cret@b"))
    assert "s3cret" not in caught.value.message


def test_text_that_looks_like_a_number_may_be_a_name(around: MakeAround) -> None:
    assert load_settings(around(EDGEFED_FLEET="2024")).value.fleet == "2024"
    assert load_settings(around(EDGEFED_FLEET="2024-01-01")).value.fleet == "2024-01-01"


def test_an_empty_variable_is_not_set(around: MakeAround) -> None:
    assert load_settings(around(EDGEFED_FLEET="")).value.fleet == "default"


def test_a_variable_that_is_no_text_is_refused(around: MakeAround) -> None:
    with pytest.raises(RecipeError, match="EDGEFED_FLEET: must be UTF-8 text"):
        load_settings(around(EDGEFED_FLEET="\udcff"))


def test_a_state_folder_starts_where_it_was_written(folders: Path, around: MakeAround) -> None:
    (folders / "home/.config/edgefed/config.toml").write_text('state = "runs"\n')
    assert load_settings(around()).value.state == folders / "home/.config/edgefed/runs"
    assert load_settings(around(EDGEFED_STATE="here")).value.state == folders / "cwd/here"
    assert load_settings(around(EDGEFED_STATE="2024")).value.state == folders / "cwd/2024"
    assert load_settings(around(EDGEFED_STATE="/abs")).value.state == Path("/abs")
    in_xdg = load_settings(around(XDG_STATE_HOME="/xdg", XDG_CONFIG_HOME="/nowhere"))
    assert in_xdg.value.state == Path("/xdg/edgefed")


def test_xdg_config_home_moves_the_user_file(folders: Path, around: MakeAround) -> None:
    names = [place.path for place in places("edgefed", around(XDG_CONFIG_HOME="/xdg"))]
    assert names[1] == Path("/xdg/edgefed/config.toml")
    relative = places("edgefed", around(XDG_CONFIG_HOME="not/absolute"))
    assert relative[1].path == folders / "home/.config/edgefed/config.toml"


def test_the_agent_has_files_of_its_own(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed.toml").write_text('fleet = "not-mine"\n')
    (folders / "etc/edgefed-agent.toml").write_text('name = "dev-1"\nholdout = 0.2\n')
    loaded = load_agent_settings(around(EDGEFED_THREADS="2", EDGEFED_SHARE_LABELS="false"))
    settings = loaded.value
    assert (settings.fleet, settings.name, settings.holdout) == ("default", "dev-1", 0.2)
    assert (settings.threads, settings.share_labels) == (2, False)
    assert str(loaded.origin("holdout")).endswith("edgefed-agent.toml line 2")


def test_an_agents_variables_do_not_disturb_the_others(around: MakeAround) -> None:
    assert load_settings(around(EDGEFED_THREADS="2", EDGEFED_NAME="dev-1")).value.fleet == "default"


def test_types_are_kept_apart(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed-agent.toml").write_text(
        'threads = "2"\nshare_labels = 1\nholdout = "0.1"\ncache = true\nname = 3\n'
    )
    with pytest.raises(RecipeError) as caught:
        load_agent_settings(around())
    assert caught.value.message.splitlines() == [
        './edgefed-agent.toml:1: threads: must be a whole number, got "2"',
        "./edgefed-agent.toml:2: share_labels: must be true or false, got 1",
        './edgefed-agent.toml:3: holdout: must be a number, got "0.1"',
        "./edgefed-agent.toml:4: cache: must be a whole number, got true",
        "./edgefed-agent.toml:5: name: must be text, in quotes, got 3",
    ]
    assert caught.value.code == "recipe.value"


def test_an_owners_policy_for_mixes_is_read_from_a_file(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed-agent.toml").write_text(
        "share_mixes = true\nrequest_mixes = false\nmix_epsilon = 2\nmix_limit = 0\n"
        'mix_receivers = ["cam-1", "cam-2"]\n'
    )
    loaded = load_agent_settings(around())
    policy = owners_policy(loaded.value)
    assert (policy.share_mixes, policy.request_mixes) == (True, False)
    assert (policy.mix_epsilon, policy.mix_limit) == (2.0, 0)
    assert policy.mix_receivers == ("cam-1", "cam-2")
    shown = {each.key: (each.value, str(each.origin)) for each in loaded.effective()}
    assert shown["mix_limit"] == (0, "./edgefed-agent.toml line 4")
    assert shown["mix_receivers"] == (("cam-1", "cam-2"), "./edgefed-agent.toml line 5")


def test_an_owners_policy_for_mixes_is_read_from_variables(around: MakeAround) -> None:
    for receivers in ("cam-1, cam-2", '["cam-1", "cam-2"]'):
        settings = load_agent_settings(
            around(
                EDGEFED_SHARE_MIXES="true",
                EDGEFED_SHARE_GATE="true",
                EDGEFED_SHARE_DENSITY="true",
                EDGEFED_REQUEST_MIXES="false",
                EDGEFED_MIX_RECEIVERS=receivers,
                EDGEFED_MIX_EPSILON="0.5",
                EDGEFED_MIX_LIMIT="40",
                EDGEFED_UPDATE_EPSILON="8",
                EDGEFED_UPDATE_DELTA="1e-6",
                EDGEFED_LEAST_COHORT="8",
                EDGEFED_LEAST_THRESHOLD="6",
                EDGEFED_LEAST_MIX_WIDTH="6",
                EDGEFED_LEAST_MIX_NOISE="0.25",
                EDGEFED_MOST_MIX_WEIGHT="0.5",
                EDGEFED_SHARE_LABELS="false",
            )
        ).value
        assert owners_policy(settings) == Policy(
            least_group=10,
            share_hidden=False,
            share_labels=False,
            request_mixes=False,
            share_mixes=True,
            share_gate=True,
            share_density=True,
            mix_receivers=("cam-1", "cam-2"),
            mix_epsilon=0.5,
            mix_limit=40,
            least_mix_width=6,
            least_mix_noise=0.25,
            most_mix_weight=0.5,
            update_epsilon=8.0,
            update_delta=1e-6,
            least_cohort=8,
            least_threshold=6,
        )
    one = load_agent_settings(around(EDGEFED_MIX_RECEIVERS="cam-1")).value
    assert one.mix_receivers == ("cam-1",)
    nobody = load_agent_settings(around(EDGEFED_MIX_RECEIVERS="[]")).value
    assert nobody.mix_receivers == ()


def test_without_settings_mixes_are_not_limited(around: MakeAround) -> None:
    loaded = load_agent_settings(around())
    assert owners_policy(loaded.value) == Policy(
        least_group=10,
        share_hidden=False,
        share_mixes=False,
        share_gate=False,
        share_density=False,
        least_mix_width=4,
        least_mix_noise=16 / 255,
        most_mix_weight=0.75,
    )
    shown = {each.key: (each.value, str(each.origin)) for each in loaded.effective()}
    assert shown["mix_epsilon"] == shown["mix_limit"] == (None, "default")
    assert shown["mix_receivers"] == (None, "default")


def test_wrong_limits_of_mixes_are_told_in_a_line_each(folders: Path, around: MakeAround) -> None:
    (folders / "cwd/edgefed-agent.toml").write_text(
        'mix_epsilon = 0\nmix_limit = 1.5\nmix_receivers = ["Cam 1"]\nshare_mixes = "no"\n'
    )
    with pytest.raises(RecipeError) as caught:
        load_agent_settings(around(EDGEFED_REQUEST_MIXES="maybe"))
    name = "be 1 to 64 lower-case letters, digits and hyphens, and not begin with a hyphen"
    assert sorted(caught.value.message.splitlines()) == [
        "./edgefed-agent.toml:1: mix_epsilon: must be more than 0, got 0",
        "./edgefed-agent.toml:2: mix_limit: must be a whole number, got 1.5",
        f'./edgefed-agent.toml:3: mix_receivers[0]: must {name}, got "Cam 1"',
        './edgefed-agent.toml:4: share_mixes: must be true or false, got "no"',
        'EDGEFED_REQUEST_MIXES: must be true or false, got "maybe"',
    ]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("MIX_EPSILON", "inf", "must be finite, got inf"),
        ("MIX_EPSILON", "nan", "must be finite, got nan"),
        ("MIX_EPSILON", "-1", "must be more than 0, got -1"),
        ("MIX_EPSILON", "much", 'must be a number, got "much"'),
        ("MIX_LIMIT", "-1", "must be at least 0, got -1"),
        ("MIX_LIMIT", "none", 'must be a whole number, got "none"'),
        ("MIX_RECEIVERS", "7", "must be an array, got 7"),
        ("UPDATE_HOURS", "2-5", "must be like \"02:00-05:00\", got '2-5'"),
    ],
)
def test_a_wrong_variable_is_told_in_one_line(
    around: MakeAround, name: str, text: str, problem: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        load_agent_settings(around(**{f"EDGEFED_{name}": text}))
    assert caught.value.message == f"EDGEFED_{name}: {problem}"
