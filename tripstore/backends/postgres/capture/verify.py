"""Whether capture stands as it should. An error says that changes may have been missed; a note is mended by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.capture.functions.gate import SEQUENCE, gate_functions
from tripstore.backends.postgres.capture.names import LAST
from tripstore.backends.postgres.capture.partitions.event import look_complaints
from tripstore.backends.postgres.capture.partitions.look import is_known
from tripstore.backends.postgres.capture.plan import CELLS, TableCapture, WantedTrigger, plan_cells, plan_table
from tripstore.backends.postgres.capture.row_security import row_security_complaints
from tripstore.backends.postgres.capture.shape import Shape, TableNode
from tripstore.backends.postgres.capture.state import find_number
from tripstore.backends.postgres.capture.verify_functions import APPLY, APPLY_AND_COPY, function_complaints
from tripstore.backends.postgres.layout.complaints import Complaint, error, harmless, note
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, TableName, quoted
from tripstore.backends.postgres.wire.connections import rows

TRIGGERS = """
SELECT t.tgrelid::bigint, t.tgname, t.tgenabled::text, p.proname, pg_catalog.obj_description(t.oid, 'pg_trigger'),
  t.tgparentid <> 0, t.tgtype & 1 <> 0, t.tgtype & 2 <> 0, t.tgtype & 20 <> 0
FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
WHERE t.tgrelid = ANY (%s::bigint[]::oid[]) AND NOT t.tgisinternal OR t.tgrelid = ANY (%s::bigint[]::oid[])
  AND t.tgparentid <> 0
"""
HEIRS = """
SELECT c.oid::pg_catalog.regclass::text FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = %s AND NOT c.relispartition ORDER BY 1
"""
UNIQUE = """
SELECT i.indimmediate FROM pg_catalog.pg_index i
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
  AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text)
       FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
       JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
       WHERE k.place <= i.indnkeyatts) = ANY (SELECT string_to_array(w, chr(31)) FROM unnest(%s::text[]) AS w)
"""


class InstalledTrigger(NamedTuple):
    oid: int
    name: str
    enabled: str
    function: str
    comment: str | None
    is_clone: bool
    is_row: bool
    is_before: bool
    is_write: bool  #: Fires for INSERT or UPDATE.


def verify(
    connection: Connection, layout: Layout, *, may_truncate: bool = False, warns: bool = False
) -> list[Complaint]:
    """Everything that is not as `schema apply` leaves it."""
    number = find_number(connection, layout)
    if number is None:
        return [error(layout.datastore, "capture is not installed by this layout", APPLY_AND_COPY)]
    found = [*gate_complaints(connection, layout, warns=warns), *cells_complaints(connection, layout)]
    found += look_complaints(connection, layout)
    for table in captured_tables(layout):
        shape = Shape.find(connection, table)
        if shape is None:
            found.append(error(str(table), "there is no such table", "Check the layout."))
            continue
        wanted = plan_table(layout, shape, number, may_truncate=may_truncate)
        found += table_complaints(connection, wanted)
        found += around_complaints(connection, layout, shape)
    return found


def captured_tables(layout: Layout) -> list[TableName]:
    """The parent's first; then those with looked-up pairs."""
    tables = [layout.parent.table, *(column.table for column in layout.children)]
    return list(dict.fromkeys([*tables, *(lookup.table for lookup in layout.lookups)]))


def gate_complaints(connection: Connection, layout: Layout, *, warns: bool = False) -> Iterator[Complaint]:
    if rows(connection, "SELECT pg_catalog.to_regclass(%s) IS NULL", (SEQUENCE,))[0][0]:
        yield error("gate", "its sequence is missing", APPLY_AND_COPY)
    for function in gate_functions(layout.datastore, warns=warns):
        yield from function_complaints(connection, "gate", function, None)


def cells_complaints(connection: Connection, layout: Layout) -> Iterator[Complaint]:
    """Whether cells of our own are behind the gate."""
    shape = Shape.find(connection, CELLS)
    if shape is None:
        yield error(str(CELLS), "there is no such table", APPLY_AND_COPY)
    else:
        yield from table_complaints(connection, plan_cells(layout, shape))


def table_complaints(connection: Connection, wanted: TableCapture) -> Iterator[Complaint]:
    """What of one table's functions and triggers is not as it should be."""
    where = str(wanted.shape.table)
    of_functions = [
        each
        for function in wanted.functions
        for each in function_complaints(connection, where, function, wanted.comment)
    ]
    yield from dict.fromkeys(of_functions)  # each function says of a swapped table that it is another one
    oids = [node.oid for node in wanted.shape.nodes]
    live = [InstalledTrigger(*row) for row in rows(connection, TRIGGERS, (oids, oids))]
    by_place = {(trigger.oid, trigger.name): trigger for trigger in live}
    places = {node.table: node for node in wanted.shape.nodes}
    for trigger in wanted.triggers:
        node = places[trigger.table]
        if trigger.needs is not None and (node.oid, trigger.needs) not in by_place:
            yield _not_there_yet(where, trigger)
        else:
            yield from _trigger_complaints(trigger, node, by_place.get((node.oid, trigger.name)), wanted)
    yield from _clone_complaints(wanted, by_place)
    if wanted.shape.is_partitioned and wanted.is_mapped and not is_known(connection, wanted.shape):
        yield note(where, "its partitions are not compared yet", APPLY)
    yield from _order_complaints(wanted, live)


