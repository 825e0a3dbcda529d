"""The digest of others' sources depends on what they say, and on nothing around them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefed.errors import StorageError
from edgefed.files.source_digest import module_digest, package_digest
from tests.plugin_package import importable, write_package


def package(site: Path, value: str = "a_thing.sub.parts:Half") -> None:
    """Write a package with a plug-in, which is never imported."""
    (site / "a_thing" / "sub").mkdir(parents=True)
    for name in ("__init__.py", "sub/__init__.py", "sub/parts.py"):
        (site / "a_thing" / name).write_text(f"NAME = {name!r}\n")
    (site / "a_thing" / "defaults.toml").write_text("factor = 0.5\n")
    write_package(site, "a-thing", {"half": value})


def digest(site: Path, name: str = "a-thing") -> str:
    """Return the digest in this process, which has not seen the folder before."""
    with pytest.MonkeyPatch.context() as patch, importable(site, patch):
        return package_digest(name)


def module(site: Path, name: str) -> str:
    with pytest.MonkeyPatch.context() as patch, importable(site, patch):
        return module_digest(name)


def test_folder_times_caches_and_hidden_files_do_not_matter(tmp_path: Path) -> None:
    package(tmp_path / "one")
    package(tmp_path / "deeper" / "two")
    other = tmp_path / "deeper" / "two" / "a_thing"
    os.utime(other / "sub" / "parts.py", (1, 1))
    (other / "__pycache__").mkdir()
    (other / "__pycache__" / "parts.cpython-311.pyc").write_bytes(b"code")
    (other / "__pycache__" / "parts.half-3.py311.nbi").write_bytes(b"a compiler's index")
    (other / ".parts.py.swp").write_text("an editor's")
    (other / "parts.py~").write_text("an editor's")
    assert digest(tmp_path / "one") == digest(tmp_path / "deeper" / "two")


CHANGES: dict[str, Callable[[Path], object]] = {
    "code": lambda site: (site / "a_thing/sub/parts.py").write_text("NAME = 1\n"),
    "table": lambda site: (site / "a_thing/defaults.toml").write_text("factor = 0.6\n"),
    "new": lambda site: (site / "a_thing/more.py").write_text(""),
    "name": lambda site: (site / "a_thing/defaults.toml").rename(site / "a_thing/default.toml"),
    "gone": lambda site: (site / "a_thing/defaults.toml").unlink(),
    "object": lambda site: (site / "a-thing-1.0.dist-info/entry_points.txt").write_text(
        "[edgefed.algorithms]\nhalf = a_thing.sub.parts:Other\n"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_it_says_matters_and_put_back_is_the_same(tmp_path: Path, change: str) -> None:
    site = tmp_path / "site"
    package(site)
    before = digest(site)
    CHANGES[change](site)
    assert digest(site) != before
    shutil.rmtree(site)
    package(site)
    assert digest(site) == before


def test_files_that_an_installer_recorded_count_beside_the_package_of_the_plug_in(
    tmp_path: Path,
) -> None:
    site = tmp_path / "site-packages"
    package(site, "a_lone_thing:Half")
    (site / "a_lone_thing.py").write_text("import a_stranger\nHalf = 1\n")
    (site / "a_stranger.py").write_text("VALUE = 1\n")
    record = site / "a-thing-1.0.dist-info" / "RECORD"
    record.write_text("a_lone_thing.py,,\na_thing/sub/parts.py,,\na-thing-1.0.dist-info/RECORD,,\n")
    before = digest(site)
    (site / "a_stranger.py").write_text("VALUE = 2\n")
    record.write_text(record.read_text() + "a-thing-1.0.dist-info/INSTALLER,,\n")
    (site / "a-thing-1.0.dist-info" / "INSTALLER").write_text("pip")
    assert digest(site) == before, "it is of another distribution"
    (site / "a_thing/sub/parts.py").write_text("NAME = 1\n")
    assert digest(site) != before


def test_a_namespace_that_packages_share_is_not_the_package(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / "a_company" / name).mkdir(parents=True)
        (tmp_path / "a_company" / name / "__init__.py").write_text("")
    write_package(tmp_path, "a-thing", {"half": "a_company.ours:Half"})
    before = digest(tmp_path)
    (tmp_path / "a_company" / "theirs" / "__init__.py").write_text("VALUE = 1\n")
    assert digest(tmp_path) == before
    (tmp_path / "a_company" / "ours" / "__init__.py").write_text("VALUE = 1\n")
    assert digest(tmp_path) != before


def test_a_lone_module_counts_with_the_modules_beside_it_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "a_loss.py").write_text("from a_helper import factor\nimport torch\n")
    (tmp_path / "a_helper.py").write_text("import a_kit.tools\nfactor = 1\n")
    (tmp_path / "a_kit").mkdir()
    (tmp_path / "a_kit" / "tools.py").write_text("VALUE = 1\n")
    (tmp_path / "a_kit" / "notes.txt").write_text("results are written here, too")
    (tmp_path / "a_stranger.py").write_text("VALUE = 1\n")
    seen = {module(tmp_path, "a_loss")}
    (tmp_path / "a_stranger.py").write_text("VALUE = 2\n")
    (tmp_path / "a_kit" / "notes.txt").write_text("and changed")
    assert {module(tmp_path, "a_loss")} == seen
    for name in ("a_loss.py", "a_helper.py", "a_kit/tools.py"):
        (tmp_path / name).write_text((tmp_path / name).read_text() + "# changed\n")
        seen.add(module(tmp_path, "a_loss"))
    assert len(seen) == 4


def test_modules_of_torch_and_python_are_known_by_their_versions() -> None:
    assert module_digest("torch.nn.functional") == module_digest("statistics")


def test_sources_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    package(tmp_path / "site")
    (tmp_path / "site" / "a_thing" / "lost.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "site" / "a_wrong.py").write_text("def half(:\n")
    for read, name in (
        (digest, "a-thing"),
        (digest, "another-thing"),
        (module, "a_missing_module.sub"),
        (module, "a_wrong"),
    ):
        with pytest.raises(StorageError, match=f"The sources of (package|module) {name}") as caught:
            read(tmp_path / "site", name)
        assert caught.value.code == "source.unreadable"
        assert caught.value.hint
