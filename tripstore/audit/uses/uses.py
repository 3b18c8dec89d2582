"""`Uses`: walks through one Python file and finds every use of a legacy table in it."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tripstore.audit.allowing import Allowances
from tripstore.audit.findings import Access, Remark, Use, UseKind
from tripstore.audit.meaning.bindings import (
    RELATIONSHIPS,
    Bindings,
    Relationship,
    bind_walrus,
    bindings,
    class_facts,
    keyword,
    last_name,
    parameters,
)
from tripstore.audit.meaning.rows import comprehension_scope
from tripstore.audit.meaning.texts import Pieces, pieces
from tripstore.audit.meaning.values import AuditedFunction, Entity, ModelRows, Scope, Text
from tripstore.audit.names import LegacyTable
from tripstore.audit.orms.foreign import is_foreign
from tripstore.audit.orms.models import Models
from tripstore.audit.places import Lines
from tripstore.audit.sql.statements import NO_REASON, UNCLEAR, TextUses, text_uses
from tripstore.audit.uses.calls import table_calls
from tripstore.audit.uses.found import FoundUses
from tripstore.audit.uses.literals import is_executed, place_of
from tripstore.audit.uses.lookups import Spanned, SpanningLookups
from tripstore.audit.uses.mentions import MentionJudge
from tripstore.audit.uses.migrations import migrated_tables
from tripstore.audit.uses.related import RelatedUses
from tripstore.audit.uses.rows import is_column, row_uses

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
#: Of a statement that has others inside, what is not its head.
_INNER = frozenset({"body", "orelse", "finalbody", "handlers", "cases"})

_NAMED_LATER = "a table of the metadata is named at run time"
_REFLECTED = "all tables of a database are reflected here, and what uses them by other names is not found"


class Uses:
    """The uses of one file. Statements are walked from the top, with the scope that they see."""

    def __init__(self, file: str, source: str, tree: ast.Module, models: Models, allowed: Allowances) -> None:
        self.file = file
        self.remarks = [Remark(file, line, NO_REASON) for line in allowed.without_reason]
        self._models = models
        self._tables = models.tables
        self.tree = tree
        self._denoting = models.denoting
        self._lines = Lines(source)
        self._has_walrus = ":=" in source
        self._parents: dict[ast.AST, ast.AST] = {}
        self._docstrings: set[ast.AST] = set()
        self._survey(tree)
        self._read_literals: set[ast.Constant] = set()
        #: What each function's body sees.
        self.scopes: dict[ast.AST, Scope] = {}
        self._found = FoundUses(file, self._lines, allowed, self._parents, tree.body[0] if tree.body else ast.Pass())
        self._related = RelatedUses(file, models, self._parents, self._found)
        self._walk(tree.body, models.scope(file))
        self.remarks += self._related.remarks()

    def _survey(self, tree: ast.Module) -> None:
        """Note what every node stands in, and which texts are docstrings."""
        waiting: list[ast.AST] = [tree]
        while waiting:
            node = waiting.pop()
            children = list(ast.iter_child_nodes(node))
            self._parents.update(dict.fromkeys(children, node))
            waiting += children
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
                first = node.body[0]
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    self._docstrings.add(first.value)

    def findings(self) -> list[Use]:
        return self._found.findings()

    def placed(self) -> list[tuple[ast.expr, Use]]:
        """The uses, each with the node that it is."""
        return self._found.placed()

    def function_of(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The function that a node stands in."""
        above = self._parents.get(node)
        while above is not None and not isinstance(above, _FUNCTIONS):
            above = self._parents.get(above)
        return above

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(node)

    # ---------------------------------------------------------------------------------------- statements

    def _walk(self, body: Iterable[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._found.walk_into(statement)
            if isinstance(statement, _FUNCTIONS):
                self._function(statement, scope)
            elif isinstance(statement, ast.ClassDef):
                self._class(statement, scope)
            else:
                self._plain(statement, scope)

    def _plain(self, statement: ast.AST, scope: Scope) -> None:
        """Any statement: what it says itself, then those inside of it."""
        self._assigned(statement, scope)
        for name, value in ast.iter_fields(statement):
            if name not in _INNER:
                for part in value if isinstance(value, list) else [value]:
                    if name == "annotation":
                        self._annotation(part, scope)
                    elif isinstance(part, ast.AST):
                        self._expression(part, scope)
        for name in ("body", "orelse", "finalbody"):
            self._walk(getattr(statement, name, ()), scope)
        for handler in getattr(statement, "handlers", ()):
            self._found.walk_into(handler)
            self._plain(handler, scope)
        for case in getattr(statement, "cases", ()):
            self._plain(case, scope)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        for decorator in node.decorator_list:
            self._expression(decorator, scope)
        self._parameters(node.args, scope)
        if node.returns is not None:
            self._annotation(node.returns, scope)
        bound = bindings(node.body)
        if self._has_walrus:
            bind_walrus(node, bound)
        parameters(node.args, bound)
        self.scopes[node] = Scope(scope.file, bound, scope, first=self._first(node, scope))
        self._walk(node.body, self.scopes[node])

    def _first(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope
    ) -> tuple[str, Entity | ModelRows] | None:
        """What `self` or `cls` is in a method."""
        arguments = [*node.args.posonlyargs, *node.args.args]
        if not scope.is_class or scope.parent is None or not arguments:
            return None
        owner = self._parents.get(node)
        known = self._denoting.named(owner.name, scope.parent) if isinstance(owner, ast.ClassDef) else None
        decorators = {last_name(each) for each in node.decorator_list}
        if not isinstance(known, Entity) or "staticmethod" in decorators:
            return None
        if "classmethod" in decorators or arguments[0].arg == "cls":
            return arguments[0].arg, known
        return arguments[0].arg, ModelRows(frozenset({known}), is_statement=False)

    def _parameters(self, arguments: ast.arguments, scope: Scope) -> None:
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for each in every:
            if each is not None and each.annotation is not None:
                self._annotation(each.annotation, scope)
        for default in filter(None, (*arguments.defaults, *arguments.kw_defaults)):
            self._expression(default, scope)

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        for part in (*node.decorator_list, *(word.value for word in node.keywords)):
            self._expression(part, scope)
        known = (
            self._models.entity(class_facts(node), scope) if scope.parent else self._denoting.named(node.name, scope)
        )
        is_model = isinstance(known, Entity) and bool(known.tables)
        self._spanned(self._lookups(scope).of_class(node))
        inner = Scope(scope.file, bindings(node.body), scope, is_class=True)
        for statement in node.body:
            # What defines a model is no use of its table; its methods may be.
            if not (is_model and isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr)):
                self._walk([statement], inner)

    # --------------------------------------------------------------------------------------- expressions

    def _expression(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.expr):
            self._text(node, scope)
        if isinstance(node, ast.Lambda):
            self._parameters(node.args, scope)
            bound = Bindings()
            parameters(node.args, bound)
            scope = Scope(scope.file, bound, scope)
            self._expression(node.body, scope)
            return
        if isinstance(node, _COMPREHENSIONS):
            scope = comprehension_scope(node.generators, scope)
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and self._mention(node, scope):
            return
        if isinstance(node, ast.Attribute):
            self._related.look(node, scope)
        if isinstance(node, ast.Subscript) and _is_of_metadata(node) and self._known(node.slice, scope) is None:
            self.remarks.append(Remark(self.file, node.lineno, _NAMED_LATER))
        if isinstance(node, ast.Call) and self._call(node, scope):
            return
        for child in ast.iter_child_nodes(node):
            self._expression(child, scope)

    def _mention(self, node: ast.Name | ast.Attribute | ast.Subscript, scope: Scope) -> bool:
        """A model or a table object is named."""
        entity = self._denoting.value(node, scope) if isinstance(node.ctx, ast.Load) else None
        if not isinstance(entity, Entity) or not entity.tables:
            return False
        if isinstance(node, ast.Attribute) and node.attr in ("__table__", "alias"):
            return False  # its model is named inside
        self._judged(node, entity, scope)
        return True

    def _judged(self, node: ast.expr, entity: Entity, scope: Scope) -> None:
        judge = MentionJudge(
            self._parents,
            lambda call: self._denoting.callee(call, scope),
            lambda attribute: self._models.is_manager(entity, attribute),
            lambda each: isinstance(rows := self._denoting.value(each, scope), ModelRows) and rows.is_statement,
        )
        found = judge.judge(node, entity, self._found.statement)
        for table in entity.tables:
            self._found.add(node, found.unit, found.kind, table, found.access)

    def _annotation(self, node: ast.expr | None, scope: Scope) -> None:
        rows = self._denoting.annotated(node, scope) if node is not None else None
        if node is not None and rows is not None:
            self._found.add_rows(node, self._found.statement, rows, UseKind.REFERENCE, Access.UNKNOWN)

    def _call(self, node: ast.Call, scope: Scope) -> bool:
        """Whatever a call says by itself; True if there is no more to look for inside."""
        if last_name(node.func) in ("Table", "table"):
            made = self._denoting.value(node, scope)
            if isinstance(made, Entity) and made.tables:
                if not isinstance(self._parents[node], ast.stmt):
                    self._judged(node, made, scope)
                return True
        self._model_by_name(node, scope)
        for found in table_calls(node, self._tables, lambda each: self._known(each, scope)):
            self._found.add(found.node, found.node, found.kind, found.table, found.access)
        for argument, table in migrated_tables(node, self.file, self._models, lambda each: self._known(each, scope)):
            self._found.add(argument, argument, UseKind.SCHEMA, table, Access.WRITE)
        self._names(node, scope)
        if last_name(node.func) in RELATIONSHIPS:
            self._relationship(node, scope)
        if is_foreign(node):
            self._foreign(node, scope)
        if _reflects(node):
            self.remarks.append(Remark(self.file, node.lineno, _REFLECTED, hides_uses=True))
        self._spanned(self._lookups(scope).of(node))
        self._instances(node, scope)
        return False

    def _lookups(self, scope: Scope) -> SpanningLookups:
        return SpanningLookups(self._models, self._parents, lambda each: self._denoting.value(each, scope))

    def _spanned(self, found: Iterable[Spanned]) -> None:
        for each in found:
            unit = (self._found.statement, each.name)
            self._found.add(each.node, unit, UseKind.RELATIONSHIP, each.table, Access.READ)

    def _model_by_name(self, node: ast.Call, scope: Scope) -> None:
        """`apps.get_model("trips", "Trip")`, `get_user_model()`; one that is kept under a name is used by that."""
        if last_name(node.func) in ("get_model", "get_user_model") and not isinstance(self._parents[node], ast.stmt):
            model = self._denoting.value(node, scope)
            if isinstance(model, Entity) and model.tables:
                self._judged(node, model, scope)

    def _names(self, node: ast.Call, scope: Scope) -> None:
        """The name of a table is handed to a function, class or method of the audited code."""
        texts = {id(each): each for each in (*node.args, *(word.value for word in node.keywords))}
        named = {key: self._named_table(each, scope) for key, each in texts.items()}
        if not any(named.values()):
            return
        owner = self._denoting.value(node.func.value, scope) if isinstance(node.func, ast.Attribute) else None
        target = self._denoting.value(node.func, scope)
        if isinstance(owner, ModelRows) or isinstance(target, AuditedFunction | Entity):
            for key, table in named.items():
                if table is not None:
                    self._found.add(texts[key], texts[key], UseKind.NAME, table, Access.UNKNOWN)

    def _named_table(self, node: ast.expr, scope: Scope) -> LegacyTable | None:
        text = self._known(node, scope) if isinstance(node, ast.Constant | ast.Name | ast.Attribute) else None
        schema, _, name = (text or "").rpartition(".")
        return self._tables.find(schema or None, name) if text else None

    def _relationship(self, node: ast.Call, scope: Scope) -> None:
        argument = node.args[0] if node.args else keyword(node, "argument")
        statement = self._found.statement
        annotation = statement.annotation if isinstance(statement, ast.AnnAssign) else None
        target = self._models.target(Relationship(argument, annotation, None), scope)
        for table in target.tables if target is not None else ():
            self._found.add(node, node, UseKind.RELATIONSHIP, table, Access.READ)

    def _foreign(self, node: ast.Call, scope: Scope) -> None:
        """`ForeignKey("trips.Trip", …)` of Django and Peewee, in a model or in a migration."""
        target = self._models.foreign_target(node, scope)
        for table in target.tables if target is not None else ():
            self._found.add(node, node, UseKind.FOREIGN_KEY, table, Access.READ)

    def _instances(self, node: ast.Call, scope: Scope) -> None:
        for each in row_uses(node, lambda part: self._denoting.value(part, scope)):
            self._found.add_rows(node, node, each.rows, each.kind, each.access)

    def _assigned(self, statement: ast.AST, scope: Scope) -> None:
        """`trip.status = …`, `del trip.note`"""
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                if isinstance(part, ast.Attribute):
                    rows = self._denoting.value(part.value, scope)
                    if isinstance(rows, ModelRows) and not rows.is_statement and is_column(rows, part.attr):
                        self._found.add_rows(part, statement, rows, UseKind.INSTANCE, Access.WRITE)

    def _known(self, node: ast.expr, scope: Scope) -> str | None:
        found = self._denoting.value(node, scope)
        return found.text if isinstance(found, Text) else None

    # --------------------------------------------------------------------------------------------- texts

    def _text(self, node: ast.expr, scope: Scope) -> None:
        if not isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Call):
            return
        parts = pieces(node, scope, self._denoting)
        literals = {part.literal for part in parts or () if part.literal is not None}
        if not parts or literals <= self._read_literals:
            return
        self._read_literals |= literals
        is_prose = node in self._docstrings
        found = text_uses(
            "".join(part.text for part in parts),
            self._tables,
            is_certain=is_executed(node, self._parents[node]),
            is_prose=is_prose,
        )
        self._of_text(node, parts, found)

    def _of_text(self, node: ast.expr, parts: Pieces, found: TextUses) -> None:
        for use, allowed, statement in found.uses:
            place = place_of(use.offset, node, parts, self._lines, self._tables.word)
            if place is not None:
                unit = (node, use.statement, use.part)
                self._found.add(node, unit, use.kind, use.table, use.access, place, allowed, statement)
        for _offset in found.unclear[:1]:
            self.remarks.append(Remark(self.file, self._lines.of(node)[0], UNCLEAR))
        for _offset in found.without_reason:
            self.remarks.append(Remark(self.file, self._lines.of(node)[0], NO_REASON))


def _is_of_metadata(node: ast.Subscript) -> bool:
    """`metadata.tables[…]`; tables of other things, such as of documents, are numbered."""
    owner = node.value.value if isinstance(node.value, ast.Attribute) and node.value.attr == "tables" else None
    return owner is not None and "meta" in (last_name(owner) or "").lower()


def _reflects(call: ast.Call) -> bool:
    """`metadata.reflect(…)`, `Base.prepare(autoload_with=…)`"""
    if not isinstance(call.func, ast.Attribute):
        return False
    words = {word.arg for word in call.keywords}
    if call.func.attr == "reflect":
        return "only" not in words
    return call.func.attr == "prepare" and bool(words & {"autoload_with", "reflect"})