def _not_there_yet(where: str, trigger: WantedTrigger) -> Complaint:
    """An earlier version made none: no change was missed."""
    reason = f"trigger {trigger.name} is not there yet"
    if trigger.refuses:
        return harmless(where, f"{reason}: what it refuses is let through", APPLY)
    return note(where, f"{reason}: what it captures is refused", APPLY)


def _trigger_complaints(
    wanted: WantedTrigger, node: TableNode, live: InstalledTrigger | None, table: TableCapture
) -> Iterator[Complaint]:
    where = str(wanted.table)
    if live is None and node.oid != table.shape.oid:
        # Postgres clones row triggers to a new partition; those of statements it does not.
        yield note(where, f"this partition has no trigger {wanted.name} yet", APPLY)
    elif live is None:
        yield error(where, f"trigger {wanted.name} is missing", APPLY_AND_COPY)
    elif live.enabled != "A":
        yield error(where, f"trigger {wanted.name} is {_enabled(live.enabled)}", APPLY_AND_COPY)
    elif live.function != wanted.function or live.comment not in {wanted.comment, *wanted.former_comments}:
        yield error(where, f"trigger {wanted.name} is not what this layout and version make of it", APPLY_AND_COPY)


def _clone_complaints(wanted: TableCapture, live: dict[tuple[int, str], InstalledTrigger]) -> Iterator[Complaint]:
    own = {(trigger.table, trigger.name) for trigger in wanted.triggers}
    root = wanted.shape.oid
    names = [
        trigger.name
        for trigger in wanted.triggers
        if trigger.table == wanted.shape.table and (trigger.needs is None or (root, trigger.needs) in live)
    ]
    for node in wanted.shape.nodes[1:]:
        for name in names:
            if (node.table, name) in own:
                continue
            clone = live.get((node.oid, name))
            if clone is None or clone.enabled != "A":
                how = _enabled(clone.enabled) if clone else "missing"
                yield error(str(node.table), f"trigger {name} is {how}", APPLY_AND_COPY)


def _order_complaints(wanted: TableCapture, live: list[InstalledTrigger]) -> Iterator[Complaint]:
    last = min((trigger.name for trigger in wanted.triggers if trigger.name.startswith(LAST)), default=None)
    if last is None:
        return
    for trigger in sorted(live):
        is_later = trigger.is_row and trigger.is_before and trigger.is_write and trigger.name > last
        if is_later and not trigger.is_clone and not trigger.name.startswith(LAST):
            yield note(
                str(wanted.shape.table),
                f"trigger {trigger.name} runs after capture has decided on the version",
                "Give it a name that sorts before; what it changes of captured columns is refused.",
            )


def around_complaints(connection: Connection, layout: Layout, shape: Shape) -> Iterator[Complaint]:
    """Ways past the triggers, and what the races between deletion and insertion rest on."""
    where = str(shape.table)
    columns = [column for column in layout.columns.values() if column.table == shape.table]
    if not columns:
        return
    if not shape.is_partitioned:
        for (heir,) in rows(connection, HEIRS, (shape.oid,)):
            yield error(where, f"{heir} inherits from it and is not captured", "Make it a partition, or a table apart.")
    yield from row_security_complaints(connection, shape)
    for column in columns:
        yield from _unique_complaints(connection, layout, column, shape)


def _unique_complaints(
    connection: Connection, layout: Layout, column: MappedColumn, shape: Shape
) -> Iterator[Complaint]:
    number = [column.ref_key.column] if column.ref_key.column else []
    keys = [[column.uuid, *number]]
    if column.parent is not None:
        keys.append([column.parent, *number])
    wanted = [chr(31).join(sorted(key)) for key in keys]
    found = [is_immediate for (is_immediate,) in rows(connection, UNIQUE, (shape.oid, wanted))]
    names = ", ".join(map(quoted, keys[0]))
    if not found:
        yield error(str(shape.table), f"no unique index covers exactly {names}", "Create one, CONCURRENTLY.")
    elif not any(found):
        yield error(str(shape.table), f"the unique index on {names} is DEFERRABLE", "Create one that is not.")


def _enabled(letter: str) -> str:
    return {"D": "disabled", "O": "not enabled for sessions with the role replica", "R": "enabled for replicas only"}[
        letter
    ]
