"""What becomes of a read: Postgres answers it in every phase; after the switch it should be a key's or an index's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemaless_core.definitions.index import IndexDefinition
from tripstore.audit.preflight.company import Company, CompanyRelation, RelationRole
from tripstore.audit.preflight.conditions import column_of, columns_in, condition_of, conjuncts
from tripstore.audit.preflight.effects import Effects, Star
from tripstore.audit.preflight.grammar import Name, TreeNode
from tripstore.audit.preflight.verdicts import ALWAYS, BEFORE, SWITCHED, StatementVerdict, VerdictReason
from tripstore.backends.postgres.layout.layout import Layout, MappedColumn

_OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in", "between")
#: Parts of a query that no read of a cell has.
_PARTS = {
    "groupClause": "it groups rows",
    "havingClause": "it groups rows",
    "distinctClause": "DISTINCT",
    "windowClause": "it has windows",
    "limitOffset": "OFFSET: pages of an index go by cursor",
    "withClause": "it has parts of its own (WITH)",
    "valuesLists": "VALUES",
}


def read_reasons(effects: Effects, company: Company, indexes: Sequence[IndexDefinition]) -> Iterator[VerdictReason]:
    """Everything that speaks against the reads of a statement."""
    relations = {name: company.relation(name) for name in dict.fromkeys(effects.reads)}
    yield from _unknown(relations, company)
    yield from _stars(effects, company)
    if effects.is_natural and any(relation.added != () for relation in relations.values() if _is_mapped(relation)):
        text = "NATURAL JOIN joins by equal names, and `schema apply` adds columns: name those that it joins by"
        yield VerdictReason(StatementVerdict.UNCLEAR, ALWAYS, text)
    mapped = [relation for relation in relations.values() if _is_mapped(relation)]
    if not mapped:
        return
    reason = _unserved(effects, mapped, company.layout, indexes)
    if reason is not None:
        yield VerdictReason(StatementVerdict.UNSERVED, SWITCHED, reason)


def _is_mapped(relation: CompanyRelation) -> bool:
    return relation.role in (RelationRole.MAPPED, RelationRole.VIEW)


def _unknown(relations: dict[Name, CompanyRelation], company: Company) -> Iterator[VerdictReason]:
    why = "no such relation is in the database" if company.is_asked else "it is not in the layout"
    for relation in relations.values():
        if relation.role is RelationRole.UNKNOWN:
            yield VerdictReason(
                StatementVerdict.UNCLEAR, ALWAYS, f"{relation.name} may be a view of mapped tables: {why}"
            )


def _stars(effects: Effects, company: Company) -> Iterator[VerdictReason]:
    for star in dict.fromkeys(effects.stars):
        relation = company.relation(star.relation)
        if relation.role is RelationRole.MAPPED and relation.added != ():
            yield VerdictReason(StatementVerdict.UNCLEAR, BEFORE, _wider(star, relation))


def _wider(star: Star, relation: CompanyRelation) -> str:
    names = "what `schema apply` adds" if relation.added is None else ", ".join(relation.added)
    consequence = "the columns are counted here: it may fail" if star.is_counted else "code that counts columns breaks"
    return f"all columns of {relation.name} are then {names} as well; {consequence}"


def _unserved(
    effects: Effects, mapped: list[CompanyRelation], layout: Layout, indexes: Sequence[IndexDefinition]
) -> str | None:
    """Why no key and no index answers a statement that reads mapped rows; None: one does."""
    names = ", ".join(sorted({relation.name for relation in mapped}))
    query = effects.query
    if query is None:
        return f"it reads {names} on the way: read by key or index, then write"
    if effects.locks_rows:
        return f"it locks rows of {names} in Postgres, which locks no cell: put with expect_latest"
    reason = _shape(query) or _sources(query)
    if reason is not None:
        return f"no index of ours answers it: {reason}"
    column = mapped[0].column
    if mapped[0].role is not RelationRole.MAPPED or column is None:
        return f"no index of ours answers it: {mapped[0].name} is a view"
    return _Question(query, column, layout).unserved(indexes)


def _shape(query: TreeNode) -> str | None:
    if query.text("op") not in ("", "SETOP_NONE"):
        return "it puts queries together (UNION, EXCEPT, INTERSECT)"
    return next((why for part, why in _PARTS.items() if query.has(part)), None)


def _sources(query: TreeNode) -> str | None:
    sources = query.every("fromClause")
    if len(sources) != 1:
        return "joins, or a query within it" if sources else "a query within it"
    if sources[0].kind != "RangeVar":
        return "joins" if sources[0].kind == "JoinExpr" else "a query within it"
    return None


class _Question:
    """A query of one mapped table, without joins."""

    def __init__(self, query: TreeNode, column: MappedColumn, layout: Layout) -> None:
        self._query = query
        self._column = column
        self._keys = layout.keys_of(column)
        version = {column.ref_key.version} if column.ref_key.version is not None else set()
        self._known = self._keys | frozenset(column.captured) | version
        self._fields = {field.column: field.name for field in column.fields}

    def unserved(self, indexes: Sequence[IndexDefinition]) -> str | None:
        found = self._targets() or self._conditions()
        if found is not None:
            return f"no index of ours answers it: {found}"
        if self._is_by_key():
            return None
        return self._by_index(indexes)

    def _targets(self) -> str | None:
        for target in self._query.every("targetList"):
            value = target.find("val")
            if value is None or value.kind == "A_Const":
                continue
            if value.kind == "ColumnRef" and value.every("fields")[-1].kind == "A_Star":
                continue
            name = column_of(value)
            if name is None:
                is_called = any(each.kind == "FuncCall" for each in value.walk())
                return "it calls a function or an aggregate" if is_called else "it computes values"
            if name not in self._known:
                return f"column {name} is not mapped"
        return None

    def _conditions(self) -> str | None:
        for part in conjuncts(self._query.find("whereClause")):
            said = condition_of(part)
            names = columns_in(part)
            if said is None or said.operator not in _OPERATORS:
                of = ", ".join(dict.fromkeys(names)) or "no column"
                return f"a condition on {of} that is no comparison with a value"
            if said.column not in self._known:
                return f"column {said.column} is not mapped"
        return None

    def _said(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for part in conjuncts(self._query.find("whereClause")):
            said = condition_of(part)
            if said is not None and said.operator is not None:
                found.setdefault(said.column, set()).add(said.operator)
        return found

    def _is_by_key(self) -> bool:
        """One row, or the children of one: by UUID, or by the id that `resolve_id` knows. The rest is filtered then."""
        number = {self._column.ref_key.column}
        return any(self._said().get(name, set()) & {"=", "in"} for name in self._keys - number)

    def _by_index(self, indexes: Sequence[IndexDefinition]) -> str | None:
        said = {self._fields.get(name): operators for name, operators in self._said().items()}
        order = [self._fields.get(name) for name in self._order()]
        missing = []
        for index in indexes:
            own = {
                field.name for column in index.columns if column.name == self._column.name for field in column.fields
            }
            if not own:
                continue
            if "=" not in said.get(index.shard_field.name, set()):
                missing.append(f"{index.name} wants {index.shard_field.name} = a value")
            elif not said.keys() <= own:
                missing.append(f"{index.name} has not all fields of the condition")
            elif len(order) > 1 or not set(order) <= own:
                missing.append(f"{index.name} does not order so")
            else:
                return None
        of = f"{self._column.table} ({self._column.name})"
        known = "; ".join(missing) or f"there is none of {of}"
        return f"no index of ours answers it: no row key, and {known}"

    def _order(self) -> list[str]:
        found = []
        for sort in self._query.every("sortClause"):
            node = sort.find("node")
            found.append((column_of(node) if node is not None else None) or "")
        return found
