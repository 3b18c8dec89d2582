"""What groups may rely on, whichever engine keeps their offsets and parked cells: each condition of each change (I7).

Shards of one server and groups in one table are neighbours here: what is said of one must leave the others alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import uuid4

import pytest

from schemaless_core import Datastore
from schemaless_core.cell.standing import Gate, Kind, ShardState
from schemaless_core.cell.stored import NewCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.groups import (
    CallNote,
    GroupStep,
    GroupTables,
    Offset,
    ParkedCell,
    ParkedRow,
    Settling,
)
from schemaless_core.engine.purging import whole_row
from tests.damage import execute
from tests.factories import keys_in
from tests.stores import Stores

GROUP, OTHER = "billing", "auditing"
#: Of a new datastore; no shard of it was ever at another.
EPOCH = 1
FENCE = 7
LATER = 3600.0
ROW = uuid4().bytes


def soon() -> Deadline:
    return Deadline(20.0)


class Kept(NamedTuple):
    """The tables of groups on one server, with two of its shards."""

    store: Datastore
    node: Node
    shard: int
    neighbour: int

    @property
    def tables(self) -> GroupTables:
        return self.node.groups

    @property
    def head(self) -> int:
        return self.node.heads([self.shard], soon())[self.shard].head

    def offset(self, shard: int, group: str = GROUP) -> Offset:
        found = self.tables.find(group, [shard], soon())[shard].offset
        assert found is not None
        return found

    def parked(self, shard: int | None = None, group: str = GROUP) -> list[ParkedRow]:
        return self.tables.parked(group, shard, 100, soon())

    def places(self, group: str = GROUP) -> set[tuple[int, int]]:
        return {(row.shard, row.added_id) for row in self.parked(group=group)}

    def park(self, shard: int, *cells: ParkedCell, group: str = GROUP) -> None:
        """With the offset, which goes to the last of them."""
        step = GroupStep(FENCE, EPOCH, max(cell.added_id for cell in cells), EPOCH, cells)
        self.tables.advance(group, {shard: step}, soon())

    def put(self, count: int) -> None:
        """Cells of other rows into the shard's log: what parked cells and offsets point to."""
        row = next(keys_in(self.store, self.shard))
        for ref_key in range(count):
            self.store.put_cell(row, "BASE", ref_key, ref_key)

    def cell(self, body: bytes = b"1", ref_key: int = 1) -> NewCell:
        return NewCell(ROW, b"STATUS", ref_key, body)

    def gate(self, *, epoch: int = EPOCH, kind: Kind = Kind.OWNER, authority_epoch: int = 0) -> Gate:
        return Gate(self.shard, epoch, kind, authority_epoch)


@pytest.fixture
def kept(datastore_engine: str, stores: Stores) -> Kept:
    """Two groups with the same fence in all shards."""
    store = stores.fresh(datastore_engine, shards=4)
    cluster = store.clusters["a"]
    node = cluster.primary.node
    shard, neighbour = sorted(node.shards_present())[:2]
    for group in (GROUP, OTHER):
        node.groups.begin(group, "beginning", soon())
        node.groups.claim(group, {shard: FENCE, neighbour: FENCE}, soon())
    return Kept(store, node, shard, neighbour)


def waiting(added_id: int, *, row: bytes = ROW, is_waiting: bool = False, seconds: float = LATER) -> ParkedCell:
    return ParkedCell(added_id, row, b"BASE", added_id, 1, is_waiting, "it failed", seconds)


def test_i7_a_claim_raises_the_fence_of_its_shards_and_its_group_alone(kept: Kept) -> None:
    kept.tables.claim(GROUP, {kept.shard: 9}, soon())
    kept.tables.claim(GROUP, {kept.shard: 8}, soon())

    assert kept.offset(kept.shard).fence == 9
    assert kept.offset(kept.neighbour).fence == FENCE
    assert kept.offset(kept.shard, OTHER).fence == FENCE


