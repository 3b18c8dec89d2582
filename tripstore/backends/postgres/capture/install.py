"""The steps that install capture, in the order that leaves no gap: columns, tables, triggers on all, then `since`.

CREATE TRIGGER waits for the transactions that are writing its table. So a backfill whose snapshot is younger than
`since` sees what was written without capture, and capture has what comes later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.failpoints import reach
from tripstore.backends.postgres.capture import state
from tripstore.backends.postgres.capture.columns import added_columns
from tripstore.backends.postgres.capture.functions.gate import gate_functions, gate_trigger, one_at_a_time
from tripstore.backends.postgres.capture.migrate import is_newest, migrate, unmigrate
from tripstore.backends.postgres.capture.partitions.event import PartitionsLook
from tripstore.backends.postgres.capture.partitions.look import look_and_learn, look_at_partitions
from tripstore.backends.postgres.capture.plan import CELLS, Saboteur, TableCapture, plan_cells, plan_table
from tripstore.backends.postgres.capture.remove import drop_function, drop_table_capture
from tripstore.backends.postgres.capture.shape import Shape
from tripstore.backends.postgres.capture.unwanted import Unwanted
from tripstore.backends.postgres.capture.verify import (
    captured_tables,
    cells_complaints,
    gate_complaints,
    table_complaints,
)
from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience, under_lock
from tripstore.backends.postgres.ddl.steps import Progress, SchemaStep
from tripstore.backends.postgres.layout.layout import Layout, TableName
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows


def capture_steps(
    layout: Layout,
    *,
    may_truncate: bool = False,
    warns: bool = False,
    patience: Patience = PATIENT,
    saboteur: Saboteur | None = None,
) -> list[SchemaStep]:
    """To be done after the steps of the ids: every table has its UUID column then.

    `warns`: after a switch, services' own writes are warned of and not refused.
    """
    tables = [TableTriggers(layout, table, may_truncate, patience, saboteur) for table in captured_tables(layout)]
    return [
        *added_columns(layout, patience),
        OwnTables(),
        GateFunctions(layout, warns),
        PartitionsLook(layout),
        CellGate(layout, patience),
        *tables,
        Unwanted(layout, patience),
        Since(layout),
    ]


@dataclass(frozen=True, slots=True)
class OwnTables:
    """Queue, log, tombs and the rest, by alembic."""

    @property
    def title(self) -> str:
        return f"our own tables in schema {SCHEMA}"

    def is_done(self, connection: Connection) -> bool:
        return is_newest(connection)

    def statements(self) -> Sequence[str]:
        return [f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}", f"-- alembic upgrade head, version table in {SCHEMA}"]

    def apply(self, connection: Connection, progress: Progress) -> None:
        migrate(connection)
        progress(1, 1)

    def revert(self, connection: Connection) -> None:
        unmigrate(connection)


@dataclass(frozen=True, slots=True)
class GateFunctions:
    """What runs when the gate is not plainly open; and the number of the layout."""

    layout: Layout
    warns: bool = False

    @property
    def title(self) -> str:
        return "the functions of the gate"

    def is_done(self, connection: Connection) -> bool:
        registered = state.find_number(connection, self.layout) is not None
        return registered and not list(gate_complaints(connection, self.layout, warns=self.warns))

    def statements(self) -> Sequence[str]:
        return [function.create for function in gate_functions(self.layout.datastore, warns=self.warns)]

    def apply(self, connection: Connection, progress: Progress) -> None:
        rows(connection, "; ".join([one_at_a_time(self.layout.datastore), *self.statements()]))
        reach("capture.gate_made")
        state.register(connection, self.layout)
        progress(1, 1)

    def revert(self, connection: Connection) -> None:
        for function in gate_functions(self.layout.datastore):
            drop_function(connection, function.name, function.arguments)


@dataclass(frozen=True, slots=True)
class CellGate:
    """The gate before cells of our own."""

    layout: Layout
    patience: Patience

    @property
    def title(self) -> str:
        return f"the gate of {CELLS}"

    def is_done(self, connection: Connection) -> bool:
        return not list(cells_complaints(connection, self.layout))

    def statements(self) -> Sequence[str]:
        return [gate_trigger(CELLS, self.layout.datastore)]

    def apply(self, connection: Connection, progress: Progress) -> None:
        plan = plan_cells(self.layout, Shape.read(connection, CELLS))
        statements = [one_at_a_time(self.layout.datastore), *plan.statements]
        under_lock(connection, CELLS, "SHARE ROW EXCLUSIVE", statements, self.patience)
        progress(1, 1)

    def revert(self, connection: Connection) -> None:
        shape = Shape.find(connection, CELLS)
        if shape is not None:
            drop_table_capture(connection, shape, self.patience)


@dataclass(frozen=True, slots=True)
class TableTriggers:
    """All functions and triggers of one table and its partitions, made or replaced in one transaction."""

    layout: Layout
    table: TableName
    may_truncate: bool
    patience: Patience
    saboteur: Saboteur | None = None

    @property
    def title(self) -> str:
        return f"triggers of {self.table}"

    def is_done(self, connection: Connection) -> bool:
        number = state.find_number(connection, self.layout)
        return number is not None and not list(table_complaints(connection, self._plan(connection, number)))

    def statements(self) -> Sequence[str]:
        return [f"LOCK TABLE {self.table.sql} IN SHARE ROW EXCLUSIVE MODE", "-- functions and triggers in one packet"]

    def apply(self, connection: Connection, progress: Progress) -> None:
        plan = self._plan(connection, state.register(connection, self.layout))
        self._note_gap(connection)
        reach("capture.before_triggers")
        before, after = list[str](), list[str]()
        if plan.shape.is_partitioned and plan.is_mapped:
            look_at_partitions(connection)  # it may take its time; within the packet it has little left to find
            before, after = look_and_learn(plan.shape)
        statements = [one_at_a_time(self.layout.datastore), *before, *plan.statements, *after]
        under_lock(connection, self.table, "SHARE ROW EXCLUSIVE", statements, self.patience)
        reach("capture.triggers_made")
        progress(1, 1)

    def revert(self, connection: Connection) -> None:
        shape = Shape.find(connection, self.table)
        if shape is not None:
            drop_table_capture(connection, shape, self.patience)

    def _note_gap(self, connection: Connection) -> None:
        """Whatever was missing here was missing for a while. A new layout begins anew by itself."""
        now = state.read_state(connection)
        number = state.find_number(connection, self.layout)
        if now.since is None or now.layout != number or number is None:
            return
        found = table_complaints(connection, self._plan(connection, number))
        missed = [each for each in found if each.is_error and not each.misses_nothing]
        for complaint in missed[:1]:
            state.note_gap(connection, f"{complaint.where}: {complaint.reason}")

    def _plan(self, connection: Connection, number: int) -> TableCapture:
        shape = Shape.read(connection, self.table)
        return plan_table(self.layout, shape, number, may_truncate=self.may_truncate, saboteur=self.saboteur)


@dataclass(frozen=True, slots=True)
class Since:
    """From now on nothing is missed."""

    layout: Layout

    @property
    def title(self) -> str:
        return "capture begins"

    def is_done(self, connection: Connection) -> bool:
        now = state.read_state(connection)
        return now.since is not None and now.layout == state.find_number(connection, self.layout)

    def statements(self) -> Sequence[str]:
        return [f"UPDATE {SCHEMA}.capture SET since = clock_timestamp(), layout = …"]

    def apply(self, connection: Connection, progress: Progress) -> None:
        state.begin(connection, state.register(connection, self.layout))
        reach("capture.begun")
        progress(1, 1)

    def revert(self, connection: Connection) -> None:
        if state.read_state(connection).since is not None:
            state.note_gap(connection, "capture was removed")
