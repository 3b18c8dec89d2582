"""A backfill that is ended anywhere, in any way, while services of every kind write: what goes on afterwards makes both
stores equal and counts exactly (I4, I8, I11)."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from schemaless_core import Cell, ColumnKey, Json
from schemaless_core.control.jobs.jobs import Job
from schemaless_core.control.tables import job_part
from tests.chaos.actors import running, wait_until
from tests.chaos.backfill_actors import COUNTED, backfill_process, check_saves, journal, run_here
from tests.chaos.capture_actors import SAME_IDS, WITNESS
from tests.chaos.switch_actors import facade_writer, relay, sql_writer
from tests.damage import spoil
from tests.facades import Migration, migration
from tests.mirrors import missing
from tests.scale import SCALE
from tests.stores import Stores
from tripstore.local.proxy import Proxy
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill, BackfillSoFar, Wanted
from tripstore.migration.diff.diff import Diffing
from tripstore.migration.diff.order import Order
from tripstore.phase import Phase

POINTS = (
    "backfill.claimed",
    "backfill.read",
    "backfill.write",
    "backfill.written",
    "backfill.verified",
    "backfill.before_save",
    "backfill.saved",
    "backfill.released",
    "jobs.claimed",
    "jobs.before_save",
    "jobs.saving",
    "jobs.saved",
    "encoded.answered",
)
ACCIDENTS = ("SIGTERM", "SIGKILL", "exception", "cut connection")
#: None: as the time of each teaches.
CHUNK_ROWS = (1, 7, None)

PARTS = 3
#: Rows of the past, by the size of chunks.
ROWS = {1: 12, 7: 50, None: 300}
LEASE_SECONDS = 0.4
#: That are copied from twice.
CHECKPOINTS = 10
PER_SECOND = 20.0
#: Reached once a part, or once a table, not once a chunk.
RARE = ("backfill.claimed", "backfill.released", "jobs.claimed", "walk.trigger_dropped")
#: Reached once a job.
ONCE = ("walk.functions_dropped",)

PAST = """
INSERT INTO trips (trip_uuid, status, fare)
    SELECT gen_random_uuid(), 'old ' || n, n / 7.0 FROM generate_series(1, {n}) n;
INSERT INTO notes (trip_id, trip_uuid, n, text)
    SELECT id, trip_uuid, k, 'note ' || k FROM trips, generate_series(1, 2) k WHERE id % 3 = 0;
INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result)
    SELECT id, trip_uuid, k, 'tried ' || k FROM trips, generate_series(1, 2) k WHERE id % 4 = 0;
UPDATE trips SET status = status || '!' WHERE id % 5 = 0;
DELETE FROM trips WHERE id % 7 = 0;
DELETE FROM tripstore.queue;
"""
#: Services change the past, too.
MEDDLE = """
UPDATE trips SET status = status || '?' WHERE trip_uuid IN (SELECT trip_uuid FROM trips ORDER BY random() LIMIT {n});
UPDATE notes SET text = text || '?' WHERE trip_uuid IN (SELECT trip_uuid FROM trips ORDER BY random() LIMIT {n});
DELETE FROM trips WHERE trip_uuid IN
    (SELECT trip_uuid FROM trips WHERE status LIKE 'old%' ORDER BY random() LIMIT {few});
