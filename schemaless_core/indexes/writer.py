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
from schemaless_core.definitions.index import FieldComplaint
from schemaless_core.definitions.values import index_shard_of
from schemaless_core.engine.base import EntryWrite, Node
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.indexes.entries import IndexVersion, row_entries
from schemaless_core.indexes.rows import AS_COPIER, AloneCells, Rows, RowsRead
from schemaless_core.servers.routing import Router

#: Cells that are processed together: a handful of round trips to each server.
CELLS_PER_WRITE = 500


class EntryPlan(NamedTuple):
    """The entries to write for some rows, and what could not be read."""

    version: IndexVersion
    writes: Mapping[bytes, Sequence[EntryWrite]]
    rows: RowsRead
    errors: Mapping[int, SchemalessError]
    #: Of rows in whose latest cells something is wrong.
    complaints: Mapping[bytes, tuple[FieldComplaint, ...]]
    #: How many of the cells were known to be alone, so that nothing of them was read.
    alone: int


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

    def plan(
        self, versions: Sequence[IndexVersion], cells: Sequence[Cell], deadline: Deadline, *, may_be_alone: bool = False
    ) -> list[EntryPlan]:
        """Read the rows of committed cells; return the entries that each index version should have of them.

        `may_be_alone`: many are likely the only versions of their columns, as after a backfill. Then each shard says
        first of which that is so, and these are not read once more.
        """
        columns = dict.fromkeys(name for version in versions for name in version.definition.column_names)
        shard_columns = {version.shard_column for version in versions}
        keyed = [(cell.row_key.bytes, cell) for cell in cells]
        alone: AloneCells = {}
        if may_be_alone:
            alone = self._rows.alone([each for each in keyed if each[1].column_name in columns], deadline)
        moving = [each for each in keyed if each[1].column_name in shard_columns]
        known = [cell for row_key, cell in moving if (row_key, cell.column_name) not in alone]
        before, errors = self._rows.before(known, deadline)
        row_keys = dict.fromkeys(row_key for row_key, _cell in keyed)
        unknown = [(row_key, name) for row_key in row_keys for name in columns if (row_key, name) not in alone]
        rows = self._rows.latest_of(unknown, deadline).beside(alone)
        reach("index.read")
        history = _by_row([*moving, *((cell.row_key.bytes, cell) for cell in before)])
        errors = {**errors, **rows.errors}
        return [self._plan(version, keyed, rows, history, errors, len(alone)) for version in versions]

    def _plan(
        self,
        version: IndexVersion,
        keyed: Sequence[tuple[bytes, Cell]],
        rows: RowsRead,
        history: Mapping[bytes, Sequence[Cell]],
        errors: Mapping[int, SchemalessError],
        alone: int,
    ) -> EntryPlan:
        writes: dict[bytes, Sequence[EntryWrite]] = {}
        complaints: dict[bytes, tuple[FieldComplaint, ...]] = {}
        columns, shard_column = frozenset(version.definition.column_names), version.shard_column
        for row_key in dict.fromkeys(row_key for row_key, cell in keyed if cell.column_name in columns):
            versions = [cell for cell in history.get(row_key, ()) if cell.column_name == shard_column]
            writes[row_key], wrong = row_entries(version, row_key, rows.of(row_key), versions)
            if wrong:
                complaints[row_key] = wrong
        return EntryPlan(version, writes, rows, errors, complaints, alone)

    def carry_out(self, plan: EntryPlan, cells: Sequence[Cell], deadline: Deadline) -> list[SchemalessError | None]:
        """Write what was planned; one answer per cell."""
        reach("index.before_write")
        unread = {
            row_key: error
            for row_key in (plan.writes if plan.errors else ())
            if (error := plan.errors.get(shard_of_bytes(row_key, self._shards))) is not None
        }
        writes = [write for row_key, of_row in plan.writes.items() if row_key not in unread for write in of_row]
        failed = self.put(plan.version, writes, deadline)
        reach("index.written")
        if not unread and not failed:
            return [None] * len(cells)
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


def _by_row(keyed: Iterable[tuple[bytes, Cell]]) -> dict[bytes, list[Cell]]:
    rows: defaultdict[bytes, list[Cell]] = defaultdict(list)
    for row_key, cell in keyed:
        rows[row_key].append(cell)
    return rows