def test_i7_a_step_moves_one_groups_offset_in_one_shard(kept: Kept) -> None:
    kept.park(kept.shard, waiting(3))

    assert kept.offset(kept.shard)[:2] == (EPOCH, 3)
    assert kept.offset(kept.neighbour)[:2] == (EPOCH, 0)
    assert kept.offset(kept.shard, OTHER)[:2] == (EPOCH, 0)
    assert kept.places() == {(kept.shard, 3)}
    assert kept.places(OTHER) == set()


@pytest.mark.parametrize("parks", [True, False])
@pytest.mark.parametrize(
    "step",
    [
        GroupStep(FENCE - 1, EPOCH, 6, EPOCH),
        GroupStep(FENCE + 1, EPOCH, 6, EPOCH),
        GroupStep(FENCE, EPOCH, 4, EPOCH),
        GroupStep(FENCE, EPOCH - 1, 6, EPOCH),
        GroupStep(FENCE, EPOCH, 6, EPOCH + 1),
        GroupStep(FENCE, EPOCH, 6, EPOCH - 1),
    ],
    ids=["an old fence", "a later fence", "backwards", "an older epoch", "a later shard's", "an older shard's"],
)
def test_i7_a_step_that_is_none_moves_nothing_and_parks_nothing(kept: Kept, step: GroupStep, parks: bool) -> None:
    kept.tables.advance(GROUP, {kept.shard: GroupStep(FENCE, EPOCH, 5, EPOCH)}, soon())

    if parks:
        step = step._replace(parked=(waiting(step.added_id),))
    kept.tables.advance(GROUP, {kept.shard: step}, soon())

    assert kept.offset(kept.shard) == Offset(EPOCH, 5, FENCE)
    assert kept.places() == set()


@pytest.mark.parametrize("to", [(EPOCH, 5), (EPOCH, 9), (EPOCH + 1, 2)], ids=["the same", "later", "another epoch"])
def test_i7_control_a_step_that_is_one_is_made(kept: Kept, to: tuple[int, int]) -> None:
    kept.tables.advance(GROUP, {kept.shard: GroupStep(FENCE, EPOCH, 5, EPOCH)}, soon())

    kept.tables.advance(GROUP, {kept.shard: GroupStep(FENCE, *to, EPOCH, (waiting(to[1]),))}, soon())

    assert kept.offset(kept.shard) == Offset(*to, FENCE)
    assert kept.places() == {(kept.shard, to[1])}


def test_i7_a_reset_is_of_one_shard_and_its_holder_has_to_claim_anew(kept: Kept) -> None:
    kept.tables.advance(GROUP, {kept.shard: GroupStep(FENCE, EPOCH, 5, EPOCH)}, soon())

    kept.tables.reset(GROUP, {kept.shard: (EPOCH, 2)}, soon())

    assert kept.offset(kept.shard) == Offset(EPOCH, 2, FENCE + 1)
    assert kept.offset(kept.neighbour) == Offset(EPOCH, 0, FENCE)
    assert kept.offset(kept.shard, OTHER) == Offset(EPOCH, 0, FENCE)


def test_a_group_that_is_removed_leaves_nothing_behind_and_the_others_alone(kept: Kept) -> None:
    for group in (GROUP, OTHER):
        kept.park(kept.shard, waiting(3), group=group)
        kept.tables.note_claims(group, [kept.shard], soon())

    kept.tables.remove(GROUP, soon())

    assert kept.tables.find_all(GROUP, soon()) == {}
    assert kept.places() == set()
    assert kept.places(OTHER) == {(kept.shard, 3)}
    assert kept.offset(kept.shard, OTHER)[:2] == (EPOCH, 3)
    assert kept.tables.note_claims(OTHER, [kept.shard], soon())[kept.shard].claims == 2, "it had one"


