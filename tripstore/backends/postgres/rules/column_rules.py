"""`ColumnRules`: whether Postgres takes a row of one mapped column, as far as its catalogue tells for sure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tripstore.backends.postgres.layout.layout import Field, Layout, Lookup, MappedColumn, RefKeyKind
from tripstore.backends.postgres.rules.checks import Check, check_of, kind_of
from tripstore.backends.postgres.rules.terms import Comparable
from tripstore.backends.postgres.rules.values import INTEGERS, Refusal, type_rule

Texts = Mapping[str, str | None]


class Violation(NamedTuple):
    """Why a row is refused; `path` is the field that it is about, empty if it is none."""

    path: str
    reason: str


class OnlyPostgres(NamedTuple):
    """A constraint that is not decided here, or not always."""

    table: str
    #: type, check, unique, foreign key, lookup, exclusion or trigger.
    kind: str
    name: str
    #: The captured columns that it is about.
    columns: tuple[str, ...]
    detail: str


class Reference(NamedTuple):
    """A field that holds the row key of another row."""

    field: str
    #: The foreign key; None: the pair is looked up, and no constraint says that the row must still be there.
    constraint: str | None
    is_looked_up: bool


class OncePerParent(NamedTuple):
    """A unique index over the parent and fields of a child; without a field a parent has one row."""

    constraint: str
    fields: tuple[str, ...]


class _Place(NamedTuple):
    """One physical column, and what is asked of its text."""

    column: str
    field: str
    refuses_null: bool
    refusal: Refusal | None


class _Condition(NamedTuple):
    """A constraint of the table or of a domain."""

    is_false: Callable[[Texts], bool]
    field: str
    reason: str


class ColumnRules:
    """Of one mapped column. `table` is the catalogue's document of its table."""

    def __init__(self, layout: Layout, column: MappedColumn, table: Mapping[str, Any]) -> None:
        self._column = column
        self._table = table
        self._fields = {field.column: field.name for field in column.fields}
        #: A row holds the key that a UUID is looked up as: nothing is known of it here.
        self._looked_up = {field.column for field in column.fields if field.lookup is not None}
        self.only_postgres: list[OnlyPostgres] = []
        captured = [name for name in column.captured if name in table["columns"]]
        kinds = {name: kind for name in captured if (kind := self._kind(name)) is not None}
        self._places = tuple(place for name in captured if (place := self._place(name)) is not None)
        self._conditions = [
            *(condition for name in captured for condition in self._of_domain(name)),
            *(self._condition(each, kinds) for each in table["checks"]),
        ]
        self._number = _bound(table, column.ref_key.column)
        self._version = _bound(table, column.ref_key.version)
        self.only_postgres += _others(layout, column, table)
        #: Constraints that allow a value of one field once, by field.
        self.unique = {
            self._fields[names[0]]: str(each["name"])
            for each in table["others"]
            if each["kind"] == "unique" and not each["is_partial"] and len(names := each["columns"]) == 1
            if names[0] in self._fields and names[0] not in self._looked_up
        }
        self.references = tuple(_references(layout, column, table))
        self.once_per_parent = tuple(_once_per_parent(column, table, self._fields))
        #: The foreign key that a number of child rows is, alone; None: it is a number.
        self.points_by_number = next(
            (
                str(each["name"])
                for each in table["others"]
                if each["kind"] == "foreign key" and each["columns"] == [column.ref_key.column]
            ),
            None,
        )

    def find_violation(self, ref_key: int, texts: Texts) -> Violation | None:
        """What Postgres would refuse for sure of a row with these texts; None: nothing that is known here."""
        number, version = self._column.split(ref_key)
        if not (number <= self._number and version <= self._version):
            return Violation("", f"no row of {self._column.table} has a ref key that large")
        for name, field, refuses_null, refusal in self._places:
            text = texts[name]
            if text is None:
                if refuses_null:
                    return Violation(field, "its column is NOT NULL")
            elif refusal is not None and (reason := refusal(text)) is not None:
                return Violation(field, reason)
        for is_false, field, reason in self._conditions:
            if is_false(texts):
                return Violation(field, reason)
        return None

    def _kind(self, name: str) -> Comparable | None:
        facts = self._table["columns"][name]
        return None if name in self._looked_up else kind_of(facts["type"], is_exact=facts["is_exact"])

    def _place(self, name: str) -> _Place | None:
        facts = self._table["columns"][name]
        refusal = None
        if name not in self._looked_up:
            rule = type_rule(facts)
            refusal = rule.refusal
            if not rule.is_whole:
                self._leave("type", name, [name], f"what a value of type {facts['shown']} may be")
        if refusal is None and not facts["not_null"]:
            return None
        return _Place(name, self._fields.get(name, ""), facts["not_null"], refusal)

    def _of_domain(self, name: str) -> Iterator[_Condition]:
        kind = self._kind(name)
        for expression in self._table["columns"][name]["checks"] if name not in self._looked_up else ():
            check = check_of(expression, {} if kind is None else {"VALUE": kind})
            if not check.is_whole:
                self._leave("check", name, [name], f"of its domain: {expression}")
            yield _Condition(_of_value(check, name), self._fields.get(name, ""), "its domain refuses it")

    def _condition(self, constraint: Mapping[str, Any], kinds: Mapping[str, Comparable]) -> _Condition:
        check = check_of(constraint["expression"], kinds)
        if not check.is_whole:
            self._leave("check", constraint["name"], constraint["columns"], constraint["expression"])
        path = self._path(constraint["columns"])
        return _Condition(check.is_false, path, f"constraint {constraint['name']} refuses it")

    def _path(self, columns: Sequence[str]) -> str:
        """The field that a constraint is about, if it is one."""
        fields = [self._fields[name] for name in columns if name in self._fields]
        return fields[0] if len(fields) == 1 else ""

    def _leave(self, kind: str, name: str, columns: Sequence[str], detail: str) -> None:
        captured = tuple(each for each in columns if each in self._column.captured)
        self.only_postgres.append(OnlyPostgres(str(self._column.table), kind, name, captured, detail))


