"""`NumberSequence`: the sequence that the numbers of a column of child rows come from, as the catalogue has it.

A serial, an identity, or a default that is `nextval` of a sequence and nothing else. Where the number has none, it is
counted per parent, and an append takes the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from schemaless_core.cell.canonical import Json
from tripstore.backends.postgres.layout.layout import Layout, quoted

#: The sequences of some columns, which are three arrays: schemas, tables, names. A partitioned table has its own.
SEQUENCES = """
SELECT given.nspname, given.relname, s_n.nspname, s.relname, q.seqincrement, q.seqmax, q.seqmin, q.seqstart, q.seqcycle,
    EXISTS (
        SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
        AND i.indpred IS NULL AND i.indkey[0] = a.attnum AND i.indnkeyatts = 1)
FROM unnest(%s::pg_catalog.text[], %s::pg_catalog.text[], %s::pg_catalog.text[]) AS given(nspname, relname, attname)
JOIN pg_catalog.pg_namespace AS n ON n.nspname = given.nspname
JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = given.relname
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attname = given.attname AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_attrdef AS f ON f.adrelid = c.oid AND f.adnum = a.attnum AND a.attgenerated = ''
JOIN pg_catalog.pg_depend AS d ON (
    a.attidentity <> '' AND d.deptype = 'i' AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
    AND d.refclassid = d.classid AND d.refobjid = c.oid AND d.refobjsubid = a.attnum
) OR (
    d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND d.objid = f.oid
    AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
    AND pg_catalog.pg_get_expr(f.adbin, f.adrelid) ~ '^\\(?nextval\\(''([^'']|'''')+''::regclass\\)\\)?(::\\w+)?$'
)
JOIN pg_catalog.pg_class AS s
    ON s.relkind = 'S' AND s.oid = CASE WHEN a.attidentity <> '' THEN d.objid ELSE d.refobjid END
JOIN pg_catalog.pg_sequence AS q ON q.seqrelid = s.oid
JOIN pg_catalog.pg_namespace AS s_n ON s_n.oid = s.relnamespace
ORDER BY given.nspname, given.relname, s.oid
"""

#: How many numbers a session takes at once; the sequence is named as in SQL.
CACHE = "SELECT seqcache FROM pg_catalog.pg_sequence WHERE seqrelid = %s::pg_catalog.regclass"

#: Whether our role may draw from a sequence and read how far it has come, and who we are. `nextval` asks for USAGE or
#: UPDATE, `pg_sequence_last_value` for USAGE or SELECT. Only an owner jumps, whatever is granted.
RIGHTS = """
SELECT pg_catalog.has_sequence_privilege(s.oid, 'USAGE') OR (
        pg_catalog.has_sequence_privilege(s.oid, 'UPDATE') AND pg_catalog.has_sequence_privilege(s.oid, 'SELECT')),
    pg_catalog.quote_ident(current_user)
FROM (SELECT %s::pg_catalog.regclass AS oid) AS s
"""

RowsOf = Callable[[str, Any], list[Any]]


@dataclass(frozen=True, slots=True)
class NumberSequence:
    """A sequence, and the column of the company's that it fills."""

    #: As it stands in SQL, and so do table and column.
    name: str
    table: str
    column: str
    increment: int
    maximum: int
    minimum: int
    start: int
    #: Begins anew at its end.
    cycles: bool
    #: Whether a number alone is one row's, whichever parent it has.
    is_alone: bool

    @property
    def rises(self) -> bool:
        """Whether a number that is drawn later is higher."""
        return self.increment > 0 and not self.cycles

    def gap(self, reached: int, number: int) -> int:
        """How many numbers come after the one reached until this one was given; not above 0: it is behind."""
        return -(-(number - reached) // self.increment)

    def to_document(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "table": self.table,
            "column": self.column,
            "increment": self.increment,
            "maximum": self.maximum,
            "minimum": self.minimum,
            "start": self.start,
            "cycles": self.cycles,
            "is_alone": self.is_alone,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        return cls(**document)


def read_sequences(rows_of: RowsOf, layout: Layout) -> dict[str, NumberSequence]:
    """The sequences of a layout's children by the name of their column; a child that counts per parent has none."""
    columns = {(*column.table, str(column.ref_key.column)): column for column in layout.children}
    schemas, tables, names = (list(each) for each in zip(*columns, strict=True)) if columns else ([], [], [])
    number_of = {(schema, table): name for schema, table, name in columns}
    found = {}
    for schema, table, sequence_schema, sequence, *facts in rows_of(SEQUENCES, (schemas, tables, names)):
        number = number_of[schema, table]
        column = columns[schema, table, number]
        increment, maximum, minimum, start, cycles, is_alone = facts
        found[column.name] = NumberSequence(
            f"{quoted(sequence_schema)}.{quoted(sequence)}",
            column.table.sql,
            quoted(number),
            increment,
            maximum,
            minimum,
            start,
            cycles,
            is_alone,
        )
    return found


def read_cached(rows_of: RowsOf, layout: Layout) -> list[tuple[NumberSequence, int]]:
    """The sequences of which a session holds more than one number, and how many."""
    sequences = read_sequences(rows_of, layout).values()
    caches = [(sequence, rows_of(CACHE, (sequence.name,))[0][0]) for sequence in sequences]
    return [(sequence, cache) for sequence, cache in caches if cache > 1]


class Barred(NamedTuple):
    """A sequence that our role may not draw from."""

    sequence: NumberSequence
    role: str

    @property
    def where(self) -> str:
        return f"sequence {self.sequence.name}"

    @property
    def reason(self) -> str:
        return f"{self.role} may not draw from it: a row that is appended gets no number"

    @property
    def statement(self) -> str:
        """What lets it draw, and read how far others have drawn."""
        return f"GRANT USAGE, SELECT ON SEQUENCE {self.sequence.name} TO {self.role}"


def read_barred(rows_of: RowsOf, layout: Layout) -> list[Barred]:
    """The sequences that our role may not draw from."""
    sequences = read_sequences(rows_of, layout).values()
    rights = [(sequence, *rows_of(RIGHTS, (sequence.name,))[0]) for sequence in sequences]
    return [Barred(sequence, role) for sequence, may_draw, role in rights if not may_draw]
