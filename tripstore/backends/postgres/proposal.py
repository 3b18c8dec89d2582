"""What a layout for given tables could be: guesses from keys, types and statistics, each with its reason.

A guess is data here; `proposal_text` writes it down. A person decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from psycopg2.extensions import connection as Connection  # noqa: N812

from schemaless_core.indexes.documents import meant
from tripstore.backends.postgres.catalogue import LiveCatalogue
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.fitting import INTEGERS, KEYS, find_misfit, proposed_type
from tripstore.backends.postgres.layout import Field, FieldType, Lookup, RefKeySource, TableName
from tripstore.backends.postgres.live import LiveColumn, LiveTable, TableKind
from tripstore.backends.postgres.reading import is_supported

#: Columns that say that rows do change, and change whenever anything does.
_TOUCHED = re.compile(r"(updated|modified|changed|touched)(_at|_on|_time)?|last_(update|modified|change)\w*|mtime")


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


@dataclass(frozen=True, slots=True)
class Proposal:
    """A layout to be looked at."""

    datastore: str
    table: TableName
    id: str
    uuid: str
    columns: tuple[ProposedColumn, ...]
    remarks: tuple[str, ...] = ()


def propose(connection: Connection, names: Sequence[TableName], datastore: str) -> Proposal:
    """Look at these tables and at those they point to."""
    live = LiveCatalogue.read(connection, names)
    for name in names:
        if name not in live.tables:
            known = live.neighbours.get(name.schema, ())
            hint = (
                meant(name.name, known, f"Tables in schema {name.schema}")
                if known
                else f"Schema {name.schema} has none."
            )
            raise InvalidLayout(f"There is no table {name}.", hint=hint)
        if live.tables[name].kind not in (TableKind.TABLE, TableKind.PARTITIONED):
            raise InvalidLayout(f"{name} is no table.", hint="Name the tables that hold the rows.")
    targets = {key.target for table in live.tables.values() for key in table.foreign_keys} - live.tables.keys()
    others = LiveCatalogue.read(connection, targets).tables if targets else {}
    return _Guess({name: live.tables[name] for name in names}, {**others, **live.tables}, datastore).proposal()


@dataclass
class _Guess:
    """Tables that were asked for, in their order, and all that are known."""

    tables: Mapping[TableName, LiveTable]
    known: Mapping[TableName, LiveTable]
    datastore: str
    remarks: list[str] = field(default_factory=list)

    def proposal(self) -> Proposal:
        parent = self._parent()
        identity = self._id(parent)
        uuid = self._uuid(parent)
        columns = [self._base(parent, identity, uuid)]
        columns += [self._child(table, parent, identity, uuid) for table in self.tables.values() if table is not parent]
        return Proposal(self.datastore, parent.name, identity, uuid, _renamed_apart(columns), tuple(self.remarks))

    def _parent(self) -> LiveTable:
        """The table that most of the others point to; the first of them when that does not decide."""
        pointing = {
            name: sum(any(key.target == name for key in table.foreign_keys) for table in self._others(name))
            for name in self.tables
        }
        most = max(pointing.values())
        best = [name for name, count in pointing.items() if count == most]
        if len(best) > 1:
            self.remarks.append(f"{best[0]} is taken for the table of the rows: the foreign keys do not decide it.")
        return self.tables[best[0]]

    def _others(self, name: TableName) -> list[LiveTable]:
        return [table for other, table in self.tables.items() if other != name]

    def _id(self, table: LiveTable) -> str:
        for index in sorted(table.unique_indexes, key=lambda index: not index.is_primary):
            name = index.columns[0]
            if index.is_exactly((name,)) and name in table.columns and _is_number(table.columns[name]):
                return name
        raise InvalidLayout(
            f"{table.name} has no unique column of whole numbers that is NOT NULL.",
            hint="Its rows need an id: name another table first, or give it a primary key.",
        )

    def _uuid(self, table: LiveTable) -> str:
        """A unique UUID that is there, or the name of one that `schema apply` adds."""
        found = _find_uuid(table)
        if found is not None:
            return found
        name = f"{_singular(table.name.name)}_uuid"
        if name in table.columns and table.columns[name].type.plain.name != "uuid":
            name = f"{_singular(table.name.name)}_row_uuid"
        self.remarks.append(f"{table.name}.{name} is not there or not unique yet: `tripstore schema apply` sees to it.")
        return name

    def _base(self, table: LiveTable, identity: str, uuid: str) -> ProposedColumn:
        version, extra = _version_name(table, "base_version"), _extra_name(table, "base_extra")
        fields = self._fields(table, {identity, uuid, version, extra})
        has_extra = extra in table.columns
        return ProposedColumn("BASE", table.name, RefKeySource(version=version), fields, extra, has_extra)

    def _child(self, table: LiveTable, parent: LiveTable, identity: str, uuid: str) -> ProposedColumn:
        stem = table.name.name.removeprefix(f"{_singular(parent.name.name)}_")
        extra = _extra_name(table, f"{_singular(stem)}_extra")
        pointers = [key.columns[0] for key in table.foreign_keys if key.leads(key.columns[0], parent.name, identity)]
        if not pointers:
            remark = f"no foreign key leads to {parent.name}.{identity}: write by hand what points to it"
            return ProposedColumn(
                _column_name(stem), table.name, None, self._fields(table, set()), extra, remarks=(remark,)
            )
        pointer, remarks = pointers[0], []
        if len(pointers) > 1:
            remarks.append(f"{', '.join(pointers)} all point to {parent.name}: {pointer} is taken for the parent")
        own_uuid = uuid if _may_be_uuid(table, uuid) else f"{_singular(parent.name.name)}_row_uuid"
        number, why = _number(table, pointer)
        remarks += [why] if why else []
        version = _version_name(table, f"{_singular(stem)}_version")
        changes, why = _changes(table, parent)
        remarks.append(why)
        source = None if number is None else RefKeySource(number, version if changes else None)
        taken = {pointer, own_uuid, number or "", version, extra, *_surrogates(table)}
        return ProposedColumn(
            name=_column_name(stem),
            table=table.name,
            ref_key=source,
            fields=self._fields(table, taken),
            extra=extra,
            has_extra=extra in table.columns,
            parent=pointer,
            uuid=own_uuid if own_uuid != uuid else None,
            remarks=tuple(remarks),
        )

    def _fields(self, table: LiveTable, taken: set[str]) -> tuple[ProposedField, ...]:
        return tuple(self._field(table, column) for name, column in table.columns.items() if name not in taken)

    def _field(self, table: LiveTable, column: LiveColumn) -> ProposedField:
        if not is_supported(column.name):
            return ProposedField(column.name, None, "its name holds a character that is not supported")
        if column.is_generated:
            return ProposedField(column.name, None, "Postgres computes it")
        if column.is_always_identity:
            return ProposedField(column.name, None, "GENERATED ALWAYS AS IDENTITY: puts could not write it")
        if _TOUCHED.fullmatch(column.name):
            return ProposedField(
                column.name, None, "changes whenever anything does, and would make a version each time"
            )
        looked_up = self._lookup(table, column)
        if looked_up is not None:
            return looked_up
        kind = proposed_type(column.type)
        if kind is None:
            misfit = find_misfit(Field(column.name, column.name, FieldType.STRING), column.type)
            return ProposedField(column.name, None, f"{column.shown_type}: {misfit}")
        element = column.type.plain.element
        items = proposed_type(element) if kind is FieldType.ARRAY and element is not None else None
        remark = "has no time zone: make sure that it is UTC" if column.type.plain.name == "timestamp" else ""
        return ProposedField(column.name, _plain(column.name, kind, items), remark)

    def _lookup(self, table: LiveTable, column: LiveColumn) -> ProposedField | None:
        """A key of another table, which bodies should hold as a UUID."""
        for key in table.foreign_keys:
            if key.columns != (column.name,) or column.type.plain.name not in KEYS:
                continue
            other = self.known.get(key.target)
            uuid = None if other is None else _find_uuid(other, key.target_columns[0])
            if uuid is None:
                kind = proposed_type(column.type)
                remark = f"points to {key.target}, which has no unique NOT NULL uuid: bodies would hold its key"
                return ProposedField(column.name, None if kind is None else _plain(column.name, kind), remark)
            lookup = Lookup(key.target, key.target_columns[0], uuid)
            name = re.sub(r"_id$", "", column.name) + "_uuid"
            return ProposedField(column.name, Field(name, column.name, FieldType.UUID, lookup))
        return None


def _plain(name: str, kind: FieldType, items: FieldType | None = None) -> Field:
    return Field(name, name, kind, items=items)


def _find_uuid(table: LiveTable, *but: str) -> str | None:
    found = [
        column.name
        for column in table.columns.values()
        if column.name not in but
        and column.type.plain.name == "uuid"
        and column.refuses_null
        and not column.is_generated
        and table.find_unique(column.name)
    ]
    return max(found, key=lambda name: name.endswith("uuid"), default=None)


def _number(table: LiveTable, pointer: str) -> tuple[str | None, str]:
    """What tells the rows of one parent apart, and what has to be said of it."""
    for index in table.unique_indexes:
        others = [name for name in index.columns if name != pointer]
        if len(others) == 1 and index.is_exactly((pointer, others[0])) and _is_number(table.columns.get(others[0])):
            return others[0], "" if index.is_immediate else f"{index.name} is DEFERRABLE: make an immediate one"
    for index in table.unique_indexes:
        if index.is_primary and len(index.columns) == 1 and _is_number(table.columns.get(index.columns[0])):
            statement = f"CREATE UNIQUE INDEX CONCURRENTLY ON {table.name.sql} ({pointer}, {index.columns[0]})"
            return index.columns[0], f"its own key is taken for the number: {statement}"
    if table.find_unique(pointer):
        return None, "one row per parent has no number: add a constant one, NOT NULL, and a unique index with it"
    return None, f"no unique index on ({pointer}, a whole number): add one"


def _changes(table: LiveTable, parent: LiveTable) -> tuple[bool, str]:
    """Whether rows change, and by what sign."""
    touched = [name for name in table.columns if _TOUCHED.fullmatch(name)]
    if touched:
        return True, f"rows change: there is {touched[0]}"
    hint = "; if only columns that are not mapped change, they are facts: leave version out"
    if table.updated:
        return True, f"rows change: {table.updated} updates were counted{hint}"
    if table.deleted and not parent.deleted:
        return True, f"rows change: {table.deleted} deletes were counted, none of them with {parent.name}"
    if not table.inserted:
        return True, "nothing was counted here yet; if rows never change, they are facts: leave version out"
    return False, f"facts: {table.inserted} inserts were counted, and no update. Add version: if rows may change"


def _is_number(column: LiveColumn | None) -> bool:
    return column is not None and column.type.plain.name in INTEGERS and column.refuses_null and not column.is_generated


def _may_be_uuid(table: LiveTable, name: str) -> bool:
    column = table.columns.get(name)
    return column is None or (column.type.plain.name == "uuid" and not column.is_generated)


def _surrogates(table: LiveTable) -> set[str]:
    """The table's own key, which means nothing elsewhere, unless it points to another table."""
    keys = {index.columns[0] for index in table.unique_indexes if index.is_primary and len(index.columns) == 1}
    own = {name for name in keys if _is_number(table.columns.get(name))}
    return own - {name for key in table.foreign_keys for name in key.columns}


def _version_name(table: LiveTable, name: str) -> str:
    """One that `schema apply` made, or one that it can add."""
    return name if name not in table.columns or _is_number(table.columns[name]) else f"{name}_2"


def _extra_name(table: LiveTable, name: str) -> str:
    return name if name not in table.columns or table.columns[name].type.plain.name == "json" else f"{name}_2"


def _singular(name: str) -> str:
    if name.endswith("ies"):
        return f"{name[:-3]}y"
    if name.endswith(("sses", "xes", "ches")):
        return name[:-2]
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name


def _column_name(stem: str) -> str:
    return stem.upper()[:40] or "ROWS"


def _renamed_apart(columns: list[ProposedColumn]) -> tuple[ProposedColumn, ...]:
    seen: set[str] = set()
    apart = []
    for column in columns:
        name = column.name if column.name not in seen else f"{column.name}_{len(seen)}"
        seen.add(name)
        apart.append(replace(column, name=name))
    return tuple(apart)