def _of_value(check: Check, name: str) -> Callable[[Texts], bool]:
    return lambda texts: check.is_false({"VALUE": texts[name]})


def _bound(table: Mapping[str, Any], name: str | None) -> int:
    """The largest number that a physical column of the row's key holds."""
    facts = table["columns"].get(name)
    return (1 << INTEGERS.get(facts["type"] if facts else "", 63)) - 1


def _references(layout: Layout, column: MappedColumn, table: Mapping[str, Any]) -> Iterator[Reference]:
    """The fields that hold the row key of another row: its id is looked up, or a foreign key leads to its UUID.

    A document of an earlier version does not say where foreign keys lead.
    """
    source = layout.row_key
    for field in column.fields:
        looked_up = field.lookup
        if looked_up is not None and looked_up != Lookup(source.table, source.id, source.uuid):
            continue
        found = _foreign_key(table, field.column, (*source.table, source.uuid if looked_up is None else source.id))
        if found is not None or looked_up is not None:
            yield Reference(field.name, found, looked_up is not None)


def _once_per_parent(
    column: MappedColumn, table: Mapping[str, Any], fields: Mapping[str, str]
) -> Iterator[OncePerParent]:
    """Of child rows that change: all that one of them may meet stands in its parent's row."""
    if not column.is_child or column.ref_key.kind is not RefKeyKind.CHILD:
        return
    for each in table["others"]:
        of_parent = {column.parent, column.uuid} & set(each["columns"])
        names = [name for name in each["columns"] if name not in of_parent]
        is_plain = each["kind"] == "unique" and not each["is_partial"] and of_parent
        if is_plain and all(name in fields for name in names):
            yield OncePerParent(str(each["name"]), tuple(fields[name] for name in names))


def _foreign_key(table: Mapping[str, Any], column: str, leads_to: tuple[str, ...]) -> str | None:
    """The name of the one by which a column leads there."""
    return next(
        (
            str(each["name"])
            for each in table["others"]
            if each["columns"] == [column] and tuple(each.get("leads_to", ())) == leads_to
        ),
        None,
    )


def _others(layout: Layout, column: MappedColumn, table: Mapping[str, Any]) -> list[OnlyPostgres]:
    """What depends on other rows, or on code of the company's. What holds the row's own key is not among it."""
    number = str(column.ref_key.column)
    keys = [{column.uuid}, {layout.row_key.id}]
    if column.parent is not None:
        keys = [{column.parent, number}, {column.uuid, number}]
    found = []
    for each in table["others"]:
        names = set(each["columns"])
        is_own_parent = each["kind"] == "foreign key" and names == {column.parent}
        if (each["kind"] == "unique" and names in keys) or is_own_parent:
            continue
        captured = tuple(name for name in each["columns"] if name in column.captured)
        detail = ", ".join(name or "an expression" for name in each["columns"])
        if each["target"]:
            detail += f" → {each['target']}"
        if each["is_partial"]:
            detail += ", some rows"
        found.append(OnlyPostgres(str(column.table), each["kind"], each["name"], captured, detail))
    return found + [_of_lookup(column, field.column, field.lookup) for field in _looked_up_alone(column, found)]


def _looked_up_alone(column: MappedColumn, found: Sequence[OnlyPostgres]) -> Iterator[Field]:
    """Fields whose key no foreign key keeps: a UUID whose pair is not there is refused all the same."""
    kept = {each.columns for each in found if each.kind == "foreign key"}
    return (field for field in column.fields if field.lookup is not None and (field.column,) not in kept)


def _of_lookup(column: MappedColumn, name: str, lookup: Lookup | None) -> OnlyPostgres:
    detail = name if lookup is None else f"{name} → {lookup.table} ({lookup.value})"
    return OnlyPostgres(str(column.table), "lookup", name, (name,), detail)
