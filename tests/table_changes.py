"""What may be done to a mapped table in which phase: the deeds, what is observed of each, and the table of the docs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from uuid import uuid4

import psycopg2

from schemaless_core import SchemalessError
from tests.facades import Migration
from tests.legacy import TABLES
from tests.mirrors import log_of
from tripstore.cli.legacy.doctor import examine
from tripstore.errors import TripstoreError
from tripstore.handover.authority import Backend
from tripstore.migration.cutover import gates
from tripstore.migration.cutover.complete import Completion
from tripstore.migration.cutover.evidence import Evidence
from tripstore.migration.cutover.look import Looker
from tripstore.migration.mirror.look import LookFailed
from tripstore.migration.mirror.mirror import Mirror
from tripstore.phase import Phase

#: Of the test company, with room for one more partition.
PARTITIONED = (
    TABLES.replace("PARTITION BY HASH (trip_id)", "PARTITION BY RANGE (trip_id)")
    .replace("WITH (MODULUS 2, REMAINDER 0)", "FROM (MINVALUE) TO (4)")
    .replace("WITH (MODULUS 2, REMAINDER 1)", "FROM (4) TO (1000)")
)
ROWS = """
INSERT INTO trips (status) SELECT 'requested' FROM generate_series(1, 6);
INSERT INTO notes (trip_id, n, text) SELECT id, 1, 'a' FROM trips;
INSERT INTO attempts (trip_id, attempt_no, result) SELECT id, 1, 'paid' FROM trips;
"""


@dataclass(frozen=True)
class Deed:
    """Something that a company does to its tables: its words in the docs, and the SQL of each thing that they name."""

    words: str
    sql: str
    also: tuple[str, ...] = ()


#: It has no transaction that could be taken back.
VACUUM = "VACUUM"
#: By the kind of deed, then by a short name.
DEEDS: Mapping[str, Mapping[str, Deed]] = {
    "rows": {
        "insert": Deed(
            "`INSERT`, `COPY`, upsert",
            "INSERT INTO trips (status) VALUES ('new') ON CONFLICT DO NOTHING",
            (
                "COPY trips (status) FROM PROGRAM 'echo copied'",
                "INSERT INTO trips (id, status) VALUES (3, 'x') ON CONFLICT (id) DO UPDATE SET status = 'upserted'",
            ),
        ),
        "update": Deed(
            "`UPDATE`, `MERGE`",
            "UPDATE trips SET status = 'changed'",
            (
                "MERGE INTO trips t USING (VALUES (4)) v (id) ON t.id = v.id"
                " WHEN MATCHED THEN UPDATE SET status = 'merged'",
            ),
        ),
        "delete": Deed("`DELETE`, with cascades", "DELETE FROM trips WHERE id = 1"),
        "fact": Deed("`UPDATE` of a fact", "UPDATE attempts SET result = 'unpaid'"),
        "fact gone": Deed("`DELETE` of a fact alone", "DELETE FROM attempts"),
        "key": Deed(
            "`UPDATE` of an id, a UUID, a fact's number or parent",
            "UPDATE trips SET id = id + 1000",
            ("UPDATE trips SET trip_uuid = gen_random_uuid()", "UPDATE attempts SET attempt_no = attempt_no + 100"),
        ),
        "child's key": Deed(
            "`UPDATE` of a child's number or parent",
            "UPDATE notes SET n = n + 100",
            ("UPDATE notes SET n = n + 100, text = 'moved'",),
        ),
        "version": Deed("`UPDATE` of the version", "UPDATE trips SET base_version = 9000, status = 'v'"),
        "truncate": Deed("`TRUNCATE`", "TRUNCATE attempts", ("TRUNCATE notes", "TRUNCATE trips CASCADE")),
        "two-phase": Deed(
            "`PREPARE TRANSACTION`, `COMMIT PREPARED`",
            "BEGIN; UPDATE trips SET status = 'prepared'; PREPARE TRANSACTION '{name}'; COMMIT PREPARED '{name}'",
        ),
        "savepoint": Deed(
            "`ROLLBACK TO` a savepoint",
            "BEGIN; SAVEPOINT s; UPDATE trips SET status = 'lost'; ROLLBACK TO s;"
            " UPDATE trips SET status = 'kept'; COMMIT",
        ),
        "replica role": Deed(
            "`session_replication_role = replica`, as a subscription has it",
            "SET session_replication_role = replica; UPDATE trips SET status = 'applied'",
        ),
        "restore": Deed(
            "`pg_restore --disable-triggers`",
            "BEGIN; ALTER TABLE trips DISABLE TRIGGER ALL; INSERT INTO trips (status) VALUES ('restored');"
            " ALTER TABLE trips ENABLE TRIGGER ALL; COMMIT",
        ),
    },
    "columns": {
        "add": Deed(
            "`ADD COLUMN`, with or without a default",
            "ALTER TABLE trips ADD COLUMN more text DEFAULT 'x'",
            ("ALTER TABLE trips ADD COLUMN another text", "ALTER TABLE notes ADD COLUMN more text"),
        ),
        "drop other": Deed("`DROP COLUMN` that is not mapped", "ALTER TABLE trips DROP COLUMN memo"),
        "drop": Deed("`DROP COLUMN` that is mapped", "ALTER TABLE trips DROP COLUMN fare"),
        "drop cascade": Deed("the same with `CASCADE`", "ALTER TABLE trips DROP COLUMN fare CASCADE"),
        "rename": Deed("`RENAME COLUMN` that is mapped", "ALTER TABLE trips RENAME COLUMN fare TO price"),
        "rename other": Deed("`RENAME COLUMN` that is not", "ALTER TABLE trips RENAME COLUMN memo TO remark"),
        "widen": Deed(
            "`ALTER … TYPE` of a mapped column, to one that holds the field",
            "ALTER TABLE trips ALTER COLUMN status TYPE varchar(500)",
        ),
        "other type": Deed(
            "`ALTER … TYPE` to one that does not", "ALTER TABLE trips ALTER COLUMN fare TYPE text USING fare::text"
        ),
        "default": Deed(
            "`SET DEFAULT`, `DROP DEFAULT`",
            "ALTER TABLE trips ALTER COLUMN status SET DEFAULT 'requested'",
            ("ALTER TABLE trips ALTER COLUMN status DROP DEFAULT",),
        ),
        "not null": Deed("`SET NOT NULL`", "ALTER TABLE trips ALTER COLUMN status SET NOT NULL"),
    },
    "constraints and indexes": {
        "check": Deed("`ADD CONSTRAINT`", "ALTER TABLE trips ADD CONSTRAINT c CHECK (status <> 'never')"),
        "index": Deed("`CREATE INDEX`", "CREATE INDEX ON trips (status)"),
        "unique gone": Deed(
            "dropping the row key's unique index", "ALTER TABLE trips DROP CONSTRAINT trips_trip_uuid_key"
        ),
        "foreign key": Deed(
            "`ON DELETE SET NULL` to the parent",
            "ALTER TABLE notes ADD FOREIGN KEY (trip_id) REFERENCES trips (id) ON DELETE SET NULL",
        ),
    },
    "the table": {
        "rename table": Deed("`RENAME TO`", "ALTER TABLE attempts RENAME TO tries"),
        "schema": Deed("`SET SCHEMA`", "CREATE SCHEMA other; ALTER TABLE attempts SET SCHEMA other"),
        "swap": Deed(
            "rename and swap",
            "CREATE TABLE fresh (LIKE attempts INCLUDING ALL); ALTER TABLE attempts RENAME TO gone;"
            " ALTER TABLE fresh RENAME TO attempts",
        ),
        "drop table": Deed("`DROP TABLE`", "DROP TABLE attempts"),
        "rewrite": Deed("`VACUUM FULL`, `CLUSTER`", "CLUSTER trips USING trips_pkey", (f"{VACUUM} FULL trips",)),
        "heir": Deed("a child by `INHERITS`", "CREATE TABLE more_trips () INHERITS (trips)"),
        "unlogged": Deed("`SET UNLOGGED`", "ALTER TABLE notes_0 SET UNLOGGED"),
        "owner": Deed("`OWNER TO`", "ALTER TABLE trips OWNER TO CURRENT_USER"),
        "row security": Deed(
            "row security that the role of `legacy.postgres` bypasses",
            "ALTER TABLE trips ENABLE ROW LEVEL SECURITY; ALTER TABLE trips FORCE ROW LEVEL SECURITY",
        ),
        "rule": Deed("a rule `DO INSTEAD`", "CREATE RULE r AS ON UPDATE TO attempts DO INSTEAD NOTHING"),
    },
    "triggers": {
        "disable": Deed("`DISABLE TRIGGER ALL`", "ALTER TABLE trips DISABLE TRIGGER ALL"),
        "drop trigger": Deed("dropping one of ours", 'DROP TRIGGER "~tripstore_base_update" ON trips'),
        "own trigger": Deed(
            "a trigger of your own",
            "CREATE TRIGGER mine BEFORE INSERT ON trips FOR EACH ROW EXECUTE FUNCTION touch()",
        ),
    },
    "partitions": {
        "new partition": Deed(
            "`CREATE TABLE … PARTITION OF`",
            "CREATE TABLE notes_2 PARTITION OF notes FOR VALUES FROM (1000) TO (2000)",
        ),
        "freeze": Deed(
            "the same, and `COPY … FREEZE` into it in one transaction",
            "BEGIN; CREATE TABLE notes_2 PARTITION OF notes FOR VALUES FROM (1000) TO (2000);"
            " INSERT INTO trips (id, status) VALUES (1001, 'new');"
            " COPY notes_2 (trip_id, n, text) FROM PROGRAM 'echo 1001,1,frozen' WITH (FORMAT csv, FREEZE); COMMIT",
        ),
        "detach": Deed("`DETACH`", "ALTER TABLE notes DETACH PARTITION notes_0"),
        "drop partition": Deed("`DROP TABLE` of a partition", "DROP TABLE notes_0"),
        "partition change": Deed(
            "`DETACH`, change, `ATTACH`",
            "BEGIN; ALTER TABLE notes DETACH PARTITION notes_0; UPDATE notes_0 SET text = 'unseen';"
            " ALTER TABLE notes ATTACH PARTITION notes_0 FOR VALUES FROM (MINVALUE) TO (4); COMMIT",
        ),
        "truncate partition": Deed("`TRUNCATE` of a partition", "TRUNCATE notes_0"),
    },
}

#: What becomes of a deed, as the table of the docs says it.
CAPTURED = "captured"
FINE = "fine"
REFUSED = "refused"
REFUSED_BY_POSTGRES = "refused by Postgres"
#: `doctor` and the gate of capture say so from then on.
SAID = "**broken**"
GATE_PASSES = "BROKEN, and the gate passes"
ONLY_THE_GATE = "the gate refuses, and `doctor` says that all is fine"
WRITERS_REFUSED = "writers are refused by name"
WRITERS_FAIL = "writers fail"
PARKS = "cells park"
WAITS = "the reverse mirror waits, and says why"
WRONG = "WRONG, and nothing says so"


def do(moving: Migration, deed: Deed, phase: Phase) -> str:
    """Do it as a service does, look at everything that a person would look at, and say what came of it."""
    before = _in_mirror(moving)
    refusals = {_refusal(moving, sql, phase) for sql in (deed.sql, *deed.also)}
    if refusals != {""}:
        return " or ".join(sorted(each or FINE for each in refusals))
    if phase is Phase.COMPLETE:
        return FINE
    is_said = bool(_doctor(moving))
    if is_said is _gate_passes(moving):
        return GATE_PASSES if is_said else ONLY_THE_GATE
    is_live = phase.authority is Backend.STORE
    if not is_live:
        moving.carry()
    if not is_said and _in_postgres(moving) != _in_mirror(moving):
        return WRONG
    is_carried = _in_mirror(moving) != before
    probed = _probed_live(moving) if is_live else _probed(moving)
    if not is_said and not probed and _in_postgres(moving) != _in_mirror(moving):
        return WRONG
    return "; ".join([*([SAID] if is_said else []), *probed]) or (CAPTURED if is_carried else FINE)


def _refusal(moving: Migration, sql: str, phase: Phase) -> str:
    """What Postgres, or a trigger of ours, says against it; nothing: it is done."""
    is_kept = phase is not Phase.COMPLETE or sql.startswith(VACUUM)  # an archive gets it back
    connection = moving.legacy.connect(autocommit=is_kept)
    try:
        with connection.cursor() as cursor:
            for statement in sql.replace("{name}", moving.legacy.name).split("; "):
                cursor.execute(statement)
    except psycopg2.Error as error:
        return REFUSED if str(error.pgcode).startswith("TS") else REFUSED_BY_POSTGRES
    finally:
        connection.close()
    return ""


def complete(moving: Migration, file: Path) -> None:
    """The end of the migration."""
    legacy, control = moving.facade.config.legacy, moving.duo.ports.control
    assert legacy is not None
    planned = control.authority()
    store, flags = moving.facade.store, moving.facade.flags
    ending = Completion(legacy, store, flags, "a test", lambda: cast(Evidence, {}), file, planned, control.authority)
    assert len(list(ending.perform())) == 6


def _probed(moving: Migration) -> list[str]:
    """Services go on writing, and relays carrying."""
    found = []
    try:
        moving.legacy.sql("UPDATE trips SET status = 'probed' WHERE id = 2")
        moving.legacy.sql("INSERT INTO trips (status) VALUES ('probe')")
    except psycopg2.Error as error:
        found.append(WRITERS_REFUSED if "tripstore" in str(error) else WRITERS_FAIL)
    moving.carry()
    return found


def _probed_live(moving: Migration) -> list[str]:
    """Services go on putting, and the reverse mirror carrying."""
    row_key = uuid4()
    try:
        moving.store.put_cell(row_key, "BASE", 1, {"status": "new"})
        moving.store.put_cell(row_key, "NOTES", 1 << 20 | 1, {"text": "new"})
        moving.store.put_cell(row_key, "STATUS", 1, {"result": "new"})
    except (SchemalessError, TripstoreError):
        return [WRITERS_REFUSED]
    try:
        moving.carry()
    except LookFailed:
        return [WAITS]
    return [PARKS] if Mirror(moving.facade).parked(is_reverse=True).listed(1) else []


def _doctor(moving: Migration) -> list[str]:
    config = moving.facade.config.legacy
    assert config is not None
    return [str(each) for each in examine(config, (), lambda: None).complaints if each.is_error]


def _gate_passes(moving: Migration) -> bool:
    """What the gate of capture says of a switch."""
    config, control = moving.facade.config, moving.duo.ports.control
    assert config.legacy is not None
    looker = Looker(
        config.legacy,
        moving.duo.legacy,
        moving.facade.store,
        control,
        moving.facade.flags,
        config.cutover,
        lambda: datetime.now(UTC),
    )
    return all(verdict.is_passed for verdict in gates.capture(looker.facts(), config.cutover))


Rows = dict[tuple[str, str, int], object]


def _in_postgres(moving: Migration) -> Rows:
    """Every row of the company's, as its own SQL sees it."""
    queries = (
        "SELECT trip_uuid::text, 'BASE', 0, status FROM trips",
        "SELECT trip_uuid::text, 'NOTES', n, text FROM notes",
        "SELECT trip_uuid::text, 'STATUS', attempt_no, result FROM attempts",
    )
    return {(key, column, n): value for query in queries for key, column, n, value in moving.legacy.sql(query)}


