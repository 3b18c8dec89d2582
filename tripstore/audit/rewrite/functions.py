"""`FunctionRewrite`: one function, rewritten whole or not at all."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from schemaless_core.definitions.index import IndexDefinition
from tripstore.audit.findings import Use, UseKind
from tripstore.audit.meaning.values import AuditedFunction, Entity, Module, Scope, Text
from tripstore.audit.orms.models import Models
from tripstore.audit.places import Lines
from tripstore.audit.rewrite.asked import Asked, AskedReader
from tripstore.audit.rewrite.calls import CallWriter, StoreCall
from tripstore.audit.rewrite.models import ColumnRole, RewriteModel, RewriteModels
from tripstore.audit.rewrite.rows import RowName
from tripstore.audit.rewrite.sqltext import SqlValue, sql_change
from tripstore.audit.rewrite.transactions import Transactions
from tripstore.audit.rewrite.verdicts import Edit, IndexNeed, NotCertain, RewriteAssumption
from tripstore.audit.uses.uses import Uses

_BY_HAND = "rewrite it by hand"


@dataclass(frozen=True)
class RewriteContext:
    """What all functions of a code base share."""

    models: Models
    rewrite_models: RewriteModels
    entities: list[Entity]
    indexes: Sequence[IndexDefinition]
    store: str
    units: Sequence[str] = ()
    is_stricter: bool = False  #: Whether any of it names an isolation level above READ COMMITTED.


@dataclass
class FunctionEdits:
    """What a function becomes."""

    edits: list[Edit] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    assumes: set[RewriteAssumption] = field(default_factory=set)
    needs: list[IndexNeed] = field(default_factory=list)
    texts: set[ast.AST] = field(default_factory=set)  #: Names of SQL that are no longer used here.


class BlamedUse(Exception):
    """A use that cannot be rewritten, and so none of its function can."""

    def __init__(self, node: ast.AST, why: NotCertain) -> None:
        super().__init__(why.reason)
        self.node = node
        self.why = why


@dataclass(frozen=True)
class _Parameters:
    """What each placeholder of a statement stands for."""

    known: dict[object, ast.expr]
    source: Callable[[ast.expr], str]

    def __call__(self, of: SqlValue) -> str:
        node = self.node(of)
        return of.constant if node is None else self.source(node)

    def node(self, of: SqlValue) -> ast.expr | None:
        if of.placeholder is None:
            return None
        if of.placeholder not in self.known or isinstance(self.known[of.placeholder], ast.Starred):
            raise NotCertain("its values do not fit its placeholders", _BY_HAND)
        return self.known[of.placeholder]


Function = ast.FunctionDef | ast.AsyncFunctionDef


def regions(function: Function) -> list[ast.With | Function]:
    """Each `with` that opens something under a name, the outermost only; then what is left of the function."""
    found: list[ast.With | Function] = []
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.With) and any(isinstance(item.optional_vars, ast.Name) for item in node.items):
            found.append(node)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))
    return [*found, function]


class FunctionRewrite:
    """Looks at a part of a function once; `edits()` answers, or raises `BlamedUse`."""

    def __init__(
        self, context: RewriteContext, uses: Uses, lines: Lines, function: Function, region: ast.With | Function
    ) -> None:
        self._context = context
        self._uses = uses
        self._lines = lines
        self._function = function
        self._region = region
        self._others = set(regions(function)) - {region, function}
        self._scope: Scope = uses.scopes[function]
        self._reader = AskedReader(context.models.denoting, self._scope)
        self._writer = CallWriter(context.store, self._source, context.indexes)
        self._replaced: dict[ast.AST, str] = {}
        self._statements: dict[tuple[ast.stmt, ...], tuple[str, ast.expr | None]] = {}  #: writes, and their handles
        self._handles: list[ast.expr | None] = []
        self._rows: list[RowName] = []
        self._found = FunctionEdits()

    def edits(self) -> FunctionEdits:
        self._check_kind()
        for node in self._own():
            self._look(node)
        for row in list(self._rows):
            self._follow(row)
        self._check_coverage()
        self._assign()
        self._check_handles()
        self._make_edits()
        return self._found

    # ---------------------------------------------------------------------------------------------- what is there

    def _own(self) -> Iterator[ast.expr]:
        """The expressions of the function, outer ones first; what is replaced is not entered."""
        waiting: list[ast.AST] = [self._region] if self._region is not self._function else list(self._function.body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.expr):
                yield node
            if node not in self._replaced and node not in self._others:
                waiting.extend(reversed(list(ast.iter_child_nodes(node))))

    def _check_kind(self) -> None:
        if isinstance(self._function, ast.AsyncFunctionDef):
            raise BlamedUse(
                self._function,
                NotCertain("the function is asynchronous, and tripstore's calls block", "call it in a thread"),
            )
        for node in ast.walk(self._function):
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
                and node is not self._function
            ):
                raise BlamedUse(node, NotCertain("there is a function inside of this one", "take it out"))
            if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
                raise BlamedUse(node, NotCertain("the function stops in the middle and goes on later", _BY_HAND))
            if isinstance(node, ast.ExceptHandler) and node.type is not None and self._is_of_driver(node.type):
                raise BlamedUse(
                    node,
                    NotCertain(
                        "it catches errors of the driver, which tripstore does not raise",
                        "catch CellConflict and Unavailable",
                    ),
                )

    def _is_of_driver(self, node: ast.expr) -> bool:
        for part in ast.walk(node):
            value = (
                self._context.models.denoting.value(part, self._scope)
                if isinstance(part, ast.Name | ast.Attribute)
                else None
            )
            if isinstance(value, Module) and value.dotted.partition(".")[0] in (
                "sqlalchemy",
                "psycopg2",
                "psycopg",
                "asyncpg",
            ):
                return True
        return False

    def _look(self, node: ast.expr) -> None:
        if not isinstance(node, ast.Call):
            return
        try:
            if self._look_at_sql(node):
                return
            asked = self._reader.asked(node)
            if asked is None:
                return
            model = self._model(asked.entity)
            self._check_text(node)
            if asked.is_update:
                self._look_at_update(node, asked, model)
            else:
                self._look_at_read(node, asked, model)
        except NotCertain as why:
            raise BlamedUse(node, why) from None

    def _model(self, entity: Entity) -> RewriteModel:
        if entity.facts is not None:
            return self._context.rewrite_models.of_entity(entity)
        return self._of_table(entity.tables[0].schema, entity.tables[0].name)

    def _of_table(self, schema: str | None, name: str) -> RewriteModel:
        return self._context.rewrite_models.of_table(schema, name, self._context.entities)

    def _look_at_read(self, node: ast.Call, asked: Asked, model: RewriteModel) -> None:
        self._check_order([*asked.keys, *(each for found in asked.conditions for each in found.values)])
        call = self._writer.read(asked, model, self._handle(asked.handle))
        if not call.is_value:
            self._bind(self._passed_on(node), model, is_list=asked.end in ("", "all"), is_loop=asked.end == "")
        self._take(node, call, asked.handle)

    def _passed_on(self, node: ast.Call) -> ast.Call:
        """What comes out of functions that return what they are given, or raise: `present(session.get(Trip, 7))`."""
        parent = self._uses.parent(node)
        if isinstance(parent, ast.Call) and parent.args == [node] and not parent.keywords:
            function = self._context.models.denoting.value(parent.func, self._scope)
            if isinstance(function, AuditedFunction) and _is_passing(function.function):
                return self._passed_on(parent)
        return node

    def _bind(self, node: ast.Call, model: RewriteModel, *, is_list: bool, is_loop: bool) -> None:
        """Where the rows go: a name, a loop, or only a look whether there is one."""
        parent = self._uses.parent(node)
        if (
            isinstance(parent, ast.Assign)
            and len(parent.targets) == 1
            and isinstance(parent.targets[0], ast.Name)
            and not is_loop
        ):
            self._rows.append(RowName(parent.targets[0].id, model, is_list))
        elif (
            is_list
            and isinstance(parent, ast.For | ast.comprehension)
            and parent.iter is node
            and isinstance(parent.target, ast.Name)
        ):
            self._rows.append(RowName(parent.target.id, model, False))
        elif is_list or not _is_asked_only(parent, node):
            raise NotCertain(
                "what it brings is handed on as objects of a model", "hand on what is needed of them, or their ids"
            )

    def _look_at_update(self, node: ast.Call, asked: Asked, model: RewriteModel) -> None:
        statement = self._uses.parent(node)
        if not isinstance(statement, ast.Expr):
            raise NotCertain("what the statement answers is used", "ask for the row first")
        if asked.order or asked.limit is not None or not asked.changes:
            raise NotCertain("it has an order or a limit, or no values", _BY_HAND)
        for _name, value in asked.changes:
            if self._reader.mentions(value):
                raise NotCertain("Postgres computes a value", "read first, compute in Python, then change by the key")
        self._check_order(
            [
                *asked.keys,
                *(each for found in asked.conditions for each in found.values),
                *(each for _, each in asked.changes),
            ]
        )
        changes = [(name, self._source(value)) for name, value in asked.changes]
        self._take(
            node,
            self._writer.changed(self._writer.keys(asked, model), changes, model, self._handle(asked.handle)),
            asked.handle,
        )
        self._statements[(statement,)] = ("", asked.handle)

    def _look_at_sql(self, node: ast.Call) -> bool:
        """`cursor.execute("UPDATE …", (…))`"""
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "execute" and node.args):
            return False
        said = node.args[0]
        if (
            isinstance(said, ast.Call)
            and self._context.models.denoting.callee(said, self._scope) == "text"
            and len(said.args) == 1
        ):
            said = said.args[0]
        text = self._context.models.denoting.value(said, self._scope)
        if not isinstance(text, Text) or self._context.models.tables.word.search(text.text) is None:
            return False
        change = sql_change(text.text)
        model = self._of_table(change.schema, change.table)
        statement = self._uses.parent(node)
        if not isinstance(statement, ast.Expr) or node.keywords or len(node.args) > 2:
            raise NotCertain("what the statement answers is used", "ask for the row first")
        values = self._parameters(node.args[1] if len(node.args) == 2 else None)
        keys = {model.physical(column).role: values(value) for column, value in change.keys}
        changes = [(model.physical(column).name, values(value)) for column, value in change.changes]
        is_row = set(keys) in ({ColumnRole.ID}, {ColumnRole.ROW_KEY}) and not model.column.is_child
        is_child = set(keys) == {ColumnRole.PARENT, ColumnRole.NUMBER} and model.has_versions
        if len(keys) != len(change.keys) or not (is_row or is_child):
            raise NotCertain("it is not by the key of one row", "find the rows by an index, and change each")
        self._check_text(node)
        every = [known for each in (*change.keys, *change.changes) if (known := values.node(each[1])) is not None]
        self._check_order(every)
        self._take(node, self._writer.changed(keys, changes, model, self._handle(node.func.value)), node.func.value)
        self._found.texts |= {part for part in ast.walk(node.args[0]) if isinstance(part, ast.Name)}
        self._statements[(statement,)] = ("", node.func.value)
        return True

    def _handle(self, handle: ast.expr | None) -> str | None:
        return None if handle is None else self._source(handle)

    def _parameters(self, node: ast.expr | None) -> _Parameters:
        if isinstance(node, ast.Tuple | ast.List):
            return _Parameters(dict(enumerate(node.elts)), self._source)
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return _Parameters(
                {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}, self._source
            )
        if node is not None:
            raise NotCertain("its values are known at run time only", _BY_HAND)
        return _Parameters({}, self._source)

    def _take(self, node: ast.Call, call: StoreCall, handle: ast.expr | None) -> None:
        self._replaced[node] = call.text
        self._handles.append(handle)
        self._found.names |= call.names
        self._found.assumes |= call.assumes
        self._found.needs += [call.need] if call.need is not None else []

    # ---------------------------------------------------------------------------------------------- rows by name

    def _follow(self, row: RowName) -> None:
        bound = self._scope.bindings.names.get(row.name, [])
        uses = [node for node in ast.walk(self._function) if isinstance(node, ast.Name) and node.id == row.name]
        stored = [node for node in uses if not isinstance(node.ctx, ast.Load)]
        if len(stored) != 1 or len(bound) > 1 or row.name in self._scope.bindings.outer or self._is_parameter(row.name):
            raise BlamedUse(
                stored[0], NotCertain(f"{row.name} stands for other things as well", "give each a name of its own")
            )
        for node in uses:
            if isinstance(node.ctx, ast.Load):
                try:
                    row.take(node, self._uses.parent)
                except NotCertain as why:
                    raise BlamedUse(node, why) from None
        for name in row.loops:
            inner = RowName(name, row.model, False)
            self._rows.append(inner)
            self._follow(inner)
        for attribute, text in row.reads:
            self._replaced[attribute] = text
        self._found.names |= row.names
        self._found.assumes |= row.assumes

    def _is_parameter(self, name: str) -> bool:
        arguments = self._function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        return any(each is not None and each.arg == name for each in every)

    def _assign(self) -> None:
        """Attributes that are assigned: one change of the row, where the last of them stands."""
        for row in self._rows:
            if not row.assigned:
                continue
            statements = [statement for statement, _ in row.assigned]
            try:
                text = self._change_of(row)
            except NotCertain as why:
                raise BlamedUse(row.assigned[0][1], why) from None
            handle = next((handle for handle in self._handles if handle is not None), None)
            self._statements[tuple(statements)] = (text, handle)

    def _change_of(self, row: RowName) -> str:
        row.model.check_writes()
        written = [attribute.attr for _, attribute in row.assigned]
        for read, _text in row.reads:
            before = [target.attr for statement, target in row.assigned if _ends_before(statement, read)]
            if read.attr in before or len(before) == len(written):
                raise NotCertain(f"{row.name} is read after it was changed", "read before you change it")
        if len(set(written)) != len(written):
            raise NotCertain(f"{row.name} is changed twice", "change it once")
        if self._context.is_stricter and row.reads:
            self._found.assumes.add(RewriteAssumption.READ_COMMITTED)
        said, kept = [], []
        for statement, attribute in row.assigned:
            known = row.model.attribute(attribute.attr)
            assert isinstance(statement, ast.Assign)  # RowName takes no other
            if self._reader.mentions(statement.value):
                raise NotCertain("Postgres computes a value", "compute it in Python")
            handle = next((each for each in self._handles if each is not None), None)
            text, names = known.written(self._source(statement.value), self._handle(handle))
            self._found.names |= names
            said.append(f'"{known.mapped().name}": {text}')
            kept += [known.mapped().name] if known.mapped().keeps_null else []
        if row.model.column.ref_key.kind.value == "fact":
            raise NotCertain(f"rows of {row.model.column.table} never change by the layout", "append another one")
        self._found.names.add("change_found")
        null = ", keeps_null=(" + "".join(f'"{each}", ' for each in kept).rstrip() + ")" if kept else ""
        return f"rewritten.change_found({self._context.store}, {row.name}, {{{', '.join(said)}}}{null})"

    # ---------------------------------------------------------------------------------------------- what is left

    def _check_coverage(self) -> None:
        """Each use that `audit code` found here is within something that is rewritten."""
        assigned = {attribute for row in self._rows for _, attribute in row.assigned}
        for node, use in self._uses.placed():
            if self._is_of_region(node) and node not in assigned and not self._is_replaced(node):
                raise BlamedUse(node, NotCertain(*reason_of(use)))
        for node in self._own():
            if isinstance(node, ast.Name | ast.Attribute) and not self._is_replaced(node):
                text = self._context.models.denoting.value(node, self._scope)
                if isinstance(text, Text) and " " in text.text and self._context.models.tables.word.search(text.text):
                    raise BlamedUse(node, _of_text(text.text))

    def _is_of_region(self, node: ast.AST) -> bool:
        above: ast.AST | None = node
        while above is not None and above is not self._function:
            if above is self._region:
                return True
            if above in self._others or isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
                return False
            above = self._uses.parent(above)
        return above is self._region

    def _is_replaced(self, node: ast.AST) -> bool:
        above: ast.AST | None = node
        while above is not None and above is not self._function:
            if above in self._replaced:
                return True
            above = self._uses.parent(above)
        return False

    def _check_handles(self) -> None:
        transactions = Transactions(self._region, self._uses.parent, self._context.units)
        if len(self._statements) > 1:
            second = list(self._statements)[1][0]
            raise BlamedUse(
                second,
                NotCertain(
                    "two writes of one function would be two puts, and a rollback takes back neither",
                    "a function for each, or one cell for both",
                ),
            )
        for handle in self._handles:
            opened = transactions.opened(handle)
            if opened is None:
                self._found.assumes.add(RewriteAssumption.COMMITTED_READS)
            elif isinstance(handle, ast.Name):
                self._blame(handle, lambda handle=handle: transactions.check_handle(handle, self._replaced.keys()))
        for statements, (_text, handle) in self._statements.items():
            self._blame(
                statements[0],
                lambda statements=statements, handle=handle: transactions.check_write(
                    list(statements), transactions.opened(handle)
                ),
            )

    def _blame(self, node: ast.AST, check) -> None:  # type: ignore[no-untyped-def]  # a lambda
        try:
            check()
        except NotCertain as why:
            raise BlamedUse(node, why) from None

    # ---------------------------------------------------------------------------------------------- the new text

    def _check_order(self, values: Sequence[ast.expr]) -> None:
        """Calls that make the values are made in the order in which they were: any of them may draw a number."""
        places = [
            self._lines.span(each) for each in values if any(isinstance(part, ast.Call) for part in ast.walk(each))
        ]
        if places != sorted(places):
            raise NotCertain("its values would be computed in another order", "give them names first")

    def _check_text(self, node: ast.Call) -> None:
        start, end = self._lines.span(node)
        if "#" in self._lines.source[start:end]:
            raise NotCertain("there is a comment, or a # in a text, inside of it", "move it above")
        for part in ast.walk(node):
            if isinstance(part, ast.NamedExpr | ast.Starred | ast.GeneratorExp):
                raise NotCertain("there is an assignment, a star or a generator inside of it", "take it out")

    def _source(self, node: ast.expr) -> str:
        """A node as it stands, with what is replaced inside of it."""
        start, end = self._lines.span(node)
        text, at = "", start
        for inner, new in self._outermost(node):
            begin, close = self._lines.span(inner)
            text += self._lines.source[at:begin] + new
            at = close
        return text + self._lines.source[at:end]

    def _outermost(self, node: ast.expr) -> list[tuple[ast.expr, str]]:
        found: list[tuple[ast.expr, str]] = []
        waiting: list[ast.AST] = [node]
        while waiting:
            each = waiting.pop()
            if each in self._replaced and isinstance(each, ast.expr):
                found.append((each, self._replaced[each]))
            else:
                waiting.extend(ast.iter_child_nodes(each))
        return sorted(found, key=lambda pair: self._lines.span(pair[0]))

    def _make_edits(self) -> None:
        gone: set[ast.AST] = set()
        for statements, (text, _handle) in self._statements.items():
            if not text:
                continue
            gone |= set(statements)
            start, end = self._lines.span(statements[-1])
            self._found.edits.append(Edit(start, end, text))
            for each in statements[:-1]:
                self._found.edits.append(Edit(*self._whole_lines(each), ""))
        for node, text in self._replaced.items():
            if not self._is_below(node, gone) and not self._is_inside_of_another(node):
                self._found.edits.append(Edit(*self._lines.span(node), text))  # type: ignore[arg-type]  # only expressions are replaced

    def _whole_lines(self, statement: ast.stmt) -> tuple[int, int]:
        start, end = self._lines.span(statement)
        source = self._lines.source
        before = source.rfind("\n", 0, start) + 1
        after = source.find("\n", end)
        if source[before:start].strip() or source[end:after].strip():
            raise BlamedUse(
                statement, NotCertain("there is more than this statement in its line", "give it a line of its own")
            )
        return before, after + 1

    def _is_below(self, node: ast.AST, those: set[ast.AST]) -> bool:
        above: ast.AST | None = node
        while above is not None and above not in those:
            above = self._uses.parent(above)
        return above is not None

    def _is_inside_of_another(self, node: ast.AST) -> bool:
        above = self._uses.parent(node)
        return above is not None and self._is_below(above, set(self._replaced))


def _is_asked_only(parent: ast.AST | None, node: ast.expr) -> bool:
    """`if session.get(Trip, 7) is None`"""
    if isinstance(parent, ast.Compare) and parent.left is node and len(parent.ops) == 1:
        other = parent.comparators[0]
        return isinstance(parent.ops[0], ast.Is | ast.IsNot) and isinstance(other, ast.Constant) and other.value is None
    if isinstance(parent, ast.UnaryOp):
        return isinstance(parent.op, ast.Not)
    return isinstance(parent, ast.If | ast.While | ast.Assert) and parent.test is node


def _ends_before(statement: ast.stmt, node: ast.expr) -> bool:
    return (statement.end_lineno or 0, statement.end_col_offset or 0) <= (node.lineno, node.col_offset)


def _is_passing(function: Function) -> bool:
    """Whether a function returns the one thing that it is given, and asks nothing of it but whether it is None."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    if (
        len(arguments) != 1
        or function.args.kwonlyargs
        or function.decorator_list
        or function.args.vararg
        or function.args.kwarg
    ):
        return False
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == arguments[0].arg]
    returned = [node for node in names if isinstance(parents[node], ast.Return)]
    rest = [node for node in names if node not in returned]
    answers = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    is_async = isinstance(function, ast.AsyncFunctionDef)
    return (
        not is_async and len(answers) == len(returned) > 0 and all(_is_asked_only(parents[node], node) for node in rest)
    )