"""


class Case(NamedTuple):
    """What happens, where, to chunks of which size, on their way to what."""

    accident: str
    point: str
    chunk_rows: int | None
    engine: str = "sqlite"

    def __str__(self) -> str:
        return f"{self.accident} at {self.point}, chunks of {self.chunk_rows or 'their time'}, {self.engine}"


EVERY = [Case(*case) for case in product(ACCIDENTS, POINTS, CHUNK_ROWS, ("sqlite", "mariadb", "mysql"))]


def chosen() -> list[Case]:
    """All of them; in CI some on files and one on a server, others in every run, the same in all processes of it."""
    if SCALE >= 1:
        return EVERY
    lot = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))
    on_files = [case for case in EVERY if case.engine == "sqlite"]
    return [*lot.sample(on_files, 2), lot.choice([case for case in EVERY if case.engine != "sqlite"])]


class Scene(NamedTuple):
    """A migration with a past that the mirror never carried, and a network that can be cut."""

    engine: str
    stores: Stores
    migration: Migration
    backfill: Backfill
    folder: Path
    failpoints: Path
    keys: frozenset[UUID]

    def begin(self, chunk_rows: int | None) -> Job:
        return self.backfill.begin(self.backfill.plan(Wanted(chunk_rows=chunk_rows, verify=0.2)))

    @property
    def path(self) -> Path:
        return self.folder / "jobs.lines"

    @contextmanager
    def network(self) -> Iterator[Network]:
        """Other ports of all servers, which can be cut. Files have no network."""
        legacy = self.migration.legacy.server.proxy()
        primaries = {} if self.engine == "sqlite" else self.stores.primaries(self.engine)
        clusters = {name: server.proxy() for name, server in primaries.items()}
        try:
            yield Network(legacy, clusters)
        finally:
            for proxy in (legacy, *clusters.values()):
                proxy.close()


class Network(NamedTuple):
    """The ways to the servers: Postgres, and the clusters, on one of which the control database is."""

    legacy: Proxy
    clusters: Mapping[str, Proxy]

    def cut(self) -> None:
        for proxy in (self.legacy, *self.clusters.values()):
            proxy.cut()

    def through(self, made: Migration) -> dict[str, Any]:
        """The configuration of a process whose ways lead over these ports."""
        legacy = {**made.document["legacy"], "postgres": f"{self.legacy.url}/{made.legacy.name}"}
        clusters = {
            name: {**cluster, "primary": self.clusters[name].url} if name in self.clusters else cluster
            for name, cluster in made.document["clusters"].items()
        }
        return {**made.document, "legacy": legacy, "clusters": clusters}


@contextmanager
def scene(
    servers: LocalServers, stores: Stores, folder: Path, failpoints: Path, rows: int, engine: str = "sqlite"
) -> Iterator[Scene]:
    options = {"parts": PARTS, "lease_seconds": LEASE_SECONDS}
    with migration(servers, stores, engine=engine, backfill=options) as made:
        made.legacy.sql(WITNESS + ";" + SAME_IDS)
        made.legacy.sql(PAST.format(n=rows))
        made.phase(Phase.DUALWRITE)
        found = made.legacy.sql("SELECT trip_uuid FROM trips UNION SELECT row_key FROM tripstore.tomb")
        keys = frozenset(UUID(str(key)) for (key,) in found)
        yield Scene(engine, stores, made, Backfill(made.facade), folder, failpoints, keys)


@contextmanager
def services(scene: Scene) -> Iterator[None]:
    """Writers through the facade and with SQL of their own, deletes and bulk among it; and a relay."""
    made, folder = scene.migration, scene.folder
    nowhere = folder / "nowhere"
    nowhere.mkdir()
    processes = [
        facade_writer(made.document, folder, nowhere, PER_SECOND),
        sql_writer(made.legacy.url, folder, str(uuid4()), PER_SECOND),
        relay(made.document, nowhere, ""),
    ]
    with running(processes):
        wait_until("services write", lambda: bool(made.legacy.changes()), 60)
        yield


def meddle(scene: Scene, rows: int) -> None:
    scene.migration.legacy.sql(MEDDLE.format(n=rows // 4, few=rows // 10))


def end_it(scene: Scene, case: Case, job: Job, sabotage: str = "") -> int:
    """Let it come to the point, and have the accident; how it ended."""
    is_rare = case.point in RARE or case.chunk_rows is None
    visits = 0 if case.point in ONCE else random.randrange(PARTS if is_rare else 2 * PARTS)
    armed, hit = scene.failpoints / case.point, scene.failpoints / f"{case.point}.hit"
    action = {"SIGKILL": "kill", "exception": "raise"}.get(case.accident, "wait")
    armed.write_text(f"{action} after={visits}")
    with scene.network() as network:
        process = backfill_process(network.through(scene.migration), job, scene.failpoints, scene.path, sabotage)
        return _ended(scene, case, process, network, hit)


def _ended(scene: Scene, case: Case, process: BaseProcess, network: Network, hit: Path) -> int:
    with running([process]):
        wait_until("it came to the point", lambda: hit.exists() or not process.is_alive(), 60)
        assert hit.exists()
        meddle(scene, ROWS[case.chunk_rows])
        if case.accident == "SIGTERM":
            assert process.pid is not None
            os.kill(process.pid, signal.SIGTERM)
        elif case.accident == "cut connection":
            network.cut()
        (scene.failpoints / f"{case.point}.go").touch()
        process.join(60)
        assert process.exitcode is not None, "it neither ends nor dies"
        return process.exitcode


def check_counts(scene: Scene, job: Job) -> None:
    """I11: each part is covered once, without a gap, and the counters are the sums of what was saved."""
    counted = check_saves(scene.path, scene.backfill.jobs.progress(job.id).parts)
    counts = scene.backfill.jobs.progress(job.id).counts
    assert counts == counted
    present = scene.migration.legacy.sql(
        "SELECT count(*) FROM (SELECT trip_uuid FROM trips UNION SELECT row_key"
        " FROM tripstore.tomb UNION SELECT row_key FROM tripstore.cell) AS k"
    )[0][0]
    assert len(scene.keys) <= counts["rows"] <= present


def check_equal(scene: Scene, _job: Job) -> None:
    """Postgres as plain SQL sees it is the oracle: every row of it, and no other, with every change there ever was."""
    made = scene.migration
    rows = made.legacy.sql("SELECT trip_uuid::text, base_version, status FROM trips")
    there = {UUID(key): (version, status) for key, version, status in rows}
    gone = {UUID(key) for (key,) in made.legacy.sql("SELECT DISTINCT row_key::text FROM tripstore.tomb")} - set(there)
    columns = [ColumnKey(key, "BASE") for key in sorted(there.keys() | gone | scene.keys)]
    cells = dict(zip(columns, made.facade.store.get_cells_latest(columns), strict=True))
    found = {
        column.row_key: (cell.ref_key, cell.body["status"])
        for column, cell in cells.items()
        if cell is not None and isinstance(cell.body, dict)
    }
    assert found == there
    assert missing(made) == []
    for shard in range(made.facade.config.core.shards):
        assert (
            made.facade.store.scan_rows(shard, limit=10_000).rows == made.duo.legacy.scan_rows(shard, limit=10_000).rows
        )
    for table, column, ref_key in (
        ("notes", "NOTES", "n * 1048576 + note_version"),
        ("attempts", "STATUS", "attempt_no"),
    ):
        listed = made.legacy.sql(f"SELECT trip_uuid::text, {ref_key} FROM {table}")
        children = [(UUID(key), column, ref) for key, ref in listed]
        assert None not in [made.facade.store.get_cell(*child) for child in children]


def check_again(scene: Scene, job: Job) -> None:
    """I4: every checkpoint that a worker ever began at, once more and once again: nothing changes."""
    copying = scene.backfill.copying(job.spec, BackfillSoFar(scene.backfill.jobs, job))
    bounds = bounds_of(scene, job)
    before = heads(scene)
    for line in random.sample(lines := list(journal(scene.path)), min(len(lines), CHECKPOINTS)):
        once, twice = (copying.copy(bounds[line.part], line.before, 7, 1.0) for _ in range(2))
        assert once.quarantined == ()
        assert (once.rows, once.cells_equal, once.checkpoint) == (twice.rows, twice.cells_equal, twice.checkpoint)
        assert once.verified == once.cells_equal
    assert heads(scene) == before


def bounds_of(scene: Scene, job: Job) -> dict[int, Json]:
    wanted = sa.select(job_part.c.number, job_part.c.bounds).where(job_part.c.job == job.id)
    with scene.backfill.control.begin() as connection:
        return {number: json.loads(bounds) for number, bounds in connection.execute(wanted)}


def heads(scene: Scene) -> list[int]:
    """The last added id of each shard."""
    store = scene.migration.facade.store
    pages = store.get_cells_for_shards(dict.fromkeys(range(store.config.shards), 0), 1)
    return [pages[shard].head for shard in sorted(pages)]


@pytest.mark.parametrize("case", chosen(), ids=str)
def test_after_any_accident_both_stores_become_equal_and_counters_exact(
    servers: LocalServers, stores: Stores, tmp_path: Path, failpoints: Path, case: Case
) -> None:
    rows = ROWS[case.chunk_rows]
    with scene(servers, stores, tmp_path, failpoints, rows, case.engine) as found:
        job = found.begin(case.chunk_rows)
        with services(found):
            code = end_it(found, case, job)
            assert (code == 0) == (case.accident in ("SIGTERM", "cut connection")), code
            ending = run_here(found.backfill, job, found.path)
        found.migration.carry()

        assert ending == "done"
        assert found.backfill.jobs.findings(job.id) == []
        check_counts(found, job)
        check_equal(found, job)
        check_again(found, job)


@pytest.mark.parametrize(
    ("sabotage", "point", "check"),
    [("counts first", COUNTED, check_counts), ("writes behind", "backfill.saved", check_equal)],
)
def test_what_is_unsound_is_found_out(
    servers: LocalServers,
    stores: Stores,
    tmp_path: Path,
    failpoints: Path,
    sabotage: str,
    point: str,
    check: Callable[..., None],
) -> None:
    """Controls: counters beside the checkpoint's transaction, a checkpoint that moves before the cells are there."""
    case = Case("SIGKILL", point, 7)
    with scene(servers, stores, tmp_path, failpoints, ROWS[7]) as found:
        job = found.begin(7)
        assert end_it(found, case, job, sabotage) == -signal.SIGKILL
        assert run_here(found.backfill, job, found.path) == "done"
        found.migration.carry()

        with pytest.raises(AssertionError):
            check(found, job)


