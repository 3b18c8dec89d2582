"""`Lifts`: raises the version of a row and changes nothing else, so that capture has it carried once more."""

from __future__ import annotations

from schemaless_core.cell import CellKey
from schemaless_core.deadline import Deadline
from schemaless_core.failpoints import reach
from tripstore.backends.postgres.cells.fence import Standing
from tripstore.backends.postgres.cells.places import ColumnPlaces
from tripstore.backends.postgres.cells.rows import quoted_int, quoted_uuid
from tripstore.backends.postgres.cells.sights import begin_sql
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.wire import LegacyConnection


class Lifts:
    """The rows of one legacy store, for an owner: the version is his to say only while Postgres is the authority."""

    def __init__(self, database: LegacyDatabase, places: ColumnPlaces, standing: Standing) -> None:
        self._database = database
        self._places = places
        self._standing = standing

    def lift(self, to: CellKey, deadline: Deadline) -> bool:
        """Give a row the version of this key; False: it is not there, or stands there or above already."""
        rows = self._places.columns[to.column_name]
        assert rows.version is not None  # facts have none
        number, version = rows.column.split(to.ref_key)
        key = quoted_uuid(to.row_key)
        update = (
            f"UPDATE {rows.table} AS r SET {rows.version} = {quoted_int(version)} "
            f"WHERE {rows.is_row(key, quoted_int(number))} AND r.{rows.version} < {quoted_int(version)} "
            f"AND NOT EXISTS ({rows.own.at(key, quoted_int(to.ref_key))}) RETURNING 1"
        )

        def lift(connection: LegacyConnection) -> bool:
            found = connection.rows(f"{begin_sql(connection, self._standing)}; {update}")
            reach("lift.before_commit")
            connection.rows("COMMIT")
            reach("lift.committed")
            return bool(found)

        return self._database.run(lift, deadline)
