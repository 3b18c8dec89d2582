"""What a Postgres had said before it was lost is not believed of the one that was promoted (I1, I2, I8, I12).

Marks and claims of its queue, comparisons with it, and entries of the bodies that it gave. How far the reverse mirror
is: `test_standbys`, `test_reverse_progress`. Checkpoints and verdicts of jobs: `test_promotions_at_work`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from schemaless_core import Cell, Json
from schemaless_core.control.ledgers.ledgers import Ledgers
from schemaless_core.mends import Mends
from tests.facades import Migration, facts_of
from tests.indexing import catch_up, only_maintained
from tests.promotions import check_accepted, check_ledger, compared, mend_mirror, refused
from tests.repairs import STATUS_INDEX
from tests.standbys import FAILING_OVER, FailingOver, cut_off, fail_over
from tests.stores import Stores
from tripstore.handover.accept import EPOCHS_PER_TIMELINE, end_of_generation
from tripstore.handover.ports import Copies
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.facts import ReverseFacts
from tripstore.migration.cutover.plan import Direction, plan
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.rehearsal_ledger import rehearsal_counts
from tripstore.ports import legacy as legacy_port

LOST, KEPT = "lost", "kept"
UPDATE = "UPDATE trips SET status = %s WHERE trip_uuid = %s"


@pytest.fixture(params=FAILING_OVER)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, request.param, indexes=[STATUS_INDEX]) as made:
        made.hands.carry()
        only_maintained(made.hands.facade.store)
        yield made


def status_of(cell: Cell | None) -> Json:
    assert cell is not None
    assert isinstance(cell.body, dict)
    return cell.body["status"]


def mirrored(hands: Migration, failing_over: FailingOver) -> Json:
    return status_of(hands.facade.store.as_copier().get_cell_latest(failing_over.pair.row_key, "BASE"))


def promoted(failing_over: FailingOver, statement: str, *values: object) -> list[dict[str, object]]:
    """SQL of a program, on the promoted server."""
    return failing_over.pair.standby.query(statement, *values, database=failing_over.pair.legacy.name)


def claimed(failing_over: FailingOver) -> Copies:
    """A relay has claimed a change that the standby lacks."""
    hands = failing_over.shadowed()
    cut_off(failing_over.pair.standby)
    hands.legacy.sql(UPDATE, LOST, str(failing_over.pair.row_key))
    claim = hands.duo.ports.legacy.claim(10)
    assert [status_of(cell) for cell in claim.cells] == [LOST]
    return claim


def lost_and_given_again(failing_over: FailingOver) -> None:
    """The promoted Postgres is accepted, and a service's change gets the ref key of the one that is lost."""
    failing_over.lose_the_primary()
    failing_over.hands.duo.watch.look()
    check_accepted(failing_over.hands)
    promoted(failing_over, UPDATE, KEPT, str(failing_over.pair.row_key))


def queued(failing_over: FailingOver) -> int:
    return len(promoted(failing_over, "SELECT 1 FROM tripstore.queue"))


def test_i8_a_relays_mark_that_comes_late_marks_no_change_of_the_promoted_postgres(failing_over: FailingOver) -> None:
    """It had sent the lost change. Under the same key another one is queued by now: that is not delivered."""
    claim, hands = claimed(failing_over), failing_over.hands
    sent = hands.duo.ports.store.copy(claim.cells, claim.epoch)
    lost_and_given_again(failing_over)

    hands.duo.ports.legacy.mark_delivered(sent)

    assert queued(failing_over) == 1
    assert {key.ref_key for key in check_ledger(hands)} == {claim.cells[0].ref_key}
    mend_mirror(hands)
    assert mirrored(hands, failing_over) == KEPT
    hands.carry()
    assert queued(failing_over) == 0


def test_control_a_mark_that_goes_by_the_key_alone_takes_a_change_for_delivered(
    failing_over: FailingOver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy_port, "end_of_generation", lambda _epoch: end_of_generation(9 * EPOCHS_PER_TIMELINE))
    claim, hands = claimed(failing_over), failing_over.hands
    sent = hands.duo.ports.store.copy(claim.cells, claim.epoch)
    lost_and_given_again(failing_over)

    hands.duo.ports.legacy.mark_delivered(sent)

    assert queued(failing_over) == 0
    assert mirrored(hands, failing_over) == LOST