def test_a_group_begins_where_it_is_told_and_what_it_has_stays(kept: Kept) -> None:
    kept.put(3)
    kept.tables.begin("now", "now", soon())
    kept.tables.begin("first", "beginning", soon())
    kept.tables.begin("some", {kept.neighbour: 8}, soon())
    kept.tables.begin("none", {}, soon())
    for start in ("now", {kept.neighbour: 1}):
        kept.tables.begin("some", start, soon())

    assert {shard: offset.added_id for shard, offset in kept.tables.find_all("now", soon()).items()} == {
        shard: 3 if shard == kept.shard else 0 for shard in kept.node.shards_present()
    }
    assert {offset.added_id for offset in kept.tables.find_all("first", soon()).values()} == {0}
    assert kept.offset(kept.neighbour, "some").added_id == 8
    assert kept.offset(kept.shard, "some").added_id == 3
    assert kept.tables.find_all("none", soon()) == {}


def test_an_offset_is_beyond_its_log_when_its_epoch_or_its_id_is(kept: Kept) -> None:
    kept.put(2)
    assert kept.tables.find_beyond(soon()) == []
    kept.tables.reset(GROUP, {kept.shard: (EPOCH, 2)}, soon())
    assert kept.tables.find_beyond(soon()) == [], "it is at the head"

    kept.tables.reset(GROUP, {kept.shard: (EPOCH, 3), kept.neighbour: (EPOCH + 1, 0)}, soon())
    kept.tables.reset(OTHER, {kept.shard: (EPOCH - 1, 9)}, soon())

    found = [beyond[:4] for beyond in kept.tables.find_beyond(soon())]
    assert found == [(GROUP, kept.shard, EPOCH, 3), (GROUP, kept.neighbour, EPOCH + 1, 0)]
    execute(kept.store, kept.neighbour, "UPDATE {state} SET state = 'MOVED' WHERE {of}")
    assert [beyond.shard for beyond in kept.tables.find_beyond(soon())] == [kept.shard]


def _settle(kept: Kept, settling: Settling) -> bool:
    """Whether the cell is still parked."""
    kept.tables.settle(GROUP, kept.shard, settling, soon())
    return (kept.shard, settling.added_id) in kept.places()


def _put_and_settle(kept: Kept, settling: Settling) -> bool:
    return kept.tables.put_and_settle(kept.gate(), GROUP, [kept.cell()], settling, soon())[0]


SETTLINGS = pytest.mark.parametrize("settle", [_settle, _put_and_settle], ids=["alone", "with what it put"])


@SETTLINGS
@pytest.mark.parametrize(
    "settling",
    [
        Settling(FENCE - 1, 3, ROW, EPOCH),
        Settling(FENCE + 1, 3, ROW, EPOCH),
        Settling(FENCE, 3, ROW, EPOCH + 1),
        Settling(FENCE, 2, ROW, EPOCH),
    ],
    ids=["an old fence", "another shard's", "another epoch of the shard", "a cell that is not parked"],
)
def test_i7_a_cell_is_settled_under_the_newest_fence_alone(
    kept: Kept, settle: Callable[[Kept, Settling], bool], settling: Settling
) -> None:
    kept.park(kept.shard, waiting(3), waiting(4, is_waiting=True))
    kept.tables.claim(GROUP, {kept.neighbour: FENCE + 1}, soon())

    assert settle(kept, settling) == (settling.added_id == 3)

    assert kept.places() == {(kept.shard, 3), (kept.shard, 4)}
    assert kept.head == 0
    assert kept.tables.due(GROUP, soon()) == set()


@SETTLINGS
def test_i7_what_waits_before_a_cell_that_is_not_settled_goes_on_waiting(
    kept: Kept, settle: Callable[[Kept, Settling], bool]
) -> None:
    """One that was overtaken. Control: where it is settled, the first of the row is due."""
    kept.park(kept.shard, waiting(3, is_waiting=True), waiting(4))

    assert settle(kept, Settling(FENCE, 4, ROW, EPOCH + 1))
    assert kept.tables.due(GROUP, soon()) == set()
    assert not settle(kept, Settling(FENCE, 4, ROW, EPOCH))
    assert kept.tables.due(GROUP, soon()) == {kept.shard}


