"""Reads what the database says of all relations: views, partitions, foreign keys, triggers, functions by their text.

A function is judged by the words of its text: whether it names a mapped table, or another function that does, or makes
SQL at run time. What a function in C does is not known; those of extensions are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from tripstore.audit.preflight.company import Cascade, Catalogued, CompanyRelation, Firing, RelationRole, role_of
from tripstore.audit.preflight.effects import Verb
from tripstore.audit.preflight.grammar import Name
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn, TableName
from tripstore.backends.postgres.names import SCHEMA
from tripstore.backends.postgres.wire.connections import rows

_OTHERS = "nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND nspname NOT LIKE 'pg\\_temp%'"
#: The root of a partition is the table that a layout knows; columns that we added say so.
_RELATIONS = f"""
SELECT c.oid::bigint, s.nspname, c.relname, c.relkind::text,
    coalesce(pg_catalog.pg_partition_root(c.oid)::oid, c.oid)::bigint,
    ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
        AND NOT a.attisdropped
        AND coalesce(pg_catalog.col_description(a.attrelid, a.attnum) NOT LIKE 'Added by tripstore%', true))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND {_OTHERS} ORDER BY 1
"""
_VIEWS = """
SELECT DISTINCT r.ev_class::bigint, d.refobjid::bigint FROM pg_catalog.pg_rewrite r
JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = r.oid
WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid <> r.ev_class
ORDER BY 1, 2
"""
_FOREIGN_KEYS = """
SELECT k.conrelid::bigint, k.confrelid::bigint, k.confdeltype::text, k.confupdtype::text,
    ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (n, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY u.place),
    ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u (n, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY u.place)
FROM pg_catalog.pg_constraint k WHERE k.contype = 'f' ORDER BY k.oid
"""
_TRIGGERS = f"""
SELECT t.tgrelid::bigint, t.tgname, t.tgtype::int, t.tgfoid::bigint FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace
WHERE NOT t.tgisinternal AND s.nspname <> '{SCHEMA}' ORDER BY t.tgrelid, t.tgname
"""
_FUNCTIONS = f"""
SELECT p.oid::bigint, s.nspname, p.proname, coalesce(pg_catalog.pg_get_function_sqlbody(p.oid), p.prosrc, '')
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE {_OTHERS} AND s.nspname <> '{SCHEMA}' AND l.lanname NOT IN ('c', 'internal') AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_depend d
    WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = p.oid AND d.deptype = 'e')
