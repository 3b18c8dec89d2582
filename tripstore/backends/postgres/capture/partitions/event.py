"""`PartitionsLook`: the step that makes the look at partitions, and the event trigger that calls it at once.

Postgres lets superusers alone make event triggers. Without one, what happened is found by the next look: a worker's
within seconds, else that of `doctor`, a gate or `diff start`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.capture.functions.gate import one_at_a_time
from tripstore.backends.postgres.capture.names import EVENT_TRIGGER, in_schema
from tripstore.backends.postgres.capture.partitions.look import EVENT_FUNCTION, partition_functions
from tripstore.backends.postgres.capture.remove import drop_function
from tripstore.backends.postgres.capture.shape import Shape
from tripstore.backends.postgres.capture.verify_functions import function_complaints
from tripstore.backends.postgres.ddl.steps import Progress
from tripstore.backends.postgres.errors import LegacyRefused
from tripstore.backends.postgres.layout.complaints import Complaint, note
from tripstore.backends.postgres.layout.layout import Layout, quoted
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

#: After these commands a partition may be another, or none.
TAGS = ["ALTER TABLE", "CREATE TABLE", "DROP TABLE", "DROP SCHEMA", "DROP OWNED"]

_MAY_MAKE = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user"
_FOUND = """
SELECT e.evtenabled = 'A' AND e.evtevent = 'ddl_command_end' AND p.proname = %s AND s.nspname = %s
  AND e.evttags @> %s AND e.evttags <@ %s
FROM pg_catalog.pg_event_trigger e JOIN pg_catalog.pg_proc p ON p.oid = e.evtfoid
JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace WHERE e.evtname = %s
"""


@dataclass(frozen=True, slots=True)
class PartitionsLook:
    """Before the triggers of any table: partitions are compared from then on."""

    layout: Layout

    @property
    def title(self) -> str:
        return "the look at partitions"

    def is_done(self, connection: Connection) -> bool:
        return not list(look_complaints(connection, self.layout))

    def statements(self) -> Sequence[str]:
        return [*(function.create for function in partition_functions()), *_event_statements()]

    def apply(self, connection: Connection, progress: Progress) -> None:
        alone = one_at_a_time(self.layout.datastore)
        makes = [each for function in partition_functions() for each in function.statements]
        rows(connection, "; ".join([alone, *makes]))
        reach("capture.look_made")
        if has_partitions(connection, self.layout) and _may_make(connection) and not _is_right(connection):
            rows(connection, "; ".join([alone, *_event_statements()]))
        reach("capture.event_made")
        progress(1, 1)

    def revert(self, connection: Connection) -> None:
        drop_event_trigger(connection)
        for function in reversed(partition_functions()):
            drop_function(connection, function.name, function.arguments)


def look_complaints(connection: Connection, layout: Layout) -> Iterator[Complaint]:
    """Whether partitions are compared, and at once."""
    for function in partition_functions():
        yield from function_complaints(connection, "partitions", function, None)
    if has_partitions(connection, layout) and _may_make(connection) and not _is_right(connection):
        reason = f"the event trigger {EVENT_TRIGGER} is missing or off: what happens to them is found by the next look"
        yield note("partitions", reason, "Run `tripstore schema apply`.")


def has_partitions(connection: Connection, layout: Layout) -> bool:
    """Whether a mapped table is partitioned."""
    shapes = (Shape.find(connection, table) for table in layout.tables)
    return any(shape is not None and shape.is_partitioned for shape in shapes)


def drop_event_trigger(connection: Connection) -> None:
    """A superuser may have made it for us; then a superuser has to take it off as well."""
    if _find(connection) is None:
        return
    try:
        rows(connection, f"DROP EVENT TRIGGER IF EXISTS {quoted(EVENT_TRIGGER)}")
    except postgres.InsufficientPrivilege as error:
        raise LegacyRefused(
            f"The event trigger {EVENT_TRIGGER} is another role's, and calls a function that is to go.",
            hint=f"Have a superuser run DROP EVENT TRIGGER {EVENT_TRIGGER}, then run the same command again.",
        ) from error


def _event_statements() -> list[str]:
    name, tags = quoted(EVENT_TRIGGER), ", ".join(f"'{tag}'" for tag in TAGS)
    return [
        f"DROP EVENT TRIGGER IF EXISTS {name}",
        f"CREATE EVENT TRIGGER {name} ON ddl_command_end WHEN TAG IN ({tags}) "
        f"EXECUTE FUNCTION {in_schema(EVENT_FUNCTION)}()",
        f"ALTER EVENT TRIGGER {name} ENABLE ALWAYS",
    ]


def has_event_trigger(connection: Connection) -> bool:
    return _find(connection) is not None


def _may_make(connection: Connection) -> bool:
    return bool(rows(connection, _MAY_MAKE)[0][0])


def _is_right(connection: Connection) -> bool:
    return _find(connection) is True


def _find(connection: Connection) -> bool | None:
    """Whether it is as we make it; None: there is none."""
    found = rows(connection, _FOUND, (EVENT_FUNCTION, SCHEMA, TAGS, TAGS, EVENT_TRIGGER))
    return bool(found[0][0]) if found else None