@SETTLINGS
@pytest.mark.parametrize("fence", [FENCE - 1, FENCE + 1], ids=["an old fence", "another shard's"])
def test_i7_a_former_holder_makes_nothing_due(kept: Kept, settle: Callable[[Kept, Settling], bool], fence: int) -> None:
    """Though the cell that it settles was settled by the newest one."""
    kept.park(kept.shard, waiting(3, is_waiting=True))
    kept.tables.claim(GROUP, {kept.neighbour: FENCE + 1}, soon())

    assert not settle(kept, Settling(fence, 9, ROW, EPOCH))
    assert kept.tables.due(GROUP, soon()) == set()


@SETTLINGS
def test_i7_control_what_is_settled_is_forgotten_in_its_shard_and_its_group_alone(
    kept: Kept, settle: Callable[[Kept, Settling], bool]
) -> None:
    """The next of its row is due then, and no other is."""
    another = uuid4().bytes
    for shard, group in [(kept.shard, GROUP), (kept.neighbour, GROUP), (kept.shard, OTHER)]:
        kept.park(
            shard,
            waiting(2, row=another),
            waiting(3),
            waiting(4, is_waiting=True),
            waiting(5, is_waiting=True),
            waiting(6, row=another, is_waiting=True),
            group=group,
        )

    assert not settle(kept, Settling(FENCE, 3, ROW, EPOCH))

    assert kept.places() == {(kept.shard, n) for n in (2, 4, 5, 6)} | {(kept.neighbour, n) for n in range(2, 7)}
    assert kept.places(OTHER) == {(kept.shard, n) for n in range(2, 7)}
    due = {(row.shard, row.added_id) for row in kept.parked() if row.is_due and not row.is_waiting}
    assert due == {(kept.shard, 4)}
    assert {row.added_id for row in kept.parked(kept.shard) if row.is_waiting} == {5, 6}
    assert kept.tables.due(GROUP, soon()) == {kept.shard}
    assert kept.tables.due(OTHER, soon()) == set()
    assert kept.head == (1 if settle is _put_and_settle else 0)


@pytest.mark.parametrize("settle", [True, False], ids=["settle", "advance"])
@pytest.mark.parametrize("is_purged", [True, False], ids=["purged", "control"])
def test_i2_what_joins_a_commit_stores_no_key_that_was_purged(kept: Kept, is_purged: bool, settle: bool) -> None:
    """Its progress is made all the same, and its other cells are stored."""
    kept.park(kept.shard, waiting(3))
    other = NewCell(next(keys_in(kept.store, kept.shard)).bytes, b"STATUS", 1, b"1")
    if is_purged:
        kept.node.purging.keep(kept.gate(), [whole_row(ROW)], soon())

    cells = [kept.cell(), other, kept.cell(ref_key=2)]
    if settle:
        settling = Settling(FENCE, 3, ROW, EPOCH)
        is_parked, stored = kept.tables.put_and_settle(kept.gate(), GROUP, cells, settling, soon())
        assert not is_parked
    else:
        step = GroupStep(FENCE, EPOCH, 4, EPOCH)
        seen, stored = kept.tables.put_and_advance(kept.gate(), GROUP, cells, step, soon())
        assert seen.offset is not None
        assert seen.offset[:2] == (EPOCH, 4)

    wanted = [other] if is_purged else cells
    assert {each[1:4] for each in stored} == {cell[:3] for cell in wanted}
    assert kept.head == len(wanted)


def test_beside_an_offset_stand_the_state_and_the_head_of_its_shard(kept: Kept) -> None:
    kept.put(3)

    found = kept.tables.find(GROUP, [kept.shard, kept.neighbour], soon())

    assert {shard: seen.head for shard, seen in found.items()} == {kept.shard: 3, kept.neighbour: 0}
    assert {seen.state for seen in found.values()} == {ShardState(EPOCH, 0, "RW")}
    assert kept.tables.find(GROUP, [99], soon())[99].state.status == "MOVED"
    assert kept.tables.claim(GROUP, {kept.shard: FENCE}, soon()) == {kept.shard: found[kept.shard]}