@pytest.mark.parametrize("is_fenced", [True, False], ids=["as claimed", "control: at the epoch of now"])
def test_i2_what_a_relay_had_claimed_of_the_lost_postgres_no_shard_takes(
    failing_over: FailingOver, is_fenced: bool
) -> None:
    """Else the mirror has another body under the key that the promoted Postgres gave, and its change is parked."""
    claim, hands = claimed(failing_over), failing_over.hands
    lost_and_given_again(failing_over)
    epoch = claim.epoch if is_fenced else hands.duo.ports.control.authority().epoch

    taken = hands.duo.ports.store.copy(claim.cells, epoch)

    if not is_fenced:
        assert taken
        assert mirrored(hands, failing_over) == LOST
        with pytest.raises(AssertionError, match="cannot be delivered"):
            hands.carry()
        return
    assert taken == ()
    hands.carry()
    assert mirrored(hands, failing_over) == KEPT
    assert check_ledger(hands) == set()


def test_i12_what_was_compared_with_the_lost_postgres_is_no_evidence(failing_over: FailingOver) -> None:
    """A diff that found all equal, and the rehearsal. Control: without the look at the acceptance both count."""
    hands = failing_over.shadowed()
    store, group = hands.facade.store, Mirror(hands.facade).reverse()
    catch_up(store)
    compared(hands)
    cell = store.get_cell_latest(failing_over.pair.row_key, "BASE")
    assert cell is not None
    group.deliver({store.shard_of(cell.row_key): [cell]})
    group.rehearsal.flush()
    assert (rehearsed(hands), "diff" in refused(hands)) == (1, False)
    failing_over.pair.standby.catch_up()
    failing_over.lose_the_primary()
    hands.duo.watch.look()

    assert (rehearsed(hands), "diff" in refused(hands)) == (0, True)
    facts = replace(facts_of(hands), handed_over=None)
    verdicts = plan(Direction.FORWARD, facts, hands.facade.config.cutover).verdicts
    assert next(each for each in verdicts if each.name == "diff").is_passed
    assert rehearsal_counts(Ledgers(store.control)).equal == 1
    compared(hands)
    group.deliver({store.shard_of(cell.row_key): [cell]})
    group.rehearsal.flush()
    assert (rehearsed(hands), "diff" in refused(hands)) == (1, False)


def rehearsed(hands: Migration) -> int:
    """How many cells the gate counts as equal."""
    found = facts_of(hands).reverse
    assert isinstance(found, ReverseFacts)
    return found.equal


@pytest.mark.parametrize("is_rebuilt", [True, False], ids=["rebuilt", "control: offsets are believed"])
def test_i6_entries_of_what_was_lost_go_though_their_index_has_passed_it(
    failing_over: FailingOver, monkeypatch: pytest.MonkeyPatch, is_rebuilt: bool
) -> None:
    """Its offset is behind the cell, whose bytes are replaced where they stand: no cell comes after that."""
    hands = failing_over.shadowed()
    store, key = hands.facade.store, failing_over.pair.row_key
    cut_off(failing_over.pair.standby)
    hands.legacy.sql(UPDATE, LOST, str(key))
    hands.carry()
    catch_up(store)
    assert entries(hands, LOST) == [key]
    lost_and_given_again(failing_over)
    if not is_rebuilt:
        monkeypatch.setattr(Mends, "rebuild", lambda *_arguments: None)

    mend_mirror(hands)
    catch_up(store)

    assert mirrored(hands, failing_over) == KEPT
    assert entries(hands, LOST) == ([] if is_rebuilt else [key])
    assert store.indexes.verify("status_index", patience_seconds=5).is_clean is is_rebuilt


def entries(hands: Migration, status: str) -> list[UUID]:
    page = hands.facade.store.query_index("status_index", status)
    return [entry.row_key for entry in page.entries]