def test_what_was_corrupted_while_it_was_dead_is_found(
    servers: LocalServers, stores: Stores, tmp_path: Path, failpoints: Path
) -> None:
    """In what it had copied by a diff, in what was still to come by the copy itself."""
    with scene(servers, stores, tmp_path, failpoints, ROWS[7]) as found:
        made = found.migration
        job = found.begin(7)
        (failpoints / "backfill.saved").write_text("kill after=2")
        process = backfill_process(made.document, job, failpoints, found.path)
        with running([process]):
            process.join(60)
        keys = trips(found)
        cells = made.facade.store.get_cells_latest([ColumnKey(key, "BASE") for key in keys])
        passed, coming = (keys[[cell is None for cell in cells].index(is_coming)] for is_coming in (False, True))
        spoil(made.facade.store, Cell(passed, "BASE", 1, None), b'{"status":"?"}')
        made.facade.store.as_copier().put_cell(coming, "BASE", 1, {"status": "foreign"})

        assert run_here(found.backfill, job, found.path) == "done"

        assert [(each.kind, each.row_key) for each in found.backfill.jobs.findings(job.id)] == [("conflict", coming)]
        diffing = Diffing(made.facade)
        diff = diffing.begin(diffing.plan(Order(indexes=False, decoded=0)))
        diffing.runner(diff, "diff").run()
        assert {each.row_key for each in diffing.jobs.findings(diff.id)} == {passed, coming}


def trips(scene: Scene) -> list[UUID]:
    """Rows that were never changed."""
    found = scene.migration.legacy.sql("SELECT trip_uuid::text FROM trips WHERE base_version = 1 ORDER BY 1")
    return [UUID(key) for (key,) in found]
