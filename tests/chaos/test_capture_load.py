"""Eight services write the legacy tables at once, fail, deadlock and are killed: capture holds what was committed (I8).

What the witnesses hold was committed, whatever the writer lived to hear (`capture_actors`); what capture must hold of
it is in `capture_rules`.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.chaos.actors import end, running
from tests.chaos.capture_actors import ROLLING_BACK, WITNESS, errors_in, seeds, writer
from tests.chaos.capture_rules import OF_POSTGRES, VIEW, check, wrong
from tests.integration.capture_versions.test_reinserts import before_insert_alone
from tests.legacy import DELIVER, FLAVOURS, Legacy, layout, legacy_server
from tests.scale import scaled
from tripstore.backends.postgres.sqlstates import BELOW_TOMBSTONE, NO_PARENT
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

WRITERS = 8
CHANGES = scaled(200_000, short=3_000)
#: At most: the control ends as soon as it is caught.
CONTROL_CHANGES = 20_000
SECONDS = 1500

#: A deadlock is found soon; no server dies here, so nothing waits for a disk. An update that finds no room in its page
#: makes Postgres itself forget a lock, as `test_forgotten_locks` shows.
SETTINGS = (
    "ALTER DATABASE {0} SET deadlock_timeout = '15ms'; ALTER DATABASE {0} SET synchronous_commit = off;"
    "ALTER TABLE trips SET (fillfactor = 10)"
)

SERIALIZATION, DEADLOCK = "40001", "40P01"
#: What services meet without capture, too, and a fact whose number was taken long before the deletion of its trip.
ALLOWED = {DEADLOCK, "trips_trip_uuid_key", "notes_pkey", "attempts", NO_PARENT, BELOW_TOMBSTONE, ROLLING_BACK}

COMMITTED = "SELECT count(*) FROM changes"
BACKENDS = "pg_stat_activity WHERE application_name = 'writer' AND datname = current_database()"
PACE_SECONDS = 0.05
#: No version of capture can hold what Postgres does not.
FORGOTTEN = "Postgres itself forgot a lock, as tests/integration/test_forgotten_locks.py has it do"


def load(legacy: Legacy, folder: Path, changes: int, is_enough: Callable[[], bool] = lambda: False) -> Counter[str]:
    """Writers and accidents, until so many changes were committed; what is queued is delivered meanwhile."""
    choose, accidents, fresh = random.Random(), Counter[str](), seeds()
    writers = [writer(legacy.url, folder, next(fresh)) for _ in range(WRITERS)]
    until = time.monotonic() + SECONDS
    with running(writers), closing(legacy.connect(autocommit=True)) as connection:
        while (committed := rows(connection, COMMITTED)[0][0]) < changes and not is_enough():
            assert time.monotonic() < until, f"{committed} of {changes} changes"
            accidents += accident(connection, legacy, folder, writers, choose, fresh)
            rows(connection, DELIVER)
            assert rows(connection, OF_POSTGRES) == [], FORGOTTEN
            time.sleep(PACE_SECONDS)  # two cores are the writers'
        for each in writers:
            end(each)
        rows(connection, f"SELECT pg_terminate_backend(pid, 10000) FROM {BACKENDS}")
    return accidents


def accident(
    connection: Connection,
    legacy: Legacy,
    folder: Path,
    writers: list[BaseProcess],
    choose: random.Random,
    fresh: Iterator[str],
) -> Counter[str]:
    """A client is killed and another takes its place, or a backend is terminated; mostly nothing."""
    chance = choose.random()
    if chance < 0.05:
        n = choose.randrange(len(writers))
        end(writers[n])
        writers[n] = writer(legacy.url, folder, next(fresh))
        writers[n].start()
        return Counter(clients=1)
    if chance < 0.3:
        rows(connection, f"SELECT pg_terminate_backend(pid) FROM {BACKENDS} ORDER BY random() LIMIT 1")
        return Counter(backends=1)
    return Counter()


@pytest.fixture(params=FLAVOURS)
def legacy(request: pytest.FixtureRequest, servers: LocalServers) -> Legacy:
    flavour: Flavour = request.param
    made = Legacy(legacy_server(servers, flavour))
    made.sql(WITNESS)
    made.sql(SETTINGS.format(made.name))
    return made


def test_capture_holds_every_committed_change_once(legacy: Legacy, tmp_path: Path) -> None:
    legacy.install(layout())
    legacy.sql(VIEW)
    started = time.monotonic()
    accidents = load(legacy, tmp_path, CHANGES)
    seconds = time.monotonic() - started

    check(legacy, tmp_path)
    errors = errors_in(tmp_path)
    changes, tombstones = legacy.sql("SELECT count(*), count(*) FILTER (WHERE row IS NULL) FROM changes")[0]
    print(
        f"postgres: {legacy.server.version}: {changes:,} changes, {tombstones:,} tombstones in {seconds:.0f} s;"
        f" {dict(accidents)}; {dict(errors)}"
    )
    # No writer meets an error that it could not meet without capture.
    strange = {(how, what) for how, what in errors if what not in ALLOWED and not is_serialization(how, what)}
    assert strange == set()
    assert accidents["backends"] > 0
    assert any(what == DEADLOCK for _, what in errors)


def is_serialization(isolation: str, what: str) -> bool:
    return what == SERIALIZATION and isolation != "READ COMMITTED"


def test_control_a_note_without_its_trip_is_seen(legacy: Legacy) -> None:
    legacy.install(layout())
    legacy.sql("INSERT INTO trips (trip_uuid) VALUES (gen_random_uuid())")
    legacy.sql("INSERT INTO notes (trip_id, n) SELECT id, 1 FROM trips")
    assert legacy.sql(OF_POSTGRES) == []

    legacy.sql("SET session_replication_role = replica; DELETE FROM trips")

    assert [what for what, *_ in legacy.sql(OF_POSTGRES)] == ["without its trip"]


def test_control_versions_from_before_insert_alone_are_caught(legacy: Legacy, tmp_path: Path) -> None:
    legacy.install(layout(), saboteur=before_insert_alone)
    legacy.sql(VIEW)
    load(legacy, tmp_path, CONTROL_CHANGES, lambda: "two changes under one key" in wrong(legacy))

    with pytest.raises(AssertionError, match="two changes under one key: ") as caught:
        check(legacy, tmp_path)
    # The message tells what a person needs who was not there: the changes, the tomb, and who said what when.
    for place in ("changes", "tomb", "journal", "committed"):
        assert f" {place} " in str(caught.value), place
