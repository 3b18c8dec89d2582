"""What a layout for given tables could be: guesses from keys, types and statistics, each with its reason.

A guess is data here; `proposal_text` writes it down. A person decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.backends.postgres.checks.keys import check_parents_key
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.ids.key_columns import KeyColumn
from tripstore.backends.postgres.ids.key_match import KeyMatch, carries_parents_key, sample_keys
from tripstore.backends.postgres.layout.catalogue import LiveCatalogue
from tripstore.backends.postgres.layout.layout import RefKeySource, RowKeySource, TableName
from tripstore.backends.postgres.layout.live import LiveColumn, LiveTable, TableKind
from tripstore.backends.postgres.layout.meant_tables import meant_table
from tripstore.backends.postgres.layout.reading_names import NAME_BYTES_MAX
from tripstore.backends.postgres.proposals.fields import propose_fields
from tripstore.backends.postgres.proposals.number import FoundNumber, find_number
from tripstore.backends.postgres.proposals.proposal import Proposal, ProposedColumn
from tripstore.backends.postgres.proposals.signs import (
    NAMES_A_ROW,
    facts_said,
    find_uuid,
    is_number,
    may_be_uuid,
    surrogates,
)


def propose(
    connection: Connection, names: Sequence[TableName], datastore: str, facts: Collection[TableName] = ()
) -> Proposal:
    """Look at these tables and at those they point to. Rows change, but of the tables that are said to hold facts."""
    live = LiveCatalogue.read(connection, names)
    for name in names:
        if name not in live.tables:
            raise InvalidLayout(f"There is no table {name}.", hint=meant_table(name, live.neighbours))
        if live.tables[name].kind not in (TableKind.TABLE, TableKind.PARTITIONED):
            raise InvalidLayout(f"{name} is no table.", hint="Name the tables that hold the rows.")
    targets = {key.target for table in live.tables.values() for key in table.foreign_keys} - live.tables.keys()
    others = LiveCatalogue.read(connection, targets).tables if targets else {}
    asked = {name: live.tables[name] for name in names}

    def match(column: KeyColumn, child: LiveTable, parent: LiveTable) -> KeyMatch:
        return sample_keys(connection, column, child, parent)

    return _Guess(asked, {**others, **live.tables}, datastore, match, facts).proposal()


_NO_ID = "no unique column of whole numbers that is NOT NULL"


@dataclass
class _Guess:
    """Tables that were asked for, in their order, and all that are known."""

    tables: Mapping[TableName, LiveTable]
    known: Mapping[TableName, LiveTable]
    datastore: str
    match: Callable[[KeyColumn, LiveTable, LiveTable], KeyMatch]
    facts: Collection[TableName]
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
        numbered = [name for name in self.tables if _find_id(self.tables[name]) is not None]
        wanted = max(pointing, key=lambda name: pointing[name])
        if numbered and wanted not in numbered and pointing[wanted]:
            self.remarks.append(f"Most tables point to {wanted}, whose rows have no id: it stands as a comment.")
        candidates = numbered or list(self.tables)
        most = max(pointing[name] for name in candidates)
        best = [name for name in candidates if pointing[name] == most]
        if len(best) > 1:
            self.remarks.append(f"{best[0]} is taken for the table of the rows: the foreign keys do not decide it.")
        return self.tables[best[0]]

    def _others(self, name: TableName) -> list[LiveTable]:
        return [table for other, table in self.tables.items() if other != name]

    def _id(self, table: LiveTable) -> str:
        found = _find_id(table)
        if found is None:
            raise InvalidLayout(f"{table.name} has {_NO_ID}.", hint=_id_hint(table))
        return found

    def _uuid(self, table: LiveTable) -> str:
        """A unique UUID that is there, or the name of one that `schema apply` adds."""
        found = find_uuid(table)
        if found is not None:
            if not found.endswith(NAMES_A_ROW):
                self.remarks.append(
                    f"{table.name}.{found} is taken for the key of each row, which never changes: "
                    "if this one may, name another column"
                )
            return found
        name = next(name for name in self._uuid_names(table) if may_be_uuid(table, name))
        self.remarks.append(f"{table.name}.{name} is not there or not unique yet: `tripstore schema apply` sees to it.")
        return name

    def _base(self, table: LiveTable, identity: str, uuid: str) -> ProposedColumn:
        version, extra = _version_name(table, "base"), _extra_name(table, "base")
        fields = propose_fields(table, self.known, {identity, uuid, version, extra})
        has_extra = extra in table.columns
        return ProposedColumn("BASE", table.name, RefKeySource(version=version), fields, extra, has_extra)

    def _child(self, table: LiveTable, parent: LiveTable, identity: str, uuid: str) -> ProposedColumn:
        stem = table.name.name.removeprefix(f"{_singular(parent.name.name)}_")
        extra = _extra_name(table, _singular(stem))
        pointers = [key.columns[0] for key in table.foreign_keys if key.leads(key.columns[0], parent.name, identity)]
        if not pointers:
            lacks = _lacks_pointer(table, parent, identity, uuid)
            without_id = f"it has {_NO_ID}: it could be the table of the rows of a datastore of its own with one"
            return ProposedColumn(
                name=_column_name(stem),
                table=table.name,
                ref_key=None,
                fields=propose_fields(table, self.known, set()),
                extra=extra,
                remarks=(lacks,) if _find_id(table) is not None else (lacks, without_id),
                statements=() if _find_id(table) is not None or table.partition_key else (_id_statement(table),),
            )
        pointer, remarks = max(pointers, key=lambda name: table.columns[name].refuses_null), []
        if len(pointers) > 1:
            remarks.append(f"{', '.join(pointers)} all point to {parent.name}: {pointer} is taken for the parent")
        own_uuid = self._parents_key(table, RowKeySource(parent.name, identity, uuid), pointer)
        if uuid in table.columns and own_uuid != uuid:
            remarks.append(f"{uuid} is not {parent.name}.{uuid}, so the key of the parent is in {own_uuid}")
        number = _without_obstacle(find_number(table, pointer), table, pointer)
        version = _version_name(table, _singular(stem))
        is_fact = table.name in self.facts
        remarks += filter(None, (number.remark, facts_said(table, parent, is_fact=is_fact)))
        source = None if number.name is None else RefKeySource(number.name, None if is_fact else version)
        taken = {pointer, own_uuid, number.name or "", version, extra, *surrogates(table)}
        return ProposedColumn(
            name=_column_name(stem),
            table=table.name,
            ref_key=source,
            fields=propose_fields(table, self.known, taken),
            extra=extra,
            has_extra=extra in table.columns,
            parent=pointer,
            uuid=own_uuid if own_uuid != uuid else None,
            remarks=tuple(remarks),
            statements=number.statements,
        )

    def _parents_key(self, table: LiveTable, source: RowKeySource, pointer: str) -> str:
        """The first name that is free in a child, or whose column holds the parent's keys as its rows show."""
        parent = self.known[source.table]
        for name in chain((source.uuid,), self._uuid_names(parent)):
            if name not in table.columns:
                return name
            match = self.match(KeyColumn(table.name, name, pointer, source), table, parent)
            if carries_parents_key(table, name, parent, source.uuid, match):
                return name
        raise AssertionError("names do not end")

    def _uuid_names(self, parent: LiveTable) -> Iterator[str]:
        """What a column with the row key may be called."""
        stem = _singular(parent.name.name)
        yield from (_joined(stem, "_uuid"), _joined(stem, "_row_uuid"))
        yield from (_joined(stem, f"_row_uuid_{number}") for number in count(2))


