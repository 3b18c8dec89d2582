"""`EntryWriter`: brings entries up to date after cells were committed. Any process may call it, any number of times.

Reads come after the cells' commits, writes after the reads; between them nothing is locked. Two that work at the same
row write what each has read, and each entry takes the newest of it. An entry's server that is down fails the cells that
need it, and no others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from schemaless_core.cell.cell import Cell
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import ShardState
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.values import index_shard_of
from schemaless_core.engine.base import EntryWrite, Node
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.indexes.entries import IndexVersion, entries_of
from schemaless_core.indexes.rows import AS_COPIER, Rows, RowsRead
from schemaless_core.servers.routing import Router

#: Cells that are processed together: a handful of round trips to each server.
CELLS_PER_WRITE = 500


class EntryPlan(NamedTuple):
    """The entries to write for some rows, and what could not be read."""

    version: IndexVersion
    writes: Mapping[bytes, Sequence[EntryWrite]]
    rows: RowsRead
    errors: Mapping[int, SchemalessError]


class _Written(NamedTuple):
    """What a shard said of itself after its entries were written."""

    state: ShardState


class EntryWriter:
    """Writes entries of any index version of a datastore."""

    def __init__(self, router: Router, shards: int) -> None:
        self._router = router
        self._shards = shards
        self._rows = Rows(router, shards)

    def write(
        self, version: IndexVersion, cells: Sequence[Cell], deadline: Deadline
    ) -> tuple[EntryPlan, list[SchemalessError | None]]:
        """Process committed cells. One answer per cell: None once all entries that it calls for are written."""
        (plan,) = self.plan([version], cells, deadline)
        return plan, self.carry_out(plan, cells, deadline)

    def plan(self, versions: Sequence[IndexVersion], cells: Sequence[Cell], deadline: Deadline) -> list[EntryPlan]:
        """Read the rows of committed cells; return the entries that each index version should have of them."""
        columns = dict.fromkeys(name for version in versions for name in version.definition.column_names)
        shard_columns = {version.shard_column for version in versions}
        row_keys = {cell.row_key.bytes for cell in cells}
        moving = [cell for cell in cells if cell.column_name in shard_columns]
        before, errors = self._rows.before(moving, deadline)
        rows = self._rows.latest(row_keys, list(columns), deadline)
        reach("index.read")
        history = _by_row([*moving, *before])
        return [self._plan(version, cells, rows, history, errors) for version in versions]

    def _plan(
        self,
        version: IndexVersion,
        cells: Sequence[Cell],
        rows: RowsRead,
        history: Mapping[bytes, Sequence[Cell]],
        errors: Mapping[int, SchemalessError],
    ) -> EntryPlan:
        writes = {
            row_key: entries_of(
                version,
                row_key,
                rows.of(row_key),
                [cell for cell in history.get(row_key, ()) if cell.column_name == version.shard_column],
            )
            for row_key in dict.fromkeys(
                cell.row_key.bytes for cell in cells if cell.column_name in version.definition.column_names
            )
        }
        return EntryPlan(version, writes, rows, {**errors, **rows.errors})

    def carry_out(self, plan: EntryPlan, cells: Sequence[Cell], deadline: Deadline) -> list[SchemalessError | None]:
        """Write what was planned; one answer per cell."""
        reach("index.before_write")
        unread = {
            row_key: error
            for row_key in plan.writes
            if (error := plan.errors.get(shard_of_bytes(row_key, self._shards))) is not None
        }
        writes = [write for row_key, of_row in plan.writes.items() if row_key not in unread for write in of_row]
        failed = self.put(plan.version, writes, deadline)
        reach("index.written")
        return [self._answer(plan, cell.row_key.bytes, unread, failed) for cell in cells]

    def put(
        self, version: IndexVersion, writes: Iterable[EntryWrite], deadline: Deadline
    ) -> dict[int, SchemalessError]:
        """Write entries where they belong; return the errors of index shards."""
        entries: defaultdict[int, list[EntryWrite]] = defaultdict(list)
        for write in writes:
            entries[self.shard_of(version, write)].append(write)

        def put(node: Node, part: Mapping[int, Sequence[EntryWrite]]) -> dict[int, _Written]:
            states = node.put_entries(version.table, part, deadline)
            return {shard: _Written(state) for shard, state in states.items()}

        answers = self._router.write_each(entries, put, AS_COPIER, deadline)
        return {shard: answer for shard, answer in answers.items() if isinstance(answer, SchemalessError)}

    def shard_of(self, version: IndexVersion, write: EntryWrite) -> int:
        """The shard whose tables hold an entry."""
        return index_shard_of(version.definition.shard_field.kind, write.shard_value, self._shards)

    def _answer(
        self,
        plan: EntryPlan,
        row_key: bytes,
        unread: Mapping[bytes, SchemalessError],
        failed: Mapping[int, SchemalessError],
    ) -> SchemalessError | None:
        if row_key in unread:
            return unread[row_key]
        for write in plan.writes.get(row_key, ()):
            if (error := failed.get(self.shard_of(plan.version, write))) is not None:
                return error
        return None


def _by_row(cells: Iterable[Cell]) -> dict[bytes, list[Cell]]:
    rows: defaultdict[bytes, list[Cell]] = defaultdict(list)
    for cell in cells:
        rows[cell.row_key.bytes].append(cell)
    return rows
