"""The wheel in an environment of its own, beside an application whose packages have the names of our folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.acceptance.migrations import Migration, copied, migration_template
from tripstore.local.servers import LocalServers

ROOT = Path(__file__).parents[2]
#: What a wheel is made of. A copy is built, since setuptools takes over what an earlier build left in the checkout.
SOURCES = ("tripstore", "schemaless_core", "backfill", "validation")
#: Packages of the application. They are ours, too: folders of the repository.
ITS_OWN = ("validation", "backfill", "tests", "benchmarks")

#: The application: imports its own packages and ours, writes a trip's status, and reads it again.
SERVICE = """\
import sys, uuid
import backfill, benchmarks, tests, validation
import tripstore
from validation.rules import is_valid

row_key, status = uuid.UUID(sys.argv[1]), sys.argv[2]
assert {package.OWNER for package in (backfill, benchmarks, tests, validation)} == {"the application"}
with tripstore.connect("tripstore.yaml") as store:
    trip = store.get_cell_latest(row_key, "BASE")
    store.put_cell(row_key, "BASE", trip.ref_key + 1, {**trip.body, "status": status})
    found = store.get_cell_latest(row_key, "BASE").body["status"]
    assert is_valid(found), found
    assert store.facade.duo.shadow.drain(10)
print(found)
"""
#: With `-c` Python looks into the folder first, as it does for a service; for a program on the path it does not.
COMMAND = "from tripstore.cli import main; main()"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("*"):
        if path.is_file():
            shutil.copy2(path, source)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(made), str(source))
    return next(made.glob("*.whl"))


def pip(*arguments: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def names(wheel: Path) -> set[str]:
    """What an application can import by having it installed."""
    with zipfile.ZipFile(wheel) as opened:
        return {name.split("/")[0] for name in opened.namelist() if ".dist-info/" not in name}


class Application:
    """A folder with packages of its own, and a Python that has our wheel. Its libraries are those of this Python."""

    def __init__(self, folder: Path, wheel: Path, place: Path) -> None:
        self.folder = folder
        self.python = place / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, capture_output=True)
        pip(
            "--python",
            str(self.python),
            "install",
            "--no-deps",
            "--no-index",
            "--no-compile",
            str(wheel),
            PYTHONPATH="",
        )
        [installed] = (place / "lib").glob("python*/site-packages")
        (installed / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        for package in ITS_OWN:
            (folder / package).mkdir()
            (folder / package / "__init__.py").write_text('OWNER = "the application"\n')
        (folder / "validation" / "rules.py").write_text("def is_valid(status): return status.isalpha()\n")
        (folder / "service.py").write_text(SERVICE)

    def run(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def tripstore(self, *arguments: str, code: int = 0) -> str:
        """A command that finds the application's packages first, as one started in its folder does."""
        return self.run("-c", COMMAND, *arguments, code=code)

    @property
    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "TRIPSTORE_CONFIG"}}


@pytest.fixture
def migration(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Migration:
    return copied(migration_template(servers, tmp_path_factory), tmp_path / "own")


def test_the_wheel_has_no_name_that_an_application_may_have(wheel: Path) -> None:
    assert names(wheel) == {"tripstore", "schemaless_core"}


def test_a_migration_is_walked_beside_an_application_with_such_packages(
    wheel: Path, migration: Migration, tmp_path: Path
) -> None:
    application = Application(migration.shell.folder, wheel, tmp_path / "environment")
    row_key = str(migration.row_keys()[0])

    application.tripstore("phase", "set", "dualwrite")
    application.tripstore("backfill", "start")  # it waits for changes that are not carried, so it goes first
    assert application.run("service.py", row_key, "completed") == "completed"
    application.tripstore("phase", "set", "shadow")
    assert application.run("service.py", row_key, "requested") == "requested"
    application.tripstore("report", "--output", "report.html", code=4)
    application.tripstore("cutover", "switch", "--force", "--why", "a test", "--yes")
    assert application.run("service.py", row_key, "completed") == "completed"

    assert migration.authority == "schemaless"
    assert "<html" in (migration.shell.folder / "report.html").read_text()


def test_control_a_bare_name_is_found_in_the_application(wheel: Path, tmp_path: Path) -> None:
    """As our code asked for it once: of a wheel with this name the application's package would stand before it."""
    (tmp_path / "own").mkdir()
    application = Application(tmp_path / "own", wheel, tmp_path / "environment")

    with pytest.raises(AssertionError, match=r"No module named 'validation\.compare'"):
        application.run("-c", "import validation.compare")
    application.run("-c", "import tripstore.engines.validation.compare")