@pytest.mark.parametrize("settle", [True, False], ids=["settle", "advance"])
@pytest.mark.parametrize(
    "gate",
    [
        {"epoch": EPOCH + 1},
        {"epoch": EPOCH - 1},
        {"authority_epoch": 1},
    ],
    ids=["a later epoch", "an older epoch", "another authority"],
)
def test_i9_what_the_shard_refuses_to_take_moves_nothing(kept: Kept, gate: dict[str, int], settle: bool) -> None:
    kept.park(kept.shard, waiting(3))
    refusing = kept.gate(**gate)  # type: ignore[arg-type]  # no kind is among them

    if settle:
        is_parked, stored = kept.tables.put_and_settle(
            refusing, GROUP, [kept.cell()], Settling(FENCE, 3, ROW, EPOCH), soon()
        )
        assert is_parked
    else:
        step = GroupStep(FENCE, EPOCH, 4, EPOCH)
        _seen, stored = kept.tables.put_and_advance(refusing, GROUP, [kept.cell()], step, soon())

    assert stored == []
    assert kept.offset(kept.shard)[:2] == (EPOCH, 3)
    assert kept.places() == {(kept.shard, 3)}
    assert kept.head == 0


@pytest.mark.parametrize(
    "step",
    [
        GroupStep(FENCE - 1, EPOCH, 4, EPOCH),
        GroupStep(FENCE, EPOCH, 3, EPOCH),
        GroupStep(FENCE, EPOCH - 1, 9, EPOCH),
        GroupStep(FENCE, EPOCH, 4, EPOCH + 1),
    ],
    ids=["an old fence", "no way on", "an older epoch", "another epoch of the shard"],
)
def test_i7_cells_that_join_a_step_that_is_none_are_not_put(kept: Kept, step: GroupStep) -> None:
    kept.tables.advance(GROUP, {kept.shard: GroupStep(FENCE, EPOCH, 3, EPOCH)}, soon())

    parking = step._replace(parked=(waiting(step.added_id),))
    _seen, stored = kept.tables.put_and_advance(kept.gate(), GROUP, [kept.cell()], parking, soon())

    assert stored == []
    assert kept.offset(kept.shard)[:2] == (EPOCH, 3)
    assert kept.head == 0


def test_i7_control_cells_that_join_a_step_are_put_with_it_in_their_shard_and_group_alone(kept: Kept) -> None:
    step = GroupStep(FENCE, EPOCH, 4, EPOCH, (waiting(4),))

    seen, stored = kept.tables.put_and_advance(kept.gate(), GROUP, [kept.cell()], step, soon())

    assert [cell[1:5] for cell in stored] == [kept.cell()]
    assert seen.offset == Offset(EPOCH, 4, FENCE)
    assert kept.places() == {(kept.shard, 4)}
    assert kept.offset(kept.neighbour)[:2] == kept.offset(kept.shard, OTHER)[:2] == (EPOCH, 0)


@pytest.mark.parametrize("settle", [True, False], ids=["settle", "advance"])
def test_i2_where_another_body_stands_under_a_key_nothing_is_put_and_nothing_moves(kept: Kept, settle: bool) -> None:
    kept.park(kept.shard, waiting(3))
    step = GroupStep(FENCE, EPOCH, 4, EPOCH)
    kept.tables.put_and_advance(kept.gate(), GROUP, [kept.cell()], step, soon())
    cells = [kept.cell(ref_key=2), kept.cell(b"2")]

    if settle:
        kept.tables.put_and_settle(kept.gate(), GROUP, cells, Settling(FENCE, 3, ROW, EPOCH), soon())
    else:
        kept.tables.put_and_advance(kept.gate(), GROUP, cells, step._replace(added_id=5), soon())

    assert kept.offset(kept.shard)[:2] == (EPOCH, 4)
    assert kept.places() == {(kept.shard, 3)}
    assert kept.head == 1


