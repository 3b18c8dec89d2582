"""An address that leads to a hot standby: its answers are never the authority's, and the error names it (I9, I12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from schemaless_core import Cell
from tests.facades import Migration
from tests.integration.test_legacy_standing import INDEXES, READS
from tests.integration.test_poolers import WAYS
from tests.legacy import FLAVOURS, layout
from tests.legacy_backends import SHARDS
from tests.legacy_databases import PATIENT
from tests.mirrors import reversing
from tests.standbys import OLD, TRUE, FailingOver, Pair, cut_off, fail_over, pair
from tests.stores import Stores
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture.functions.gate import SAYS
from tripstore.backends.postgres.cells import fence
from tripstore.backends.postgres.cells.past.reader import PastReader
from tripstore.backends.postgres.errors import LegacyUnavailable, StandbyRefused
from tripstore.backends.postgres.wire import session
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.handover.ports import Chunk, StorePort
from tripstore.handover.steps import run
from tripstore.handover.switch import reverse
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.mirror import Mirror
from tripstore.phase import Phase
from tripstore.ports.store import SchemalessPort


@pytest.fixture(scope="module", params=FLAVOURS)
def followed(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with LocalServers() as its:
        yield pair(its, request.param, "followed")


@pytest.mark.parametrize("way", WAYS)
def test_all_our_connections_refuse_a_standby_by_its_name(followed: Pair, way: str) -> None:
    with pytest.raises(StandbyRefused, match="Postgres is a standby") as told:
        WAYS[way](followed.url)

    assert "primary" in (told.value.hint or "")


@pytest.fixture
def owner(followed: Pair, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresBackend]:
    """The authority's reads over a session of a standby: something in between spreads statements over both servers."""
    monkeypatch.setattr(session, "refuse_standby", lambda _: None)
    database = LegacyDatabase(followed.url, PATIENT)
    with PostgresBackend(database, layout(), shards=SHARDS, indexes=INDEXES) as store:
        yield store.as_owner(0)


@pytest.mark.parametrize("read", sorted(READS))
def test_i9_no_read_of_a_standby_counts_as_the_authoritys(owner: PostgresBackend, followed: Pair, read: str) -> None:
    with pytest.raises(LegacyUnavailable):  # the log of a shard gives numbers, and so it writes
        READS[read](owner, followed.row_key)


def test_control_without_the_gates_look_the_old_value_is_the_authoritys(
    owner: PostgresBackend, followed: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StandbyRefused):
        owner.get_cell_latest(followed.row_key, "BASE")
    monkeypatch.setattr(fence, "READ_GATE", SAYS)
    fence._prepared_with_gate.cache_clear()
    try:
        cell = owner.get_cell_latest(followed.row_key, "BASE")
    finally:
        fence._prepared_with_gate.cache_clear()

    assert cell is not None
    assert isinstance(cell.body, dict)
    assert cell.body["fare"] == OLD


@pytest.fixture(params=FLAVOURS)
def failing_over(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[FailingOver]:
    with fail_over(servers, stores, request.param) as made:
        yield made


def test_i9_an_address_that_moves_to_a_standby_ends_the_answers_until_that_is_promoted(
    failing_over: FailingOver,
) -> None:
    """The process runs on: it says why it does not answer, and then answers the truth, without a restart."""
    made, store = failing_over.pair, failing_over.store
    reader = PastReader(f"{failing_over.proxy.url}/{made.legacy.name}", layout())
    assert failing_over.fare() == TRUE
    assert reader.read(Chunk(rows=10)).rows == 1

    failing_over.proxy.lead_to(made.standby.port)

    asks: list[Callable[[], object]] = [
        failing_over.fare,
        lambda: store.put_cell(made.row_key, "FREE", 1, "x"),
        failing_over.relay,
        lambda: reader.read(Chunk(rows=10)),
    ]
    for ask in asks:
        with pytest.raises(StandbyRefused):
            ask()
    assert failing_over.mirrored() is None

    made.standby.query("SELECT pg_wal_replay_resume()")
    made.standby.catch_up()
    made.primary.kill()
    made.standby.promote()

    assert failing_over.fare() == TRUE
    assert store.put_cell(made.row_key, "FREE", 1, "x").status == "CREATED"
    assert failing_over.relay()
    assert failing_over.mirrored() == TRUE
    assert reader.read(Chunk(rows=10)).rows == 1
    reader.close()


ACKNOWLEDGED = Cell(UUID(int=44), "FREE", 1, "acknowledged")


def lost_with_the_primary(failing_over: FailingOver) -> Migration:
    """Schemaless is the authority, and its cell was carried to a Postgres whose standby was cut off by then."""
    made = failing_over.pair
    hands = Migration(failing_over.store, made.legacy, {})
    hands.carry()
    hands.phase(Phase.LIVE)
    hands.carry()  # the reverse mirror has served every shard: there are positions
    made.standby.query("SELECT pg_wal_replay_resume()")
    made.standby.catch_up()
    cut_off(made.standby)
    failing_over.store.put_cell(*ACKNOWLEDGED.key, ACKNOWLEDGED.body)
    hands.carry()
    assert hands.duo.legacy.get_cell(*ACKNOWLEDGED.key) == ACKNOWLEDGED
    failing_over.lose_the_primary()
    return hands


def unmirrored(port: StorePort) -> int:
    return sum(map(port.unmirrored, port.servers))


def test_i1_the_way_back_waits_until_a_promoted_postgres_has_again_what_it_lost(failing_over: FailingOver) -> None:
    """No cell is put meanwhile."""
    hands = lost_with_the_primary(failing_over)
    ports = hands.duo.ports
    status = Mirror(hands.facade).status().reverse
    assert status is not None
    assert unmirrored(ports.store) == status.cells >= 1
    assert hands.duo.legacy.get_cell(*ACKNOWLEDGED.key) is None

    with reversing(hands):
        outcome = run(reverse(ports, "back"))

    assert outcome.is_decided, outcome.reason
    hands.duo.watch.look()
    assert failing_over.store.get_cell(*ACKNOWLEDGED.key) == ACKNOWLEDGED


def test_control_by_the_shards_offsets_alone_the_way_back_loses_what_was_acknowledged(
    failing_over: FailingOver,
) -> None:
    hands = lost_with_the_primary(failing_over)
    offsets_alone = SchemalessPort(hands.facade.store, lambda cell, error: None)
    assert unmirrored(offsets_alone) == 0

    outcome = run(reverse(hands.duo.ports._replace(store=offsets_alone), "back"))

    assert outcome.is_decided
    hands.duo.watch.look()
    assert failing_over.store.get_cell(*ACKNOWLEDGED.key) is None
