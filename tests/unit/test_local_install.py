"""What `make test` installs, and what it says to a user who may not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tripstore.local import install as installing
from tripstore.local import postgres_programs
from tripstore.local.install import NEEDS, Need, install
from tripstore.local.postgres_programs import find_programs

ROOT = Path(__file__).parents[2]


def missing(monkeypatch: pytest.MonkeyPatch, folder: Path, *programs: str) -> str:
    """What a user without rights is told where these programs are all that the PATH has, and one need is not met."""
    for program in programs:
        (folder / program).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(installing, "NEEDS", (Need("a thing", "tests", lambda: None, ("a-package",)),))
    done = CliRunner().invoke(install)
    assert done.exit_code == 1
    return done.stderr


def test_a_user_is_not_advised_to_use_a_sudo_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = missing(monkeypatch, tmp_path, "apt-get")

    assert "sudo" not in said
    assert f"Run as root (`su -`): env XDG_CACHE_HOME={Path.home() / '.cache'} {sys.executable} -m" in said


def test_control_where_there_is_a_sudo_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "Run: sudo env" in missing(monkeypatch, tmp_path, "apt-get", "sudo")


def test_the_readme_names_every_package_that_is_installed_without_asking() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [name for need in NEEDS for name in need.packages if f"`{name}`" not in readme] == []


def test_a_copy_of_the_wheel_takes_no_name_that_a_server_may_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As root with a checkout below a closed folder. The control is in `test_local_servers`: names that are refused."""
    monkeypatch.setattr(postgres_programs, "_open_to_all", lambda _folder: False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    programs = find_programs("wheel", tmp_path)

    assert programs.folder.is_relative_to(tmp_path)
    assert [folder.name for folder in tmp_path.iterdir() if not folder.name.startswith(".")] == []


LEAVES = """
def test_a(tmp_path):
    (tmp_path / "file").touch()
    assert {passes}
"""


@pytest.mark.slow
@pytest.mark.parametrize("passes", [True, False])
def test_a_run_leaves_files_only_of_tests_that_failed(tmp_path: Path, passes: bool) -> None:
    """The control is the run that fails: its files are kept, to look at."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_unconfigure\n")
    (tmp_path / "test_leaves.py").write_text(LEAVES.format(passes=passes))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}

    done = subprocess.run(
        [*command, str(tmp_path)], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == (0 if passes else 1), done.stdout
    assert any(folder.rglob("file")) is not passes
    assert (list(folder.iterdir()) == []) is passes
