"""What several processes of a repair did is what their command says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tripstore.cli.repair_run import PROCESSES_MAX, processes_for
from tripstore.repairing.tally import Tally
from validation.repair import Action


def test_a_total_counts_what_each_process_saved_last(tmp_path: Path) -> None:
    one, other = Tally.of_process(tmp_path, "a"), Tally.of_process(tmp_path, "b.c")
    one.add({Action.LIFT: 2})
    one.add({Action.LIFT: 1, Action.PUT: 4})
    other.add({Action.PUT: 5})

    assert Tally.total(tmp_path) == {Action.LIFT: 3, Action.PUT: 9}


def test_a_process_that_was_killed_while_it_wrote_leaves_what_it_said_before(tmp_path: Path) -> None:
    Tally.of_process(tmp_path, "a").add({Action.PUT: 1})
    (tmp_path / "a.new").write_bytes(b'{"put"')

    assert Tally.total(tmp_path) == {Action.PUT: 1}


def test_nothing_was_done_before_anything_was_saved(tmp_path: Path) -> None:
    assert Tally.total(tmp_path) == {}


@pytest.mark.parametrize(
    ("parts", "cores", "processes"), [(1, 8, 1), (9, 8, 1), (10, 8, 2), (10, 1, 1), (1000, 64, PROCESSES_MAX)]
)
def test_another_process_serves_every_ten_thousand_cells(
    parts: int, cores: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)

    assert processes_for(parts) == processes