def _lacks_pointer(table: LiveTable, parent: LiveTable, identity: str, uuid: str) -> str:
    """Why rows of a table are taken for no child rows, and what would make them such."""
    lacks = f"no foreign key leads to {parent.name}.{identity}: write by hand what points to it"
    by_uuid = [key.columns[0] for key in table.foreign_keys if key.leads(key.columns[0], parent.name, uuid)]
    if not by_uuid:
        return lacks
    return (
        f"{by_uuid[0]} points to {parent.name}.{uuid}, and child rows need a number besides: a bigint NOT NULL that"
        f" points to {parent.name}.{identity}, and that the application or a trigger fills"
    )


def _find_id(table: LiveTable) -> str | None:
    """The unique whole number of a table, its primary key before others."""
    for index in sorted(table.unique_indexes, key=lambda index: not index.is_primary):
        name = index.columns[0]
        if index.is_exactly((name,)) and name in table.columns and is_number(table.columns[name]):
            return name
    return None


def _id_hint(table: LiveTable) -> str:
    """What adds an id."""
    if table.partition_key:
        by = ", ".join(name or "an expression" for name in table.partition_key)
        return f"It is partitioned by {by}: copy its rows into a table without partitions, or name another one first."
    return f"Its rows need an id: name another table too, or add one, which rewrites the table: {_id_statement(table)};"


