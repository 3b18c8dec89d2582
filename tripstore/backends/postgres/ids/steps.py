"""The steps from ids to UUIDs, for any layout: what `schema apply` does before capture.

After each of them the company's code goes on as it was: it inserts and reads by its ids and need not know of the UUIDs.
"""

from __future__ import annotations

from tripstore.backends.postgres.ddl.ddl import PATIENT, Patience
from tripstore.backends.postgres.ddl.steps import SchemaStep
from tripstore.backends.postgres.ids.key_backfill import STEADY, FillOldRows, FillPace
from tripstore.backends.postgres.ids.key_columns import AddColumn, KeyColumn
from tripstore.backends.postgres.ids.key_indexes import UniqueIndex
from tripstore.backends.postgres.ids.key_not_null import SetNotNull
from tripstore.backends.postgres.ids.key_triggers import FillNewRows
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn


def key_columns(layout: Layout) -> list[KeyColumn]:
    """Every table's column with the row key, the parent's first: the children's are looked up there."""
    source = layout.row_key
    parent = KeyColumn(source.table, source.uuid, source.id, source)
    children = [key_column(layout, column) for column in layout.children]
    return list(dict.fromkeys([parent, *children]))


def id_steps(layout: Layout, *, pace: FillPace = STEADY, patience: Patience = PATIENT) -> list[SchemaStep]:
    """All steps, in their order; to take them back, revert them in the opposite one."""
    return [step for column in key_columns(layout) for step in steps_of(column, pace=pace, patience=patience)]


def steps_of(column: KeyColumn, *, pace: FillPace = STEADY, patience: Patience = PATIENT) -> list[SchemaStep]:
    """The trigger comes before the old rows are filled, so that none can slip in between."""
    return [
        AddColumn(column, patience),
        FillNewRows(column, patience),
        FillOldRows(column, pace, patience),
        SetNotNull(column, patience),
        UniqueIndex(column, patience),
    ]


def key_column(layout: Layout, column: MappedColumn) -> KeyColumn:
    """That of a table of child rows."""
    assert column.parent is not None
    return KeyColumn(column.table, column.uuid, column.parent, layout.row_key, column.ref_key.column)