@pytest.mark.parametrize("fence", [FENCE, FENCE - 1, FENCE + 1], ids=["the newest", "an old fence", "another shard's"])
def test_i7_another_attempt_is_counted_under_the_newest_fence_for_one_cell(kept: Kept, fence: int) -> None:
    """Control: the others."""
    for shard, group in [(kept.shard, GROUP), (kept.neighbour, GROUP), (kept.shard, OTHER)]:
        kept.park(shard, waiting(3), waiting(4), group=group)

    kept.tables.claim(GROUP, {kept.neighbour: FENCE + 1}, soon())
    news = waiting(3, seconds=0.0)._replace(attempts=2)
    kept.tables.postpone(GROUP, kept.shard, fence, news, soon())

    again = {(row.shard, row.added_id) for row in kept.parked() if row.attempts == 2}
    assert again == ({(kept.shard, 3)} if fence == FENCE else set())
    assert {row.attempts for row in kept.parked(group=OTHER)} == {1}
    assert kept.tables.due(GROUP, soon()) == ({kept.shard} if fence == FENCE else set())


@pytest.mark.parametrize(
    ("of_shard", "added_id", "due"),
    [(None, None, "first first' second"), (0, None, "first first'"), (0, 3, "first"), (1, None, "second")],
)
def test_what_is_to_be_tried_again_at_once_is_one_groups_shards_or_cells(
    kept: Kept, of_shard: int | None, added_id: int | None, due: str
) -> None:
    names = {(kept.shard, 3): "first", (kept.shard, 4): "first'", (kept.neighbour, 3): "second"}
    kept.park(kept.shard, waiting(3), waiting(4))
    kept.park(kept.neighbour, waiting(3))
    kept.park(kept.shard, waiting(3), group=OTHER)

    shard = None if of_shard is None else (kept.shard, kept.neighbour)[of_shard]
    assert kept.tables.retry(GROUP, shard, added_id, soon()) == len(due.split())

    assert {names[row.shard, row.added_id] for row in kept.parked() if row.is_due} == set(due.split())
    assert not any(row.is_due for row in kept.parked(group=OTHER))


def test_parked_cells_are_found_by_shard_and_counted_without_those_that_wait(kept: Kept) -> None:
    kept.park(kept.shard, waiting(3, seconds=0.0), waiting(4, is_waiting=True, seconds=0.0))
    kept.park(kept.neighbour, waiting(5), waiting(6, is_waiting=True, seconds=0.0))
    kept.park(kept.shard, waiting(9), group=OTHER)

    assert [row.added_id for row in kept.parked(kept.shard)] == [3, 4]
    assert [row.added_id for row in kept.tables.parked(GROUP, None, 3, soon())] == [3, 4, 5]
    assert {row.added_id for row in kept.tables.parked_of(GROUP, [kept.neighbour], soon())} == {5, 6}
    assert {key[:2] for key in kept.tables.parked_keys(GROUP, [kept.shard], soon())} == {
        (kept.shard, 3),
        (kept.shard, 4),
    }
    assert not kept.tables.parked_of(GROUP, [], soon())
    assert not kept.tables.parked_keys(GROUP, [], soon())
    assert kept.tables.count_parked(GROUP, soon()) == 2
    assert kept.tables.due(GROUP, soon()) == {kept.shard}


def test_claims_and_calls_are_noted_by_shard_and_group(kept: Kept) -> None:
    both = [kept.shard, kept.neighbour]
    for group in (GROUP, OTHER):
        kept.tables.note_claims(group, both, soon())
    kept.tables.note_call(GROUP, kept.shard, FENCE, CallNote(EPOCH, 3, 1), soon())
    kept.tables.note_call(GROUP, kept.neighbour, FENCE - 1, CallNote(EPOCH, 3, 1), soon())
    kept.tables.note_claims(GROUP, [kept.shard], soon())
    kept.tables.advance(GROUP, {kept.neighbour: GroupStep(FENCE, EPOCH + 1, 0, EPOCH)}, soon())

    found = kept.tables.note_claims(GROUP, both, soon())
    assert found[kept.shard] == (3, CallNote(EPOCH, 3, 1))
    assert found[kept.neighbour] == (1, CallNote(0, 0, 0)), "its offset moved; the note was of an old fence"
    assert kept.tables.note_claims(OTHER, [kept.shard], soon())[kept.shard] == (2, CallNote(0, 0, 0))
