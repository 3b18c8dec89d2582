"""Kill -9 in the middle of each step: the old code goes on, and the same command again ends what was begun."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.chaos.actors import end, wait_until, with_failpoints
from tests.forking import FORK_SERVER
from tests.integration.id_company import (
    FLAVOURS,
    FULL_SPEED,
    LAYOUT,
    ONE_FLAVOUR,
    QUICK,
    OldCode,
    apply,
    company_session,
    killed,
    one,
    postgres,
    session,
    small_company,
    unfilled,
)
from tests.scale import SCALE
from tripstore.backends.postgres.ddl.steps import SchemaStep
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.ids.steps import id_steps
from tripstore.backends.postgres.wire.connections import rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

#: Places in the middle, and how often they are passed before. Some are met in the first table, some in the last.
POINTS = [
    ("ids.column_added", 0),
    ("ids.function_installed", 0),
    ("ids.trigger_installed", 3),
    ("ids.batch_filled", 3),
    ("ids.batch_filled", 8),
    ("ids.check_added", 0),
    ("ids.check_validated", 3),
    ("ids.not_null_set", 0),
    ("ids.index_declared", 3),
    ("ids.leaf_indexed", 4),
    ("ids.leaf_attached", 1),
    ("ids.index_built", 3),
]
#: In CI each on one version of Postgres, in turns.
CASES = [
    pytest.param(flavour, point, after, id=f"{flavour}-{point}-{after}")
    for number, (point, after) in enumerate(POINTS)
    for flavour in (FLAVOURS if SCALE >= 1 else [FLAVOURS[number % len(FLAVOURS)]])
]


def steps() -> list[SchemaStep]:
    return id_steps(LAYOUT, pace=FULL_SPEED, patience=QUICK)


def apply_all(url: str) -> None:
    """What the process does that is killed."""
    with session(url) as connection:
        apply(connection, steps())


@pytest.fixture(params=ONE_FLAVOUR)
def url(request: pytest.FixtureRequest, servers: LocalServers) -> Iterator[str]:
    flavour: Flavour = request.param
    with small_company(postgres(servers, flavour), 30) as made:
        yield made


@pytest.mark.parametrize(("url", "point", "after"), CASES, indirect=["url"])
def test_a_run_that_was_killed_is_ended_by_the_next(url: str, failpoints: Path, point: str, after: int) -> None:
    killed(failpoints, point, after, apply_all, url)

    with company_session(url) as company, session(url) as ours:
        OldCode(company).work()
        apply(ours, steps())
        OldCode(company).work()
        assert unfilled(company) == 0
        assert all(step.is_done(ours) for step in steps())
        assert leftovers(ours) == 0


def test_a_killed_client_whose_server_still_builds_is_waited_for(url: str, failpoints: Path) -> None:
    """Its process in the server does not know that its client is gone. Dropping what it builds would wait for it."""
    with building(url, failpoints) as (holder, builder), session(url) as ours:
        with pytest.raises(LegacyUnavailable, match="In the way: pid"):
            apply(ours, steps())
        assert one(ours, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", (builder,)) == 1
        [(index,)] = rows(ours, "SELECT indexrelid FROM pg_index WHERE NOT indisvalid")
        rows(holder, "ROLLBACK")
        wait_until("the index is built", lambda: leftovers(ours) == 0)

        apply(ours, steps())

        assert one(ours, "SELECT indisvalid FROM pg_index WHERE indexrelid = %s", (index,))
        assert all(step.is_done(ours) for step in steps())


def test_an_invalid_index_that_no_session_builds_any_more_is_built_anew(url: str, failpoints: Path) -> None:
    with building(url, failpoints) as (holder, builder), session(url) as ours:
        [(index,)] = rows(ours, "SELECT indexrelid FROM pg_index WHERE NOT indisvalid")
        rows(ours, "SELECT pg_terminate_backend(%s, 10000)", (builder,))
        rows(holder, "ROLLBACK")

        apply(ours, steps())

        assert leftovers(ours) == 0
        assert rows(ours, "SELECT FROM pg_class WHERE oid = %s", (index,)) == []
        assert all(step.is_done(ours) for step in steps())


@contextmanager
def building(url: str, failpoints: Path) -> Iterator[tuple[Connection, int]]:
    """A run that was killed while its first index waited for a snapshot; its session, and the server's pid."""
    with company_session(url) as holder, session(url) as ours:
        apply(ours, steps()[:4])
        rows(holder, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM trips")
        process: BaseProcess = FORK_SERVER.Process(target=with_failpoints, args=(str(failpoints), apply_all, url))
        process.start()
        try:
            wait_until("the build waits", lambda: builders(ours) and leftovers(ours))
            (failpoints / "ids.index_building").write_text("kill")
            process.join(60)
            assert process.exitcode == -signal.SIGKILL
        finally:
            end(process)
        [builder] = builders(ours)
        yield holder, builder


def builders(connection: Connection) -> list[int]:
    found = rows(connection, "SELECT pid FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting%'")
    return [pid for (pid,) in found]


def leftovers(connection: Connection) -> int:
    """Indexes that are not whole."""
    return int(one(connection, "SELECT count(*) FROM pg_index WHERE NOT indisvalid"))
