"""What the demo takes for a promise that was kept, and what it does not (I1)."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemaless_core.cell.answers import PutStatus
from schemaless_core.cell.cell import Cell
from schemaless_core.errors import InvalidCell, NodeUnavailable
from schemaless_core.memory import MemoryStore
from tests.factories import make_cell
from tripstore.demo.accidents import check_reads, read_for
from tripstore.demo.command import _conclude
from tripstore.demo.commands import Commands, complaint_of
from tripstore.demo.journal import Acknowledged, acknowledged, digest
from tripstore.demo.outage import check_found
from tripstore.demo.report import DemoReport, Narrator, StoryStep, StorySums
from tripstore.demo.story import is_kept
from tripstore.demo.switching import repeated
from tripstore.errors import TripstoreError


def stored(cell: Cell) -> Cell:
    """As a reader of the log gets it."""
    return replace(cell, added_id=7)


def promise(cell: Cell, *, added_id: int | None = 7, status: PutStatus = PutStatus.CREATED) -> Acknowledged:
    return Acknowledged(*cell.key, digest(cell), status, 0, added_id, at=0.0, seconds=None)


def test_what_was_put_is_found() -> None:
    store, cell, step = MemoryStore(), make_cell(), StoryStep(1, "", "")

    check_found(step, "it is read", store, [acknowledged(cell, store.put_cell(*cell.key, cell.body), 0.0, None)])

    assert [(check.is_fine, check.detail) for check in step.checks] == [(True, "1 of 1")]


def test_control_a_cell_that_is_lost_or_has_another_body_is_missed() -> None:
    store, lost, other = MemoryStore(), make_cell(), make_cell(ref_key=2, body="promised")
    store.put_cell(*other.key, "stored")
    step = StoryStep(1, "", "")

    check_found(step, "lost", store, [promise(lost)])
    check_found(step, "other", store, [promise(other)])
    check_found(step, "no promise, so that nothing was looked at", store, [])

    assert [(check.is_fine, check.detail) for check in step.checks] == [
        (False, "0 of 1"),
        (False, "0 of 1"),
        (False, "0 of 0"),
    ]


def test_a_promise_is_kept_at_its_place_and_a_buffered_one_wherever_it_came_to() -> None:
    cell = stored(make_cell())
    buffered = promise(cell, added_id=None, status=PutStatus.BUFFERED)

    assert is_kept(promise(cell), {cell.key: cell})
    assert is_kept(buffered, {cell.key: cell})


def test_control_another_place_or_another_body_is_no_promise_that_was_kept() -> None:
    cell = stored(make_cell())
    changed = replace(cell, body="another")
    buffered = promise(cell, added_id=None, status=PutStatus.BUFFERED)

    assert changed.key == cell.key
    assert not is_kept(promise(cell, added_id=8), {cell.key: cell})
    assert not is_kept(promise(cell, added_id=None), {cell.key: cell})
    assert not is_kept(promise(cell), {cell.key: changed})
    assert not is_kept(buffered, {cell.key: changed})


def test_what_a_command_complained_of_is_told_with_its_hint_and_without_its_progress() -> None:
    stderr = "looking at both stores, 2 s\nError: Postgres did not answer.\nRepeat the call.\n"

    assert complaint_of(stderr) == "Postgres did not answer. Repeat the call."
    assert complaint_of("killed\n") == "killed"
    assert complaint_of("") == "It printed nothing."


# A busy machine is no fault of the store.


class Busy(MemoryStore):
    """Misses the deadline of each second read."""

    reads = 0

    def get_cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        self.reads += 1
        if self.reads % 2:
            raise NodeUnavailable("mysql://db1:3306", "it did not answer in time")
        return super().get_cell(row_key, column_name, ref_key)


def test_reads_that_miss_their_deadlines_are_told_and_a_wrong_one_is_wrong() -> None:
    store, cell, lost = Busy(), make_cell(), make_cell()
    told = acknowledged(cell, store.put_cell(*cell.key, cell.body), 0.0, None)

    def found(*entries: Acknowledged) -> tuple[list[str], bool, str]:
        said: list[str] = []
        narrator = Narrator(said.append)
        with narrator.step("Read", "") as step:
            check_reads(step, "reads go on", read_for(0.05, store, entries))
        report = DemoReport("sqlite", narrator.is_fine, 1.0, 16, StorySums(1, 1, 0, 0), narrator.steps, None)
        _conclude(report, Path("page.html"), said.append)
        return [check.verdict for check in step.checks], report.is_fine, "\n".join(said)

    busy, is_fine, said = found(told)
    assert (busy, is_fine) == (["ok", "slow"], True)
    assert "slow: no read missed its deadline" in said
    assert "This machine was busy, which is no fault of the store" in said
    wrong, is_fine, said = found(promise(lost))
    assert (wrong[0], is_fine) == ("WRONG", False)
    assert "WRONG: these checks failed: reads go on" in said


def test_a_call_that_misses_its_deadline_is_repeated_and_any_other_error_is_the_callers() -> None:
    answers = iter([NodeUnavailable("mysql://db1:3306", "late"), None, InvalidCell("is wrong")])
    missed: list[str] = []

    def call() -> None:
        if (error := next(answers)) is not None:
            raise error

    repeated(call, missed)
    assert len(missed) == 1
    with pytest.raises(InvalidCell):
        repeated(call, missed)
    with pytest.raises(NodeUnavailable):
        repeated(lambda: _raise(NodeUnavailable("mysql://db1:3306", "late")), missed, seconds=0.0)


def _raise(error: Exception) -> None:
    raise error


def test_a_command_that_hangs_is_named(tmp_path: Path) -> None:
    with pytest.raises(TripstoreError, match=r"`tripstore status --watch` had not ended after 0 s"):
        Commands(tmp_path / "tripstore.yaml", seconds=0.01).run("tripstore status --watch")
