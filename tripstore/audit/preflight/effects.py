"""What a statement does, whatever its tables: writes, reads, locks. Pure: knows the tree and no database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tripstore.audit.preflight.conditions import pins, unchanged
from tripstore.audit.preflight.grammar import Name, TreeNode


class Verb(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True)
class RelationWrite:
    """A change of one relation's rows."""

    verb: Verb
    relation: Name
    #: Assigned by an UPDATE, named by an INSERT or COPY.
    columns: tuple[str, ...] = ()
    #: Of those that an UPDATE assigns: what keeps its value, as the statement itself shows.
    unchanged: frozenset[str] = frozenset()
    #: What the condition holds to one value each.
    pins: frozenset[str] = frozenset()
    is_copy: bool = False
    is_on_conflict: bool = False
    has_columns: bool = True  #: An INSERT or COPY without a list has not.
    cascades: bool = False  #: Of TRUNCATE.


@dataclass(frozen=True, slots=True)
class Star:
    """All columns of a relation: `*`, `t.*`, or the row as one value."""

    relation: Name
    #: Whether the number of columns matters to Postgres itself: they are inserted, or stand in a UNION.
    is_counted: bool = False


@dataclass
class Effects:
    """Everything that one statement does."""

    writes: list[RelationWrite] = field(default_factory=list)
    reads: list[Name] = field(default_factory=list)
    stars: list[Star] = field(default_factory=list)
    functions: set[Name] = field(default_factory=set)
    locks_rows: bool = False
    is_natural: bool = False
    #: Of a query and nothing else: its tree.
    query: TreeNode | None = None


def effects_of(statement: TreeNode) -> Effects:
    """Of SELECT, INSERT, UPDATE, DELETE, MERGE and COPY, and of what has such a statement inside."""
    found = Effects()
    if statement.kind == "SelectStmt" and not statement.has("intoClause"):
        found.query = statement
    _Visit(found, frozenset(), ()).visit(statement)
    return found


