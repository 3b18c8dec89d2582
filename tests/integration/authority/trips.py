"""The row of a company of trips, its gate, and who holds its barrier."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tests.legacy_backends import Company
from tripstore.backends.postgres.capture.functions.gate import BARRIER, lock_class
from tripstore.handover.authority import Authority, Backend

K = lock_class("trips")


FIRST = Authority(0, Backend.LEGACY)


BARRIER_HOLDERS = f"""
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted
AND classid = {K & 0xFFFFFFFF}::oid AND objid = {BARRIER}
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


#: A role that may change the row and the gate. Roles are of the server: another test's may be there.
WEAK = """
DO $$ BEGIN CREATE ROLE weak LOGIN PASSWORD 'weak'; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT ALL ON ALL TABLES IN SCHEMA tripstore TO weak; GRANT ALL ON SEQUENCE tripstore.gate TO weak"""


def held(trips: Company) -> int:
    """How many hold the barrier."""
    return int(trips.legacy.sql(BARRIER_HOLDERS)[0][0])


def is_writable(trips: Company) -> bool:
    """Whether a service's own SQL is let in; one that has to wait is not."""
    try:
        trips.legacy.sql("SET lock_timeout = '50ms'; INSERT INTO trips (status) VALUES ('x')")
    except psycopg2.Error:
        return False
    return True


@contextmanager
def session(trips: Company) -> Iterator[Connection]:
    with closing(trips.legacy.connect()) as connection:
        yield connection


def in_child(work: Callable[[], object]) -> int:
    """A process that does this and ends."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(1)
    return pid


def killed(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
