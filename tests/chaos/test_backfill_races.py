"""Backfills, mirror and services race on the same few rows, deletes included: nothing is lost or comes back (I4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import ColumnKey
from schemaless_core.cell.encoded import EncodedCell
from tests.chaos.actors import running, wait_until
from tests.chaos.capture_actors import KEYS, SAME_IDS, WITNESS
from tests.chaos.switch_actors import facade_writer, relay, sql_writer
from tests.facades import Migration, migration
from tests.mirrors import missing
from tests.scale import SCALE, scaled
from tests.stores import Stores
from tripstore.backends.postgres.layout.layout import VERSION_BITS
from tripstore.engines.backfill.runner import Ending
from tripstore.handover.ports import Chunk, Past
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import Backfill, Wanted
from tripstore.phase import Phase

SECONDS = scaled(40, least=2)
PER_SECOND = 60.0
BACKFILLS = 2
ENGINES = ("sqlite", "mariadb", "mysql") if SCALE >= 1 else ("sqlite",)

#: Half of the rows that everybody fights for are of the past; some of them were deleted in it.
PAST = """
INSERT INTO trips (trip_uuid, status) SELECT k::uuid, 'old' FROM unnest(%s::text[]) AS k;
DELETE FROM trips WHERE trip_uuid = ANY (%s::uuid[]);
DELETE FROM tripstore.queue
"""

#: Latest of every place, as plain SQL sees it: no code of ours is asked.
_TRIPS = "SELECT trip_uuid::text, base_version, status FROM trips"
_NOTES = f"SELECT trip_uuid::text, n * {1 << VERSION_BITS} + note_version, text FROM notes"
_ATTEMPTS = "SELECT trip_uuid::text, attempt_no, result FROM attempts"
_TOMBS = "SELECT row_key::text, column_name, max(ref_key) FROM tripstore.tomb WHERE column_name = 'BASE' GROUP BY 1, 2"


@contextmanager
def company(servers: LocalServers, stores: Stores, engine: str) -> Iterator[Migration]:
    options = {"parts": 2, "lease_seconds": 5.0, "chunk_seconds": 0.05}
    with migration(servers, stores, engine=engine, backfill=options) as made:
        made.legacy.sql(WITNESS + ";" + SAME_IDS)
        keys = [str(key) for key in KEYS]
        made.legacy.sql(PAST, keys[::2], keys[::4])
        made.phase(Phase.DUALWRITE)
        yield made


def copy_again_and_again(made: Migration, seconds: float, finished: list[int]) -> None:
    """Whole backfills, one after the other."""
    backfill, until = Backfill(made.facade), time.monotonic() + seconds
    while time.monotonic() < until:
        job = backfill.begin(backfill.plan(Wanted(chunk_rows=5, verify=0.0)))
        assert backfill.runner(job, f"w{threading.get_ident()}").run() is Ending.DONE
        assert backfill.jobs.findings(job.id) == []
        finished.append(backfill.jobs.progress(job.id).counts["rows"])


def race(made: Migration, folder: Path, seconds: float) -> list[int]:
    """Everybody at once; how many rows each backfill saw."""
    nowhere = folder / "nowhere"
    nowhere.mkdir()
    url = made.legacy.url
    actors = [
        facade_writer(made.document, folder, nowhere, PER_SECOND),
        *(sql_writer(url, folder, str(uuid4()), PER_SECOND) for _ in range(2)),
        relay(made.document, nowhere, ""),
    ]
    finished: list[int] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            copy_again_and_again(made, seconds, finished)
        except BaseException as error:  # noqa: BLE001  # raised in the test's own thread below
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(BACKFILLS)]
    with running(actors):
        wait_until("services write", lambda: len(made.legacy.changes()) > 20, 60)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + 60)
    assert not failures, failures[0]
    return finished


def differences(made: Migration) -> list[str]:
    """What Schemaless does not have as the company's tables do: rows that are there, and rows that are gone."""
    store, wrong = made.facade.store, list[str]()
    rows = made.legacy.sql(_TRIPS)
    alive = {UUID(key): (version, status) for key, version, status in rows}
    dead = {UUID(key): ref for key, _name, ref in made.legacy.sql(_TOMBS) if UUID(key) not in alive}
    for key, cell in zip([*alive, *dead], _latest(made, [*alive, *dead]), strict=True):
        found = None if cell is None else (cell.ref_key, cell.body)
        if key in dead and (found is None or found != (dead[key], None)):
            wrong.append(f"{key} is gone since {dead[key]}, and {found}")
        elif key in alive and (found is None or (found[0], found[1] and found[1]["status"]) != alive[key]):
            wrong.append(f"{key} is {alive[key]}, and {found}")
    for column, field, query in (("NOTES", "text", _NOTES), ("STATUS", "result", _ATTEMPTS)):
        for key, ref_key, text in made.legacy.sql(query):
            child = store.get_cell(UUID(key), column, ref_key)
            if child is None or not isinstance(child.body, dict) or child.body[field] != text:
                wrong.append(f"{key} {column} {ref_key} is {text!r}, and {child}")
    return wrong


def _latest(made: Migration, keys: Sequence[UUID]) -> list[Any]:
    return list(made.facade.store.get_cells_latest([ColumnKey(key, "BASE") for key in keys]))


@pytest.mark.parametrize("engine", ENGINES)
def test_whichever_writer_is_first_the_end_is_what_the_tables_say(
    servers: LocalServers, stores: Stores, tmp_path: Path, engine: str
) -> None:
    with company(servers, stores, engine) as made:
        finished = race(made, tmp_path, SECONDS)
        made.carry()
        last = Backfill(made.facade)
        job = last.begin(last.plan(Wanted(verify=1.0)))
        assert last.runner(job, "last").run() is Ending.DONE

        changes = len(made.legacy.changes())
        print(f"\n{engine}: {len(finished)} backfills of {max(finished):,} rows raced with {changes:,} changes")
        assert len(finished) >= BACKFILLS
        assert last.jobs.findings(job.id) == []
        assert differences(made) == []
        assert missing(made) == []
        for shard in range(made.facade.config.core.shards):
            theirs = made.duo.legacy.scan_rows(shard, limit=10_000)
            assert made.facade.store.scan_rows(shard, limit=10_000) == theirs


def test_a_copier_that_gives_rows_new_versions_is_found_out(
    servers: LocalServers, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: copying as writing. What was deleted in between comes back."""
    with company(servers, stores, "sqlite") as made:
        read = made.duo.ports.legacy.read_chunk
        (key,) = KEYS[1:2]
        made.legacy.sql("INSERT INTO trips (trip_uuid, status) VALUES (%s, 'there')", str(key))

        def read_then_lose(chunk: Chunk) -> Past:
            past = read(chunk)
            made.legacy.sql("DELETE FROM trips WHERE trip_uuid = %s", str(key))
            made.carry()
            return past._replace(cells=tuple(_newer(cell) for cell in past.cells))

        backfill = Backfill(made.facade)
        job = backfill.begin(backfill.plan(Wanted(verify=0.0)))
        assert backfill.runner(job, "sound").run() is Ending.DONE
        assert differences(made) == []

        monkeypatch.setattr(made.duo.ports.legacy, "read_chunk", read_then_lose)
        unsound = backfill.begin(backfill.plan(Wanted(verify=0.0)))
        assert backfill.runner(unsound, "unsound").run() is Ending.DONE

        assert any(str(key) in each and "is gone since" in each for each in differences(made))


def _newer(cell: EncodedCell) -> EncodedCell:
    return cell._replace(ref_key=cell.ref_key + 5) if cell.column_name == b"BASE" else cell