def _id_statement(table: LiveTable) -> str:
    names = chain(("id", "row_id", "tripstore_id"), (f"tripstore_id{number}" for number in count(2)))
    name = next(name for name in names if name not in table.columns)
    return f"ALTER TABLE {table.name.sql} ADD COLUMN {name} bigint GENERATED BY DEFAULT AS IDENTITY UNIQUE"


def _without_obstacle(number: FoundNumber, table: LiveTable, pointer: str) -> FoundNumber:
    """No statement is printed where the foreign key of the parent is in the way: it would be run for nothing, or worse.

    A column that ON DELETE SET NULL clears, made NOT NULL, keeps the company from deleting its parents.
    """
    keys = [key for key in table.foreign_keys if key.columns == (pointer,)]
    found = [
        each for key in keys for each in check_parents_key(table.name, key, f"{table.name}, foreign key {key.name}")
    ]
    if number.name is not None or not found:
        return number
    return FoundNumber(None, "; ".join(str(each).rstrip(".") for each in found))


def _version_name(table: LiveTable, stem: str) -> str:
    """One that `schema apply` made, or one that it can add: capture would write over a number of the company's."""
    return _ours(table, stem, "_version", lambda column: is_number(column))


def _extra_name(table: LiveTable, stem: str) -> str:
    return _ours(table, stem, "_extra", lambda column: column.type.plain.name == "json")


def _ours(table: LiveTable, stem: str, suffix: str, fits: Callable[[LiveColumn], bool]) -> str:
    names = chain((_joined(stem, suffix),), (_joined(stem, f"{suffix}_{number}") for number in count(2)))
    for name in names:
        column = table.columns.get(name)
        if column is None or (column.is_added and fits(column)):
            return name
    raise AssertionError("names do not end")


def _joined(stem: str, suffix: str) -> str:
    """A name that is no longer than Postgres takes."""
    return stem.encode()[: NAME_BYTES_MAX - len(suffix.encode())].decode(errors="ignore") + suffix


def _singular(name: str) -> str:
    if name.endswith("ies"):
        return f"{name[:-3]}y"
    if name.endswith(("sses", "xes", "ches")):
        return name[:-2]
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name


def _column_name(stem: str) -> str:
    return stem.upper().encode()[:40].decode(errors="ignore") or "ROWS"


def _renamed_apart(columns: list[ProposedColumn]) -> tuple[ProposedColumn, ...]:
    seen: set[str] = set()
    apart = []
    for column in columns:
        name = column.name if column.name not in seen else f"{column.name}_{len(seen)}"
        seen.add(name)
        apart.append(replace(column, name=name))
    return tuple(apart)
