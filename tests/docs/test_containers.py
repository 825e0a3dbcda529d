"""The Dockerfiles and the compose file: pinned images, no root, and the commands that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from device_agent.commands.cli import app as agent_app
from edgefed.cli.main import app as edgefed_app
from edgefed.version import VERSION

FOLDER = Path(__file__).parents[2] / "deploy" / "docker"
FILES = sorted(FOLDER.glob("*.Dockerfile"))
COMPOSE = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
IGNORED = (FOLDER.parents[1] / ".dockerignore").read_text(encoding="utf-8").splitlines()


def instructions(file: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile in order, without comments and line breaks."""
    lines = file.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    pairs = (line.split(maxsplit=1) for line in text.replace("\\\n", " ").splitlines() if line)
    return [(word, rest) for word, rest in pairs]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_image_is_pinned_unprivileged_and_checks_its_health(file: Path) -> None:
    steps = instructions(file)
    (image,) = [rest for word, rest in steps if word == "FROM"]
    tag = image.partition(":")[2]
    assert re.search(r"\d+\.\d+", tag) and tag != "latest"
    words = [word for word, _ in steps]
    assert [rest for word, rest in steps if word == "USER"] == ["edgefed"]
    # Nothing is installed or copied once the user is not root any more, and nothing runs as root.
    assert not {"RUN", "COPY", "ADD"} & set(words[words.index("USER") :])
    assert words.index("USER") < words.index("HEALTHCHECK") < words.index("CMD")
    program = "edgefed" if file.stem == "coordinator" else "edgefed-agent"
    (check,) = [rest for word, rest in steps if word == "HEALTHCHECK"]
    # Docker knows 0 and 1 only.
    assert check.endswith(f"CMD {program} status --check || exit 1")


def test_what_is_copied_is_enough_to_install() -> None:
    kept = {line[1:] for line in IGNORED if line.startswith("!")}
    root = FOLDER.parents[1]
    assert all((root / name).exists() for name in kept)
    packages = {"edgefed", "device_agent", "broker"}
    assert kept >= packages | {"setup.py", "pyproject.toml", "README.md", "LICENSE"}
    assert IGNORED.index("*") < min(IGNORED.index(f"!{name}") for name in kept)


def test_the_commands_of_the_containers_are_those_of_the_programs() -> None:
    programs = {"edgefed": get_command(edgefed_app), "edgefed-agent": get_command(agent_app)}
    lines = re.findall(r"^    command: \[(.*)\]$", COMPOSE, re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        words = [word.strip(' "') for word in line.split(",")]
        command = programs[words.pop(0)] if words[0] == "edgefed" else programs["edgefed-agent"]
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_the_images_of_the_compose_file_have_the_version() -> None:
    images = re.findall(r"image: (\S+)", COMPOSE)
    assert images and all(image.endswith(f":{VERSION}") for image in images)
    files = re.findall(r"dockerfile: deploy/docker/(\S+)", COMPOSE)
    assert {FOLDER / name for name in files} <= set(FILES)
