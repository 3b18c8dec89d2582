"""Units as systemd reads them: every setting is one, and a process may do little beside its work."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.absence import absent
from tests.unit.test_operations import UNITS

#: Of 100, by systemd's own count; without any restriction it is 96.
EXPOSURE_MAX = 25


@pytest.fixture(scope="module", autouse=True)
def systemd() -> None:
    if shutil.which("systemd-analyze") is None:
        absent("systemd-analyze is not installed; run `python -m tripstore.local.install`")


def analyzed(unit: Path, text: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The instance 1 of a template. Its program is one that this machine has."""
    file = folder / unit.name.replace("@.", "@1.")
    file.write_text(text.replace("/opt/tripstore/bin/tripstore", sys.executable))
    command = ["systemd-analyze", *arguments, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_systemd_takes_every_line_of_a_unit(tmp_path: Path) -> None:
    assert len(UNITS) == 2
    for unit in UNITS:
        done = analyzed(unit, unit.read_text(), tmp_path, "verify")
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_control_a_setting_that_systemd_does_not_have_is_found(tmp_path: Path) -> None:
    for unit in UNITS:
        done = analyzed(unit, unit.read_text().replace("TimeoutStopSec", "TimeoutStopSecs"), tmp_path, "verify")
        assert "TimeoutStopSecs" in done.stderr


def test_a_process_of_a_unit_may_do_little_beside_its_work(tmp_path: Path) -> None:
    for unit in UNITS:
        counted = ("security", "--offline=true", f"--threshold={EXPOSURE_MAX}")
        assert analyzed(unit, unit.read_text(), tmp_path, *counted).returncode == 0
        # The control.
        free = unit.read_text().replace("SystemCallFilter", "#").replace("CapabilityBoundingSet", "#")
        assert analyzed(unit, free, tmp_path, *counted).returncode != 0
