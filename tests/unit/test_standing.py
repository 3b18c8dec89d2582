"""The fence: who may write to and read from a shard, by kind, state and both epochs. The table is written out."""

from __future__ import annotations

from itertools import product

import pytest

from schemaless_core import ShardStatus, StaleEpoch
from schemaless_core.cell.standing import Gate, Kind, ShardState, Standing

EPOCH, AUTHORITY = 5, 3
OLDER, SAME, NEWER = -1, 0, 1

#: (kind, status) → the caller's authority epochs, relative to the shard's, that may write.
MAY_WRITE = {
    (Kind.OWNER, ShardStatus.RW): {SAME},
    (Kind.OWNER, ShardStatus.COPY): set[int](),
    (Kind.OWNER, ShardStatus.RO): set[int](),
    (Kind.OWNER, ShardStatus.GOING): set[int](),
    (Kind.OWNER, ShardStatus.COMES): set[int](),
    (Kind.OWNER, ShardStatus.MOVED): set[int](),
    (Kind.OWNER, ShardStatus.UNLEASED): set[int](),
    (Kind.COPIER, ShardStatus.RW): {SAME, NEWER},
    (Kind.COPIER, ShardStatus.COPY): {SAME, NEWER},
    (Kind.COPIER, ShardStatus.RO): set[int](),
    (Kind.COPIER, ShardStatus.GOING): set[int](),
    (Kind.COPIER, ShardStatus.COMES): set[int](),
    (Kind.COPIER, ShardStatus.MOVED): set[int](),
    (Kind.COPIER, ShardStatus.UNLEASED): set[int](),
}
FENCED = (ShardStatus.RO, ShardStatus.GOING, ShardStatus.COMES)
CASES = list(product(Kind, ShardStatus, (OLDER, SAME, NEWER), (OLDER, SAME, NEWER)))


def admits_write(gate: Gate, state: ShardState) -> bool:
    try:
        gate.check_write(state)
    except StaleEpoch:
        return False
    return True


def admits_read(gate: Gate, state: ShardState) -> bool:
    try:
        gate.check_read(state)
    except StaleEpoch:
        return False
    return True


@pytest.mark.parametrize(("kind", "status", "epoch", "authority"), CASES)
def test_a_write_is_admitted_exactly_where_the_table_says(
    kind: Kind, status: ShardStatus, epoch: int, authority: int
) -> None:
    gate = Gate(7, EPOCH + epoch, kind, AUTHORITY + authority)
    state = ShardState(EPOCH, AUTHORITY, status.value)

    expected = epoch == SAME and authority in MAY_WRITE[kind, status]

    assert admits_write(gate, state) == expected


@pytest.mark.parametrize(("kind", "status", "epoch", "authority"), CASES)
def test_a_plain_read_counts_from_whichever_cluster_owns_the_shard(
    kind: Kind, status: ShardStatus, epoch: int, authority: int
) -> None:
    gate = Gate(7, EPOCH + epoch, kind, AUTHORITY + authority)
    state = ShardState(EPOCH, AUTHORITY, status.value)

    # A shard that is fenced answers readers that know its next epoch already: it is opened in a moment.
    is_known = epoch == SAME or (status in FENCED and epoch == NEWER)
    assert admits_read(gate, state) == (is_known and status is not ShardStatus.MOVED)


@pytest.mark.parametrize(("kind", "status", "epoch", "authority"), CASES)
def test_a_fenced_read_counts_only_where_the_reader_could_write(
    kind: Kind, status: ShardStatus, epoch: int, authority: int
) -> None:
    gate = Gate(7, EPOCH + epoch, kind, AUTHORITY + authority, is_fenced_read=True)
    state = ShardState(EPOCH, AUTHORITY, status.value)

    assert admits_read(gate, state) == admits_write(gate, state)


def test_a_refusal_says_the_shard_its_state_the_reason_and_a_way_out() -> None:
    with pytest.raises(StaleEpoch) as refused:
        Gate(7, 5, Kind.OWNER, 3).check_write(ShardState(5, 4, "RW"))

    assert (refused.value.shard, refused.value.status) == (7, "RW")
    assert "authority epoch 3 is not its 4" in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("gate", "state", "is_of_authority"),
    [
        (Gate(7, 5, Kind.OWNER, 3), ShardState(5, 4, "RW"), True),
        (Gate(7, 5, Kind.OWNER, 3), ShardState(5, 3, "COPY"), True),
        (Gate(7, 5, Kind.COPIER, 3), ShardState(5, 4, "COPY"), True),
        (Gate(7, 5, Kind.OWNER, 3), ShardState(6, 4, "COPY"), False),  # first of all it is another cluster's
        (Gate(7, 5, Kind.OWNER, 3), ShardState(5, 3, "RO"), False),
        (Gate(7, 5, Kind.OWNER, 3), ShardState(5, 3, "MOVED"), False),
        (Gate(7, 5, Kind.COPIER, 3), ShardState(5, 4, "RO"), False),
    ],
)
def test_a_refusal_says_whether_it_is_of_the_authority(gate: Gate, state: ShardState, is_of_authority: bool) -> None:
    with pytest.raises(StaleEpoch) as refused:
        gate.check_write(state)

    assert refused.value.is_of_authority is is_of_authority


@pytest.mark.parametrize(
    ("standing", "is_fenced"),
    [
        (Standing(), False),
        (Standing(Kind.OWNER, 0), True),
        (Standing(Kind.OWNER, 4), True),
        (Standing(Kind.COPIER, 4), False),
    ],
)
def test_only_owners_with_an_epoch_read_behind_the_fence(standing: Standing, is_fenced: bool) -> None:
    assert standing.is_fenced is is_fenced
