"""How a promoted server's shards are opened: as the authority says, which no hand-over changes meanwhile (I9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from schemaless_core.cell.standing import Kind, ShardState, Standing
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.primacy import Opening
from schemaless_core.errors import NodeUnavailable, PromotionRefused, StaleEpoch
from schemaless_core.promotion import steps
from schemaless_core.promotion.ports import HANDING_OVER, HandingOver, PromotionOrder
from schemaless_core.steps import Step, run
from tests.chaos.test_unresponsive_server import rows_on
from tests.facades import Migration, migration
from tests.promoted import Promotable, promotable
from tests.stores import ServerEngine, Stores
from tripstore.handover import switch
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from tripstore.ports.opened import OpenedAsRow

Said = Opening | Literal[HandingOver.HANDING_OVER]


class Row:
    """An authority that says one thing after the other."""

    def __init__(self, *said: Said) -> None:
        self.left = list(said)

    def opening(self) -> Said:
        return self.left.pop(0)


class Seen(NamedTuple):
    """In the shape that the router wants."""

    state: ShardState


@pytest.fixture
def made(server_engine: ServerEngine, tmp_path: Path) -> Iterator[Promotable]:
    with promotable(server_engine, tmp_path / "control", replicas=1) as it:
        yield it


def promoted(made: Promotable, row: Row, hear: Callable[[Step], None] | None = None) -> None:
    made.store.promotions.promoter("a", row).promote(PromotionOrder(), hear)


def states(made: Promotable) -> set[ShardState]:
    heads = made.store.clusters["a"].primary.ask(lambda node: node.heads(None, Deadline(5.0)))
    return {head.state for head in heads.values()}


def test_a_mirror_stays_a_mirror_and_the_row_is_asked_until_it_is_decided(made: Promotable) -> None:
    row = Row(HANDING_OVER, HANDING_OVER, Opening(2, "COPY"))

    promoted(made, row)

    assert row.left == []
    assert states(made) == {ShardState(2, 2, "COPY")}
    (key,) = rows_on(made.store, "a", 1)
    with pytest.raises(StaleEpoch, match="COPY"):
        made.store.put_cell(key, "BASE", 1, "x")
    assert made.store.as_copier(2).put_cell(key, "BASE", 1, "x").status == "CREATED"


def test_i9_shards_that_know_a_later_epoch_are_not_opened_at_an_earlier_one(made: Promotable) -> None:
    """A hand-over was decided after the row was read. Control: an answer of now opens them."""
    made.store.authority.close("a", 3)
    made.cluster.wait_for_replicas()
    row = Row(Opening(1, "RW"), Opening(3, "COPY"))

    promoted(made, row)

    assert row.left == []
    assert states(made) == {ShardState(2, 3, "COPY")}


def test_i9_a_fenced_server_is_not_closed_so_no_way_back_is_decided(made: Promotable) -> None:
    """Whether it refuses the statement or runs it. Control: once it is opened it is closed as any other."""
    answers: list[bool] = []

    def close_it(step: Step) -> None:
        if step is steps.ASK:
            try:
                answers.append(made.store.authority.close("a", 1, seconds=1.0))
            except (NodeUnavailable, StaleEpoch):
                answers.append(False)

    promoted(made, Row(Opening(1, "RW"), Opening(1, "RW")), close_it)

    assert answers == [False]
    assert made.store.authority.close("a", 2)


def test_i6_what_is_written_beside_the_cells_of_a_fenced_shard_is_refused(made: Promotable) -> None:
    """An entry or an offset that the old primary took after the fence would be lost without a word."""
    shard = made.store.shard_of(rows_on(made.store, "a", 1)[0])
    asked: list[object] = []

    def look(node: Node, wanted: Mapping[int, None]) -> dict[int, Seen]:
        return {n: Seen(head.state) for n, head in node.heads(wanted, Deadline(1.0)).items()}

    def write_it(step: Step) -> None:
        if step is steps.OPEN:
            asked.append(
                made.store._router.write_each({shard: None}, look, Standing(Kind.COPIER), Deadline(0.3))[shard]
            )

    promoted(made, Row(Opening(0, "RW")), write_it)

    (answer,) = asked
    assert isinstance(answer, StaleEpoch)
    assert answer.is_passing


def test_without_an_authority_shards_are_opened_as_they_were_if_they_say_so(made: Promotable) -> None:
    """Those of a mirror say both RW, as they were created, and COPY. The way out: who knows the authority says it."""
    made.store.promotions.promoter("a").promote(PromotionOrder())
    assert states(made) == {ShardState(2, 0, "RW")}
    made.store.authority.make_copies()

    with pytest.raises(PromotionRefused, match="do not say how they were open"):
        made.store.promotions.promoter("a").promote(PromotionOrder())
    promoted(made, Row(Opening(0, "COPY")))

    assert {state[1:] for state in states(made)} == {(0, "COPY")}


@pytest.fixture
def live(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, shards=4) as it:
        yield it


def test_the_row_says_mirror_then_authority_and_nothing_in_between(live: Migration) -> None:
    control = live.duo.ports.control
    opened, found = OpenedAsRow(control), control.authority()
    assert opened.opening() == Opening(found.epoch, "COPY")
    assert control.close(found, found.closing("test"))
    assert opened.opening() is HANDING_OVER
    run(switch.undone(live.duo.ports, control.authority(), "it was given up"))
    live.duo.watch.look()

    live.phase(Phase.LIVE)

    assert opened.opening() == Opening(control.authority().epoch, "RW")
