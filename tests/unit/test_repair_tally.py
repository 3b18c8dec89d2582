"""What several processes of a repair did is what their command says."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tripstore.cli.repair.run import PROCESSES_MAX, processes_for
from tripstore.engines.validation.repair import Action
from tripstore.migration.repair.tally import RepairTally, tally_folder


def test_a_total_counts_what_each_process_saved_last(tmp_path: Path) -> None:
    one, other = RepairTally.of_process(tmp_path, "a"), RepairTally.of_process(tmp_path, "b.c")
    one.add({Action.LIFT: 2})
    one.add({Action.LIFT: 1, Action.PUT: 4})
    other.add({Action.PUT: 5})

    assert RepairTally.total(tmp_path) == {Action.LIFT: 3, Action.PUT: 9}


def test_a_process_that_was_killed_while_it_wrote_leaves_what_it_said_before(tmp_path: Path) -> None:
    RepairTally.of_process(tmp_path, "a").add({Action.PUT: 1})
    (tmp_path / "a.new").write_bytes(b'{"put"')

    assert RepairTally.total(tmp_path) == {Action.PUT: 1}


def test_nothing_was_done_before_anything_was_saved(tmp_path: Path) -> None:
    assert RepairTally.total(tmp_path) == {}


@pytest.mark.parametrize(
    ("parts", "cores", "processes"), [(1, 8, 1), (9, 8, 1), (10, 8, 2), (10, 1, 1), (1000, 64, PROCESSES_MAX)]
)
def test_another_process_serves_every_ten_thousand_cells(
    parts: int, cores: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)

    assert processes_for(parts) == processes


HOLDING = """
import sys
from tripstore.migration.repair.tally import tally_folder
with tally_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_command(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has a folder for its tallies among the temporary ones of this folder."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLDING]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={"TMPDIR": str(folder)}) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_command_removes_the_folders_of_killed_ones_and_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is the command that lives, and a folder that its command has not locked yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    begun = tmp_path / "tripstore-repair-begun"
    begun.mkdir()
    with another_command(tmp_path) as (dead, left), another_command(tmp_path) as (_living, kept):
        dead.kill()
        dead.wait()
        assert left.is_dir()

        with tally_folder() as own:
            assert set(tmp_path.iterdir()) == {begun, kept, own}

    assert begun in tmp_path.iterdir()
    assert own not in tmp_path.iterdir()
