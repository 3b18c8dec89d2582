"""Relays: every client's committed change reaches Schemaless, whatever dies (I8); services notice nothing."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core import CellKey, Json
from schemaless_core.deadline import Deadline
from tests.chaos.actors import end, running, wait_until
from tests.facades import Migration, migration
from tests.mirrors import (
    changed_keys,
    counted,
    log_of,
    missing,
    process,
    relay_for_ever,
    relaying,
    wait_until_delivered,
)
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.replication import LocalCluster
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.log_keeper import AGAIN_SECONDS, LogKeeper, days_keeper
from tripstore.migration.mirror.mirror import Mirror
from tripstore.migration.mirror.pace import REST_SECONDS_MAX
from tripstore.phase import Phase

#: A mirror's server that does not answer: no test is to wait long for it.
HASTY = {"put_seconds": 0.5, "read_seconds": 0.5, "connect_seconds": 0.3, "pool_seconds": 1.0, "scan_seconds": 5.0}
ENGINES = [("postgres", "sqlite"), ("postgres18", "mariadb"), ("postgres", "mysql")]
CI_ENGINES = ENGINES if SCALE >= 1 else ENGINES[:2]


@pytest.fixture(params=CI_ENGINES, ids=["-".join(pair) for pair in CI_ENGINES])
def everywhere(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    """In the phase dualwrite, on each kind of server."""
    postgres, engine = request.param
    with migration(servers, stores, postgres=postgres, engine=engine) as moving:
        moving.phase(Phase.DUALWRITE)
        yield moving


@pytest.fixture
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores) as made:
        made.phase(Phase.DUALWRITE)
        yield made


def write_everything(moving: Migration) -> None:
    """As services do it, and through the facade."""
    legacy, store = moving.legacy, moving.store
    for _ in range(5):
        id_, key = legacy.trip()
        legacy.sql("UPDATE trips SET status = 'completed', fare = 12.50, driver_id = 1 WHERE id = %s", id_)
        legacy.sql("UPDATE trips SET memo = 'not mapped' WHERE id = %s", id_)
        legacy.sql(
            "INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result) VALUES (%s, %s, 1, 'declined')",
            id_,
            str(key),
        )
        legacy.sql("INSERT INTO notes (trip_id, trip_uuid, n, text) VALUES (%s, %s, 1, 'hello')", id_, str(key))
        legacy.sql("UPDATE notes SET text = 'bye' WHERE trip_id = %s", id_)
        store.put_cell(key, "BASE", 7, {"status": "put"})
        store.put_cell(key, "FREE", 1, ["no table has this"])
        store.append_cell(key, "STATUS", {"result": "captured"})
    legacy.sql("DELETE FROM trips WHERE id = %s", id_)
    early = uuid4()
    store.put_cell(early, "STATUS", 1, {"result": "before its parent"})
    store.put_cell(early, "BASE", 1, {"status": "late"})
    store.put_cell(early, "BASE", 4, {"status": "later"})
    store.put_cell(early, "BASE", 2, {"status": "history"})
    store.put_cell(early, "FREE", 3, None)


def test_i8_whatever_services_and_the_facade_write_arrives(everywhere: Migration) -> None:
    with relaying(everywhere, relays=2):
        write_everything(everywhere)
        wait_until_delivered(everywhere)

    assert len(changed_keys(everywhere)) > 50
    assert missing(everywhere) == []
    assert {CellKey(*cell.key) for cell in log_of(everywhere)} == set(changed_keys(everywhere))


def test_a_legacy_id_arrives_before_the_row_that_has_it(moving: Migration) -> None:
    id_, key = moving.legacy.trip()
    with relaying(moving):
        wait_until_delivered(moving)

    pair, base = log_of(moving)
    assert (pair.key, pair.body) == ((key, LEGACY_ID, 0), {"id": id_})
    assert base.key == (key, "BASE", 1)


@pytest.mark.parametrize("phase", [Phase.OFF, Phase.DUALWRITE, Phase.SHADOW])
def test_a_relay_carries_in_the_phases_that_have_a_mirror(moving: Migration, phase: Phase) -> None:
    moving.phase(phase)
    _id, key = moving.legacy.trip()

    Mirror(moving.facade).relay().turn()

    assert (moving.facade.store.get_cell(key, "BASE", 1) is not None) is (phase is not Phase.OFF)


def test_a_relay_rests_while_schemaless_is_the_authority(moving: Migration) -> None:
    moving.phase(Phase.LIVE)
    relay = Mirror(moving.facade).relay()
    before = counted("tripstore_relay_seconds_count")

    relay.turn()

    assert counted("tripstore_relay_seconds_count") == before
    assert counted("tripstore_mirror_lag_changes", direction="forward") == 0


def test_control_a_change_that_is_marked_and_not_sent_is_missed(moving: Migration) -> None:
    _id, key = moving.legacy.trip()
    queue = moving.duo.ports.legacy

    queue.mark_delivered(queue.claim(10).cells)

    assert missing(moving) == [(key, "BASE", 1), (key, LEGACY_ID, 0)]


POINTS = ["relay.claim", "relay.send", "relay.mark"]


@pytest.mark.parametrize("point", POINTS)
def test_i8_a_relay_that_is_killed_loses_nothing_and_another_takes_over(
    moving: Migration, failpoints: Path, point: str
) -> None:
    (failpoints / point).write_text("kill")
    write_everything(moving)
    with running([process(relay_for_ever, moving, failpoints)]):
        wait_until(f"it died at {point}", (failpoints / f"{point}.hit").exists)
        with relaying(moving):
            wait_until_delivered(moving)

    assert missing(moving) == []


def test_i8_a_relay_that_is_killed_before_it_parks_leaves_it_to_another(moving: Migration, failpoints: Path) -> None:
    key = uuid4()
    put_foreign(moving, key)
    moving.legacy.trip(row_key=key)
    (failpoints / "relay.park").write_text("kill")
    with running([process(relay_for_ever, moving, failpoints)]):
        wait_until("it died", (failpoints / "relay.park.hit").exists)
        with relaying(moving):
            wait_until_delivered(moving, parked=1)


def test_i8_a_stopped_relay_that_goes_on_late_does_no_harm(moving: Migration, failpoints: Path) -> None:
    """Its claim has run out, others have delivered it: it sends once more, and marks what is gone."""
    (failpoints / "relay.send").write_text("wait")
    write_everything(moving)
    stopped = process(relay_for_ever, moving, failpoints)
    with running([stopped]):
        wait_until("it has claimed", (failpoints / "relay.send.hit").exists)
        with relaying(moving):
            wait_until_delivered(moving)
        (failpoints / "relay.send.go").touch()
        _id, key = moving.legacy.trip()
        wait_until_delivered(moving)
        end(stopped)

    assert moving.facade.store.get_cell(key, "BASE", 1) is not None
    assert missing(moving) == []


def put_foreign(moving: Migration, key: UUID, column: str = "BASE", ref_key: int = 1, body: Json = "foreign") -> None:
    """A foreign cell: the mirror has it, and the authority knows nothing of it."""
    moving.facade.store.as_copier().put_cell(key, column, ref_key, body)


def take_foreign_away(moving: Migration, key: UUID, column: str = "BASE") -> None:
    """What only a repair may do."""
    for cluster in moving.facade.config.core.clusters:
        folder = Path(str(cluster.primary).removeprefix("sqlite:///"))
        for file in folder.glob("*.db"):
            with sqlite3.connect(file) as connection:
                tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'cell%'")
                for (table,) in tables.fetchall():
                    connection.execute(
                        f"DELETE FROM {table} WHERE row_key = ? AND column_name = ?", (key.bytes, column.encode())
                    )
            connection.close()


@pytest.mark.parametrize("column", ["BASE", LEGACY_ID])
def test_i2_a_change_in_conflict_is_parked_with_its_reason_and_carried_after_mending(
    moving: Migration, column: str
) -> None:
    key = uuid4()
    put_foreign(moving, key, column, ref_key=0 if column == LEGACY_ID else 1)
    moving.legacy.trip(row_key=key)
    _id, other = moving.legacy.trip()
    parked = Mirror(moving.facade).parked(is_reverse=False)

    with relaying(moving):
        wait_until_delivered(moving, parked=1)
        [found] = parked.listed(10)
        assert (found.key, found.kind) == ((key, "BASE", 1), "conflict")
        assert "another body" in found.because
        assert moving.facade.store.get_cell(other, "BASE", 1) is not None

        take_foreign_away(moving, key, column)
        assert parked.retry(lambda change: change.row_key == key) == 1
        wait_until_delivered(moving)

    assert missing(moving) == []
    assert parked.retry(None) == 0


def test_what_no_cell_can_hold_is_parked(servers: LocalServers, stores: Stores) -> None:
    with migration(servers, stores, max_body_bytes=200) as small:
        small.phase(Phase.DUALWRITE)
        _id, key = small.legacy.trip(status="x" * 300)
        with relaying(small):
            wait_until_delivered(small, parked=1)
        [found] = Mirror(small.facade).parked(is_reverse=False).listed(10)

    assert (found.key, found.kind) == ((key, "BASE", 1), "refused")


def behind_proxies(clusters: list[LocalCluster], proxies: list[Any]) -> dict[str, Any]:
    return {name: {"primary": proxy.url} for name, proxy in zip("ab", proxies, strict=True)}


def test_i10_a_mirror_that_is_down_delays_no_service_and_catches_up(servers: LocalServers, stores: Stores) -> None:
    clusters = stores.clusters("mariadb")
    proxies = [cluster.primary.proxy() for cluster in clusters]
    behind = behind_proxies(clusters, proxies)
    breaker = {"failures": 1, "pause_seconds": 0.1, "pause_seconds_max": 0.5}
    with migration(servers, stores, engine="mariadb", clusters=behind, deadlines=HASTY, breaker=breaker) as moving:
        moving.phase(Phase.DUALWRITE)
        with relaying(moving):
            moving.legacy.trip()
            wait_until_delivered(moving)

            for proxy in proxies:
                proxy.refuse()
            failures = counted("tripstore_relay_failures_total", cause="undelivered")
            moving.legacy.trip()
            wait_until("it noticed", lambda: counted("tripstore_relay_failures_total", cause="undelivered") > failures)
            noticed, seconds = counted("tripstore_relay_failures_total", cause="undelivered"), list[float]()
            with closing(unhindered(moving)) as service:
                while len(seconds) < 50 or counted("tripstore_relay_failures_total", cause="undelivered") == noticed:
                    seconds.append(timed(lambda: rows(service, INSERT, (str(uuid4()),))))
            assert max(seconds) < HASTY["put_seconds"]

            for proxy in proxies:
                proxy.heal()
            wait_until_delivered(moving)
        assert missing(moving) == []


def test_control_who_waits_for_a_lock_is_hindered(moving: Migration) -> None:
    with closing(moving.legacy.connect()) as holder, closing(unhindered(moving)) as service:
        rows(holder, "LOCK TABLE tripstore.queue IN SHARE MODE")

        with pytest.raises(postgres.LockNotAvailable):
            rows(service, INSERT, (str(uuid4()),))


def test_i10_a_server_that_is_down_keeps_no_change_from_another_server(servers: LocalServers, stores: Stores) -> None:
    """More changes wait for it than a relay claims at once, and all of them are older."""
    clusters = stores.clusters("mariadb")
    proxies = [cluster.primary.proxy() for cluster in clusters]
    breaker = {"failures": 1, "pause_seconds": 0.1, "pause_seconds_max": 0.5}
    with migration(
        servers, stores, engine="mariadb", clusters=behind_proxies(clusters, proxies), deadlines=HASTY, breaker=breaker
    ) as moving:
        moving.phase(Phase.DUALWRITE)
        store = moving.facade.store
        down = set(store.clusters["a"].primary.node.heads(None, Deadline(5)))
        proxies[0].refuse()
        trips(moving, [row_in(store, down) for _ in range(600)])
        keys = [row_in(store, set(range(8)) - down) for _ in range(50)]
        trips(moving, keys)
        with relaying(moving):
            wait_until("others arrived", lambda: all(store.get_cells([CellKey(key, "BASE", 1) for key in keys])))
            proxies[0].heal()
            wait_until_delivered(moving)
        assert missing(moving) == []


INSERT = "INSERT INTO trips (trip_uuid) VALUES (%s)"


def unhindered(moving: Migration) -> Connection:
    """A service that fails when it has to wait for a lock of ours, and which waits for no disk."""
    service = moving.legacy.connect(autocommit=True)
    rows(service, "SET lock_timeout = '50ms'; SET synchronous_commit = off")
    return service


def trips(moving: Migration, keys: list[UUID]) -> None:
    moving.legacy.sql("INSERT INTO trips (trip_uuid) SELECT unnest(%s::uuid[])", [str(key) for key in keys])


def row_in(store: Any, shards: set[int]) -> UUID:
    while True:
        key = uuid4()
        if store.shard_of(key) in shards:
            return key


def timed(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def test_a_relay_rests_longer_and_longer_while_nothing_is_taken(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirror(moving.facade)
    relay = mirror.relay()
    assert moving.facade.config.legacy is not None
    moving.legacy.trip()
    relay.turn()
    moving.legacy.sql("ALTER TABLE tripstore.queue RENAME TO away")
    try:
        rests = [relay.turn() for _ in range(12)]
    finally:
        moving.legacy.sql("ALTER TABLE tripstore.away RENAME TO queue")

    assert rests == sorted(rests)
    assert rests[-1] == REST_SECONDS_MAX
    assert relay.turn() < REST_SECONDS_MAX


def test_the_days_of_the_log_are_made_before_the_first_relay_and_a_failure_ends_nothing(moving: Migration) -> None:
    assert moving.facade.config.legacy is not None
    keep = days_keeper(moving.facade.config.legacy, 8)
    calls: list[str] = []

    def failing() -> None:
        calls.append("asked")
        raise LegacyUnavailable("Postgres is away.")

    with LogKeeper(keep):
        tables = moving.legacy.sql("SELECT count(*) FROM pg_class WHERE relname ~ '^log_[0-9]{8}$'")
    assert tables[0][0] > 1
    assert LogKeeper(failing).turn() == AGAIN_SECONDS
    assert calls == ["asked"]