ORDER BY 1
"""

#: Bits of `pg_trigger.tgtype`.
_ROW, _BEFORE = 1, 2
_EVENTS = {4: Verb.INSERT, 8: Verb.DELETE, 16: Verb.UPDATE, 32: Verb.TRUNCATE}
_WORD = re.compile(r"\w+")
_RUN_TIME = "execute"


@dataclass(frozen=True, slots=True)
class _Raw:
    """A relation as the catalogue has it."""

    name: TableName
    kind: str
    root: int
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Function:
    name: Name
    words: frozenset[str]


def read_catalogue(connection: Connection, layout: Layout) -> Catalogued:
    """Ask the database for everything once; nothing is changed or locked."""
    return _Reader(connection, layout).found()


class _Reader:
    """The catalogue, and what follows from it."""

    def __init__(self, connection: Connection, layout: Layout) -> None:
        self._layout = layout
        self._raw = {
            oid: _Raw(TableName(schema, name), kind, root, frozenset(columns))
            for oid, schema, name, kind, root, columns in rows(connection, _RELATIONS)
        }
        self._shown: dict[int, set[int]] = defaultdict(set)
        for view, shown in rows(connection, _VIEWS):
            self._shown[view].add(shown)
        self._keys = rows(connection, _FOREIGN_KEYS)
        self._triggers = rows(connection, _TRIGGERS)
        self._functions = {
            oid: _Function(Name(schema, name), _words(text)) for oid, schema, name, text in rows(connection, _FUNCTIONS)
        }
        self._mapped = {oid for oid, raw in self._raw.items() if self._table(oid) in layout.tables}
        self._reaching = self._reaching_functions()

    def found(self) -> Catalogued:
        relations = {raw.name: self._relation(oid, raw) for oid, raw in self._raw.items()}
        return Catalogued(relations, frozenset(self._functions[oid].name for oid in self._reaching))

    def _relation(self, oid: int, raw: _Raw) -> CompanyRelation:
        role, column, lookups = role_of(self._layout, self._table(oid))
        shows = self._shows(oid) if raw.kind in ("v", "m") else frozenset()
        return CompanyRelation(
            name=str(raw.name),
            role=RelationRole.VIEW if shows else role,
            column=column,
            lookups=lookups,
            added=tuple(name for name in self._wanted(column) if name not in raw.columns),
            shows=frozenset(str(self._table(each)) for each in shows),
            cascades=tuple(self._cascades(oid)),
            truncates=tuple(self._raw[each].name for each in sorted(self._pointing(oid))),
            triggers=tuple(self._firings(oid)),
        )

    def _table(self, oid: int) -> TableName:
        """The table that a partition is of."""
        raw = self._raw[oid]
        return self._raw[raw.root].name if raw.root in self._raw else raw.name

    def _wanted(self, column: MappedColumn | None) -> Iterable[str]:
        """The columns of ours that belong to a mapped table."""
        if column is None:
            return ()
        return (name for name in (column.uuid, column.ref_key.version, column.extra) if name is not None)

    def _shows(self, oid: int) -> frozenset[int]:
        """The mapped tables behind a view, through other views."""
        seen: set[int] = set()
        waiting = [oid]
        while waiting:
            for each in self._shown[waiting.pop()] - seen:
                seen.add(each)
                waiting.append(each)
        return frozenset(seen & self._mapped)

    def _cascades(self, oid: int) -> Iterable[Cascade]:
        for pointing, target, on_delete, on_update, columns, target_columns in self._keys:
            if target != oid or pointing not in self._raw:
                continue
            table = self._raw[pointing].name
            every = frozenset(target_columns)
            if on_delete in ("n", "d"):
                yield Cascade(Verb.DELETE, frozenset(), table, Verb.UPDATE, tuple(columns))
            elif on_delete == "c":
                yield Cascade(Verb.DELETE, frozenset(), table, Verb.DELETE, ())
            if on_update in ("c", "n", "d"):
                yield Cascade(Verb.UPDATE, every, table, Verb.UPDATE, tuple(columns))

    def _pointing(self, oid: int) -> set[int]:
        """The tables that TRUNCATE … CASCADE of this one empties as well."""
        found: set[int] = set()
        waiting = [oid]
        while waiting:
            target = waiting.pop()
            more = {pointing for pointing, to, *_ in self._keys if to == target and pointing in self._raw} - found
            found |= more
            waiting += more
        return found - {oid}

    def _firings(self, oid: int) -> Iterable[Firing]:
        for relation, name, kind, function in self._triggers:
            is_before_row = bool(kind & _ROW) and bool(kind & _BEFORE)
            may_reach = function in self._reaching
            if relation == oid and (is_before_row or may_reach):
                events = frozenset(verb for bit, verb in _EVENTS.items() if kind & bit)
                yield Firing(f"trigger {name}", events, is_before_row, may_reach)
        if self._raw[oid].kind in ("r", "p") and self._shows(oid):
            yield Firing("a rule", frozenset(Verb), is_before_row=False, may_reach=True)

    def _mapped_names(self) -> frozenset[str]:
        return frozenset(self._raw[oid].name.name for oid in self._mapped)

    def _reaching_functions(self) -> set[int]:
        views = {raw.name.name for oid, raw in self._raw.items() if self._shows(oid)}
        known = {_words(name) for name in self._mapped_names() | views | {_RUN_TIME}}
        reaching: set[int] = set()
        while known:
            more = {
                oid
                for oid, each in self._functions.items()
                if oid not in reaching and any(words <= each.words for words in known)
            }
            reaching |= more
            known = {_words(self._functions[oid].name.name) for oid in more}
        return reaching


def _words(text: str) -> frozenset[str]:
    """In small letters; a name in quotes may be several."""
    return frozenset(map(str.lower, _WORD.findall(text)))
