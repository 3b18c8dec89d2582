"""`Proposal`: a layout to be looked at, as data: what is proposed, what is not, and what would have to be added."""

from __future__ import annotations

from dataclasses import dataclass

from tripstore.backends.postgres.layout.layout import Field, RefKeySource, TableName


@dataclass(frozen=True, slots=True)
class ProposedField:
    """A physical column and the field for it; without one the remark says why."""

    column: str
    field: Field | None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ProposedColumn:
    """A table and the column of cells for it; without a ref key the remarks say what it lacks."""

    name: str
    table: TableName
    ref_key: RefKeySource | None
    fields: tuple[ProposedField, ...]
    extra: str
    has_extra: bool = False  #: Whether that column is there.
    parent: str | None = None
    uuid: str | None = None  #: Only when it is not called as in the parent.
    remarks: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()  #: What adds what it lacks, in this order.


@dataclass(frozen=True, slots=True)
class Proposal:
    """A layout to be looked at."""

    datastore: str
    table: TableName
    id: str
    uuid: str
    columns: tuple[ProposedColumn, ...]
    remarks: tuple[str, ...] = ()