@dataclass(frozen=True)
class _Visit:
    """One level of a statement: names of common table expressions that hide tables, and the relations of each level."""

    found: Effects
    hidden: frozenset[str]
    levels: tuple[dict[str, Name | None], ...]
    #: Whether Postgres counts the columns that come out.
    is_counted: bool = False
    #: Below EXISTS nothing comes out.
    is_silent: bool = False

    def visit(self, node: TreeNode) -> None:
        match node.kind:
            case "SelectStmt":
                self._select(node)
            case "InsertStmt":
                self._insert(node)
            case "UpdateStmt" | "DeleteStmt":
                self._change(node)
            case "MergeStmt":
                self._merge(node)
            case "CopyStmt":
                self._copy(node)
            case "RangeVar":
                self._read(node)
            case _:
                self._other(node)

    # ------------------------------------------------------------------------------------------ statements

    def _select(self, node: TreeNode) -> None:
        inner = self._with(node)
        if node.text("op") not in ("", "SETOP_NONE"):
            arms = [arm for arm in (node.find("larg"), node.find("rarg")) if arm is not None]
            for arm in arms:
                inner._but(is_counted=True)._select(_select_of(arm))
            inner._children(node, "withClause", "larg", "rarg")
            return
        inner = inner._level(node.every("fromClause"))
        if node.has("lockingClause"):
            self.found.locks_rows = True
        inner._columns(node.every("targetList"))
        inner._but(is_counted=False, is_silent=False)._children(node, "withClause", "targetList", "intoClause")

    def _insert(self, node: TreeNode) -> None:
        inner = self._with(node)
        target = _required(node, "relation")
        columns = tuple(each.text("name") for each in node.every("cols"))
        self._write(RelationWrite(Verb.INSERT, target.relation, columns, has_columns=bool(columns)))
        query = node.find("selectStmt")
        if query is not None:
            inner._but(is_counted=True).visit(_select_of(query))
        inner = inner._level([target])
        conflict = node.find("onConflictClause")
        if conflict is not None:
            inner._conflict(target.relation, conflict)
        inner._columns(node.every("returningList"))

    def _conflict(self, relation: Name, clause: TreeNode) -> None:
        self._children(clause)
        if clause.text("action") != "ONCONFLICT_UPDATE":
            return
        infer = clause.find("infer")
        met = {each.text("name") for each in infer.every("indexElems")} if infer is not None else set()
        assigned = clause.every("targetList")
        kept = unchanged(assigned, clause.find("whereClause"), equal_to_excluded=met)
        names = tuple(each.text("name") for each in assigned)
        self._write(RelationWrite(Verb.UPDATE, relation, names, kept, frozenset(met), is_on_conflict=True))

    def _change(self, node: TreeNode) -> None:
        """UPDATE and DELETE."""
        inner = self._with(node)
        target = _required(node, "relation")
        condition = node.find("whereClause")
        assigned = node.every("targetList")
        more = [*node.every("fromClause"), *node.every("usingClause")]
        alias = _alias(target)
        self._write(
            RelationWrite(
                Verb.UPDATE if node.kind == "UpdateStmt" else Verb.DELETE,
                target.relation,
                tuple(each.text("name") for each in assigned),
                unchanged(assigned, condition, alias=alias),
                pins(condition, alias, is_alone=not more),
            )
        )
        inner = inner._level([target, *more])
        inner._columns(node.every("returningList"))
        inner._children(node, "withClause", "relation", "returningList")

    def _merge(self, node: TreeNode) -> None:
        inner = self._with(node)
        target = _required(node, "relation")
        joined = node.find("joinCondition")
        alias = _alias(target)
        for clause in node.every("mergeWhenClauses"):
            assigned = clause.every("targetList")
            names = tuple(each.text("name") for each in assigned)
            match clause.text("commandType"):
                case "CMD_INSERT":
                    self._write(RelationWrite(Verb.INSERT, target.relation, names, has_columns=bool(names)))
                case "CMD_UPDATE":
                    kept = unchanged(assigned, joined, alias=alias)
                    self._write(RelationWrite(Verb.UPDATE, target.relation, names, kept))
                case "CMD_DELETE":
                    self._write(RelationWrite(Verb.DELETE, target.relation))
        source = node.find("sourceRelation")
        inner = inner._level([target, *([source] if source is not None else [])])
        inner._columns(node.every("returningList"))
        inner._children(node, "withClause", "relation", "returningList")

    def _copy(self, node: TreeNode) -> None:
        relation = node.find("relation")
        if relation is None:
            self._children(node)
            return
        columns = tuple(node.strings("attlist"))
        if node.has("is_from"):
            self._write(RelationWrite(Verb.INSERT, relation.relation, columns, is_copy=True, has_columns=bool(columns)))
        else:
            self.found.reads.append(relation.relation)
            if not columns:
                self.found.stars.append(Star(relation.relation))

    # --------------------------------------------------------------------------------------------- parts

    def _other(self, node: TreeNode) -> None:
        if node.kind == "FuncCall":
            names = node.strings("funcname")
            self.found.functions.add(Name(names[0] if len(names) > 1 else None, names[-1]))
        if node.kind == "JoinExpr" and node.has("isNatural"):
            self.found.is_natural = True
        if node.kind == "ColumnRef":
            self._column(node)
            return
        if node.kind == "SubLink" and node.text("subLinkType") == "EXISTS_SUBLINK":
            query = node.find("subselect")
            if query is not None:
                self._but(is_silent=True).visit(query)
            return
        self._children(node)

    def _columns(self, targets: Iterable[TreeNode]) -> None:
        for target in targets:
            self.visit(target)

    def _column(self, node: TreeNode) -> None:
        """A star, or a row as one value; below EXISTS neither matters."""
        if self.is_silent or not self.levels:
            return
        fields = node.every("fields")
        names = [each.text("sval") for each in fields if each.kind == "String"]
        is_star = bool(fields) and fields[-1].kind == "A_Star"
        if is_star and not names:
            relations = [relation for relation in self.levels[-1].values() if relation is not None]
        elif is_star or len(names) == 1:
            relation = next((level[names[-1]] for level in reversed(self.levels) if names[-1] in level), None)
            relations = [relation] if relation is not None else []
        else:
            return
        self.found.stars += [Star(relation, self.is_counted) for relation in relations]

    def _read(self, node: TreeNode) -> None:
        relation = node.relation
        if relation.schema is not None or relation.name not in self.hidden:
            self.found.reads.append(relation)

    def _with(self, node: TreeNode) -> _Visit:
        """The names of its common table expressions are known in the statement, and in the later ones of them."""
        clause = node.find("withClause")
        if clause is None:
            return self
        tables = clause.every("ctes")
        names = [each.text("ctename") for each in tables]
        known = self.hidden | (frozenset(names) if clause.has("recursive") else frozenset())
        for table, name in zip(tables, names, strict=True):
            query = table.find("ctequery")
            if query is not None:
                _Visit(self.found, known, self.levels).visit(query)
            known |= {name}
        return _Visit(self.found, known, self.levels, self.is_counted, self.is_silent)

    def _level(self, sources: Iterable[TreeNode]) -> _Visit:
        level: dict[str, Name | None] = {}
        for source in sources:
            for name, relation in _named(source):
                is_hidden = relation is not None and relation.schema is None and relation.name in self.hidden
                level[name] = None if is_hidden else relation
        return _Visit(self.found, self.hidden, (*self.levels, level), self.is_counted, self.is_silent)

    def _but(self, *, is_counted: bool | None = None, is_silent: bool | None = None) -> _Visit:
        return _Visit(
            self.found,
            self.hidden,
            self.levels,
            self.is_counted if is_counted is None else is_counted,
            self.is_silent if is_silent is None else is_silent,
        )

    def _children(self, node: TreeNode, *without: str) -> None:
        for child in node.children(*without):
            self.visit(child)

    def _write(self, write: RelationWrite) -> None:
        self.found.writes.append(write)


def _required(node: TreeNode, name: str) -> TreeNode:
    found = node.find(name)
    return found if found is not None else TreeNode("RangeVar", {"relname": ""})


def _select_of(node: TreeNode) -> TreeNode:
    """An arm of a UNION is always a query, and has no name for it."""
    return node if node.kind else TreeNode("SelectStmt", node.fields)


def _alias(relation: TreeNode) -> str:
    alias = relation.find("alias")
    return alias.text("aliasname") if alias is not None else relation.relation.name


def _named(source: TreeNode) -> Iterator[tuple[str, Name | None]]:
    """The relations of a list of tables, by the names that they have there; of a query's result there is none."""
    if source.kind == "RangeVar":
        yield _alias(source), source.relation
    elif source.kind == "JoinExpr":
        for side in ("larg", "rarg"):
            inner = source.find(side)
            if inner is not None:
                yield from _named(inner)
    else:
        alias = source.find("alias")
        if alias is not None:
            yield alias.text("aliasname"), None
