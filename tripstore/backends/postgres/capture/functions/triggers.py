"""`RowTrigger`: a row trigger of ours on a mapped table, cloned by Postgres to its partitions."""

from __future__ import annotations

from dataclasses import dataclass

from tripstore.backends.postgres.capture.names import in_schema
from tripstore.backends.postgres.layout.layout import TableName, quoted


@dataclass(frozen=True, slots=True)
class RowTrigger:
    """Fires always: logical apply and sessions with the role `replica` change rows, too."""

    name: str
    time: str
    event: str
    function: str
    when: str | None = None
    level: str = "ROW"
    #: The trigger without which nothing reaches it. An earlier version had neither, and refused what they capture.
    needs: str | None = None
    #: It captures nothing. What it refuses, an earlier version let through.
    refuses: bool = False

    def create(self, table: TableName) -> str:
        when = f" WHEN ({self.when})" if self.when else ""
        return (
            f"CREATE OR REPLACE TRIGGER {quoted(self.name)} {self.time} {self.event} ON {table.sql} "
            f"FOR EACH {self.level}{when} EXECUTE FUNCTION {in_schema(self.function)}()"
        )


def enable_always(name: str, table: TableName) -> str:
    return f"ALTER TABLE {table.sql} ENABLE ALWAYS TRIGGER {quoted(name)}"