def _of_text(text: str) -> NotCertain:
    try:
        sql_change(text)
    except NotCertain as why:
        return why
    return NotCertain("this SQL is handed to a function of yours", "let that function call tripstore")


def reason_of(use: Use) -> tuple[str, str]:
    """Why a use that no form fits stays."""
    return _OF_KIND.get(use.kind, ("this form is not known", _BY_HAND))


_OF_KIND = {
    UseKind.NEW: ("the id and the defaults of a new row come from Postgres", "put a whole body under a new UUID"),
    UseKind.BULK: (
        "the ids and the defaults of new rows come from Postgres",
        "put_cells with whole bodies under new UUIDs",
    ),
    UseKind.INSERT: ("the id and the defaults of a new row come from Postgres", "put a whole body under a new UUID"),
    UseKind.DELETE: (
        "what else goes with a deleted row only Postgres' foreign keys say",
        "put a tombstone, and see on_tombstone in the layout",
    ),
    UseKind.INSTANCE: (
        "an object that comes from elsewhere is written",
        "change the row by its id: change_of_id(store, id, column, {…})",
    ),
    UseKind.RELATIONSHIP: ("it leads from one object to others", "ask for the others by their key, or by an index"),
    UseKind.REFERENCE: ("the model is named in another way", "look there by hand"),
    UseKind.NAME: ("the name of the table is handed to a function of yours", "let that function call tripstore"),
    UseKind.SQL_DELETE: (
        "what else goes with a deleted row only Postgres' foreign keys say",
        "put a tombstone, and see on_tombstone in the layout",
    ),
    UseKind.SQL_INSERT: (
        "the id and the defaults of a new row come from Postgres",
        "put a whole body under a new UUID",
    ),
    UseKind.SQL_MERGE: ("MERGE decides row by row in Postgres", "read first, then put each"),
    UseKind.SQL_COPY: ("COPY writes rows past every store", "put_cells, in batches"),
}
