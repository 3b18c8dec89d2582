"""Named failpoints, met by real processes: free when off, once when armed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemaless_core import failpoints as module
from schemaless_core.failpoints import ENVIRONMENT_VARIABLE, FailpointReached, reach, use_folder

#: Reaches the point as often as asked and prints a line each time; tells when it was interrupted by an exception.
#: It loads the module alone: the package would take longer than everything else here.
REACHES = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("failpoints", sys.argv[1])
failpoints = importlib.util.module_from_spec(spec)
spec.loader.exec_module(failpoints)
try:
    for n in range(int(sys.argv[2])):
        failpoints.reach("here")
        print("passed", n, flush=True)
except failpoints.FailpointReached as point:
    print("raised", point, flush=True)
"""


def start(folder: Path, visits: int = 1) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", REACHES, str(module.__file__), str(visits)],
        env=os.environ | {ENVIRONMENT_VARIABLE: str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def lines(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=30)
    return out.splitlines()


@pytest.fixture
def inside(failpoints: Path) -> Iterator[Path]:
    """Failpoints of this process."""
    use_folder(failpoints)
    yield failpoints
    use_folder(None)


def test_failpoints_are_off_unless_the_environment_names_a_folder() -> None:
    assert ENVIRONMENT_VARIABLE not in os.environ
    assert module._folder is None

    for _ in range(100_000):  # would take seconds if it looked at files
        reach("put.before_send")

    assert not module._visits


def test_a_point_that_is_not_armed_is_passed(failpoints: Path) -> None:
    process = start(failpoints, visits=3)

    assert lines(process) == ["passed 0", "passed 1", "passed 2"]
    assert process.returncode == 0


def test_a_process_can_be_made_to_raise_once(failpoints: Path) -> None:
    (failpoints / "here").write_text("raise")

    assert lines(start(failpoints, visits=3)) == ["raised here"]
    assert (failpoints / "here.hit").exists()
    assert not (failpoints / "here").exists()
    assert lines(start(failpoints)) == ["passed 0"]


def test_a_process_can_be_killed(failpoints: Path) -> None:
    (failpoints / "here").write_text("kill after=2")

    process = start(failpoints, visits=5)

    assert lines(process) == ["passed 0", "passed 1"]
    assert process.returncode == -signal.SIGKILL


def test_a_process_can_be_stopped_and_goes_on_when_told(failpoints: Path) -> None:
    (failpoints / "here").write_text("stop")
    process = start(failpoints)

    _pid, status = os.waitpid(process.pid, os.WUNTRACED)

    assert os.WIFSTOPPED(status)
    assert os.WSTOPSIG(status) == signal.SIGSTOP
    process.send_signal(signal.SIGCONT)
    assert lines(process) == ["passed 0"]


def test_a_process_waits_until_it_may_go(failpoints: Path) -> None:
    (failpoints / "here").write_text("wait after=1")
    process = start(failpoints, visits=2)
    assert process.stdout is not None

    assert process.stdout.readline() == "passed 0\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    (failpoints / "here.go").write_text("")

    assert lines(process) == ["passed 1"]


def test_an_armed_point_fires_once_among_several_processes(failpoints: Path) -> None:
    (failpoints / "here").write_text("kill")

    processes = [start(failpoints, visits=50) for _ in range(3)]
    printed = [len(lines(process)) for process in processes]

    assert sorted(process.returncode for process in processes) == [-signal.SIGKILL, 0, 0]
    assert sorted(printed)[1:] == [50, 50]


def test_a_point_can_be_armed_again(inside: Path) -> None:
    for _ in range(2):
        (inside / "here").write_text("raise after=1")
        reach("here")
        with pytest.raises(FailpointReached, match="here"):
            reach("here")


def test_points_are_armed_one_by_one(inside: Path) -> None:
    (inside / "here").write_text("raise")

    reach("there")

    assert (inside / "here").exists()


def test_a_point_that_is_still_being_written_is_passed(inside: Path) -> None:
    (inside / "here").write_text("")

    reach("here")

    assert not (inside / "here.hit").exists()


def test_an_action_that_does_not_exist_is_told(inside: Path) -> None:
    (inside / "here").write_text("explode")

    with pytest.raises(ValueError, match="unknown action 'explode'"):
        reach("here")