def _in_mirror(moving: Migration) -> Rows:
    """The same rows, as the latest cell of each child says them."""
    field = {"BASE": "status", "NOTES": "text", "STATUS": "result"}
    newest: dict[tuple[str, str, int], tuple[int, object]] = {}
    gone: dict[tuple[str, str], int] = {}
    for cell in log_of(moving):
        if cell.column_name not in field:
            continue
        row_key, column, ref_key = str(cell.row_key), cell.column_name, cell.ref_key
        child = {"BASE": 0, "NOTES": ref_key >> 20, "STATUS": ref_key}[column]
        if column == "STATUS" and cell.body is None:
            gone[row_key, column] = ref_key
        body = cell.body if isinstance(cell.body, dict) else None
        value = (ref_key, body)
        if newest.get((row_key, column, child), (-1, None))[0] < ref_key:
            newest[row_key, column, child] = value
    return {
        key: body.get(field[key[1]])
        for key, (ref_key, body) in newest.items()
        if isinstance(body, dict) and ref_key >= gone.get(key[:2], -1)
    }


def table(outcomes: Mapping[tuple[str, str], str]) -> str:
    """The table of the docs: outcomes by the name of the deed and the phase that stands for a column."""
    lines = [
        "| you | off, dualwrite, shadow | live, rampdown | complete |",
        "|---|---|---|---|",
    ]
    for kind, deeds in DEEDS.items():
        lines.append(f"| **{kind}** | | | |")
        lines += [
            f"| {deed.words} | {' | '.join(outcomes[name, phase] for phase in ('dualwrite', 'live', 'complete'))} |"
            for name, deed in deeds.items()
        ]
    return "\n".join(lines) + "\n"


def named() -> Iterator[tuple[str, Deed]]:
    for deeds in DEEDS.values():
        yield from deeds.items()
