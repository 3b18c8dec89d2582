"""Statement triggers for partitions that were made after `schema apply`: the gate, and the refusal of TRUNCATE."""

from __future__ import annotations

from collections.abc import Iterator
from logging import getLogger

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.capture.functions.gate import one_at_a_time
from tripstore.backends.postgres.capture.partitions.look import unguarded
from tripstore.backends.postgres.capture.plan import plan_table
from tripstore.backends.postgres.capture.shape import Shape, TableNode
from tripstore.backends.postgres.capture.state import find_number, read_state
from tripstore.backends.postgres.ddl.ddl import Patience, under_lock
from tripstore.backends.postgres.layout.layout import Layout

logger = getLogger(__name__)

#: The next look comes soon: a writer of the partition waits behind one try of ours at most.
SHY = Patience(lock_timeout_seconds=0.2, pause_seconds=0.0, give_up_seconds=0.0)


def guard_new_partitions(
    connection: Connection, layout: Layout, *, may_truncate: bool = False, patience: Patience = SHY
) -> int:
    """Make what partitions lack that the last look found; how many there were.

    Only by the layout that capture was installed by: another one's `schema apply` is on its way, or is not wanted.
    """
    number = find_number(connection, layout)
    if number is None or read_state(connection).layout != number:
        return 0
    count = 0
    for shape, node in _unguarded(connection, layout):
        plan = plan_table(layout, shape, number, may_truncate=may_truncate)
        makes = [each for trigger in plan.triggers if trigger.table == node.table for each in trigger.statements]
        statements = [one_at_a_time(layout.datastore), *makes]
        under_lock(connection, node.table, "SHARE ROW EXCLUSIVE", statements, patience, only=True)
        reach("partitions.guarded")
        extra = {"event": "legacy.partition_guarded", "partition": str(node.table)}
        logger.info("%s has the statement triggers of capture now", node.table, extra=extra)
        count += 1
    return count


def _unguarded(connection: Connection, layout: Layout) -> Iterator[tuple[Shape, TableNode]]:
    for table in sorted(layout.tables):
        shape = Shape.find(connection, table)
        if shape is not None and shape.is_partitioned:
            yield from ((shape, node) for node in unguarded(connection, shape) if node.oid != shape.oid)
