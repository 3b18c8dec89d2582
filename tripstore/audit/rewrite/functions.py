"""`FunctionRewrite`: a part of a function, rewritten whole or not at all."""

from __future__ import annotations

import ast
from itertools import chain

from tripstore.audit.findings import UseKind
from tripstore.audit.meaning.bindings import Assigned, last_name
from tripstore.audit.meaning.values import Text
from tripstore.audit.rewrite.looking import RegionLook, blaming
from tripstore.audit.rewrite.questions.calls import StoreCall
from tripstore.audit.rewrite.reasons import reason_of, reason_of_text
from tripstore.audit.rewrite.regions import BlamedUse, FunctionEdits
from tripstore.audit.rewrite.rows import ListChange, RowName, is_none_given
from tripstore.audit.rewrite.suitability import check_suitable
from tripstore.audit.rewrite.verdicts import NotCertain, RewriteAssumption
from tripstore.audit.rewrite.writes.renewals import (
    check_read_once,
    check_renewed,
    ends_before,
    is_in_loop_of,
    renews,
)
from tripstore.audit.rewrite.writes.transactions import Transactions
from tripstore.audit.rewrite.writes.writes import RegionWrite


class FunctionRewrite(RegionLook):
    """Looks at a part of a function once; `edits()` answers, or raises `BlamedUse`."""

    def edits(self) -> FunctionEdits:
        check_suitable(self._function, self._denoting, self._scope)
        self._look_at_all(self._own())
        for row in list(self._rows):
            self._follow(row)
        self._look_again()
        self._note_lists()
        self._check_coverage()
        self._check_renewed()
        self._assign()
        self._check_handles()
        self._make_edits()
        return self._found

    # ---------------------------------------------------------------------------------------------- rows by name

    def _follow(self, row: RowName) -> None:
        bound = self._scope.bindings.names.get(row.name, [])
        uses = [node for node in ast.walk(self._function) if isinstance(node, ast.Name) and node.id == row.name]
        stored = [node for node in uses if not isinstance(node.ctx, ast.Load)]
        nones = [node for node in stored if not row.is_list and is_none_given(self._uses.parent(node), node)]
        is_plain = len(stored) == row.stores + len(nones) and len(bound) <= len(stored)
        is_plain = is_plain and all(isinstance(each, Assigned) for each in bound)
        if self._is_parameter(row.name):
            given = self._given_once(stored)
            is_plain, uses = given is not None, [node for node in uses if given is None or ends_before(given, node)]
        if not is_plain or row.name in self._scope.bindings.outer:
            raise BlamedUse(
                stored[0], NotCertain(f"{row.name} stands for other things as well", "give each a name of its own")
            )
        for node in uses:
            if isinstance(node.ctx, ast.Load):
                try:
                    row.take(node, self._uses.parent)
                except NotCertain as why:
                    raise BlamedUse(node, why) from None
        for statement, call in row.added:
            with blaming(call):
                self._check_added(row, statement, call)
                self._rendering.replace(call, "")
        for write in row.writes if len(stored) > 1 else ():
            if any(not ends_before(node, write) or is_in_loop_of(node, write, self._uses.parent) for node in stored):
                reason = f"{row.name} is changed, and stands for another row elsewhere"
                raise BlamedUse(write, NotCertain(reason, "give each a name of its own"))
        for name, model in row.loops:
            inner = self._row(name, model, is_list=False)
            self._rows.append(inner)
            self._follow(inner)
        for attribute, text in row.reads:
            with blaming(attribute):
                check_read_once(row, attribute, self._uses.parent)
                self._rendering.replace(attribute, text)
        self._found.assumes |= row.assumes

    def _check_added(self, row: RowName, statement: ast.Expr, call: ast.Call) -> None:
        """`session.add(trip)` of a row that this very session found does nothing. A change of it stands beside."""
        session, found = call.func.value if isinstance(call.func, ast.Attribute) else call, self._only_handle()
        is_same = last_name(session) == "session" if found is None else ast.dump(session) == ast.dump(found)
        beside = [each for each in row.changes if self._uses.parent(each.statement) is self._uses.parent(statement)]
        if not is_same or not beside:
            raise NotCertain(
                f"{row.name} is handed on as an object of a model", "hand on what is needed of it, or its id"
            )

    def _note_lists(self) -> None:
        """A list of child rows is a question as well, by the session of its row."""
        for attribute in [attribute for row in self._rows for attribute, _children in row.related]:
            with blaming(attribute):
                self._handles.append(self._only_handle())

    def _given_once(self, stored: list[ast.Name]) -> ast.Assign | None:
        """`trip = session.get(Trip, trip)`, in any case and once: before it the parameter is what was given."""
        statement = self._uses.parent(stored[0])
        is_always = isinstance(statement, ast.Assign) and statement in self._function.body and len(stored) == 1
        return statement if isinstance(statement, ast.Assign) and is_always else None

    def _is_parameter(self, name: str) -> bool:
        arguments = self._function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        return any(each is not None and each.arg == name for each in every)

    def _assign(self) -> None:
        """Attributes that are assigned: one change of the row, where the last of them stands. And deletions."""
        for row in self._rows:
            for deletion, call in row.deleted:
                with blaming(call):
                    self._delete(row, deletion, call)
            for change in row.list_changes:
                with blaming(change.call):
                    self._change_list(row, change)
            if not row.changes:
                continue
            every = (change.statement for change in row.changes), (statement for statement, _ in row.added)
            statements = sorted(dict.fromkeys(chain(*every)), key=lambda each: (each.lineno, each.col_offset))
            try:
                text = self._change_of(row)
                self._writes.add(RegionWrite(tuple(statements), self._only_handle(), row.model, text))
            except NotCertain as why:
                raise BlamedUse(row.changing[0], why) from None

    def _delete(self, row: RowName, deletion: ast.Expr, call: ast.Call) -> None:
        self._writer.check_deletion(row.model)
        if not isinstance(call.func, ast.Attribute) or len(row.deleted) > 1:
            raise NotCertain(f"{row.name} is deleted twice", "delete it once")
        text = f"rewritten.delete_found({self._context.store}, {row.name})"
        self._take(call, StoreCall(text), call.func.value)
        self._writes.add(RegionWrite((deletion,), call.func.value, row.model, text))

    def _change_list(self, row: RowName, change: ListChange) -> None:
        """`trip.notes.append(…)`: no list of these child rows is read once it is changed."""
        children = change.children
        row.model.check_writes()
        related = [read for each in self._rows for read, of in each.related if of.child.column is children.child.column]
        for read in related:
            if ends_before(change.statement, read) or is_in_loop_of(change.statement, read, self._uses.parent):
                raise NotCertain(f"{ast.unparse(read)} is read after it was changed", "read before you change it")
        handle, writer = self._only_handle(), self._children
        if change.is_insert:
            text = writer.inserted(row.name, change, self._handle(handle))
        else:
            self._writer.check_deletion(children.child)
            text = writer.removed(row.name, change)
        self._take(change.call, StoreCall(text), handle)
        self._writes.add(RegionWrite((change.statement,), handle, children.child, text))

    def _only_handle(self) -> ast.expr | None:
        """The session whose object is changed."""
        known = {ast.unparse(each): each for each in self._handles if each is not None}
        if len(known) > 1:
            raise NotCertain("two sessions are at work", "a function for each")
        return next(iter(known.values()), None)

    def _is_snapshot_of_one(self) -> bool:
        """Whether a stricter transaction reads one row and changes no other: a put unless that has changed is the same.

        Both are refused where another writer was faster: by 40001 there, by `CellConflict` here.
        """
        opened = Transactions(self._region, self._uses.parent, self._context.units).opened(self._only_handle())
        is_one = len(self._handles) == 1 and len([row for row in self._rows if row.changes]) == 1
        is_one = is_one and not self._found.needs  # what an index finds depends on other rows
        return opened is not None and is_one and opened.is_stricter

    def _change_of(self, row: RowName) -> str:
        row.model.check_writes()
        written = [change.attribute for change in row.changes]
        for read in (read for each in self._rows for read, _text in each.reads):
            before = [change.attribute for change in row.changes if ends_before(change.statement, read)]
            if read.attr in before or len(before) == len(written):
                raise NotCertain(f"{row.name} is read after it was changed", "read before you change it")
        if len(set(written)) != len(written):
            raise NotCertain(f"{row.name} is changed twice", "change it once")
        is_snapshot = self._is_snapshot_of_one()
        if self._context.is_stricter and row.reads and not is_snapshot:
            self._found.assumes.add(RewriteAssumption.READ_COMMITTED)
        said, kept = [], []
        for change in row.changes:
            known = row.model.attribute(change.attribute)
            if self._reader.mentions(change.value):
                raise NotCertain("Postgres computes a value", "compute it in Python")
            text = known.written(self._source(change.value), self._handle(self._only_handle()))
            said.append(f'"{known.mapped().name}": {text}')
            kept += [known.mapped().name] if known.mapped().keeps_null else []
        if row.model.column.ref_key.kind.value == "fact":
            raise NotCertain(f"rows of {row.model.column.table} never change by the layout", "append another one")
        null = ", keeps_null=(" + "".join(f'"{each}", ' for each in kept).rstrip() + ")" if kept else ""
        null += ", unless_changed=True" if is_snapshot else ""
        return f"rewritten.change_found({self._context.store}, {row.name}, {{{', '.join(said)}}}{null})"

    # ---------------------------------------------------------------------------------------------- what is left

    def _check_coverage(self) -> None:
        """Each use that `audit code` found here is within something that is rewritten."""
        known: set[ast.AST] = {each for row in self._rows for each in row.changing}
        known |= {call for row in self._rows for _, call in row.deleted}
        known |= {change.call for row in self._rows for change in row.list_changes}
        known |= {each.value for each in self._kept}
        for node, use in self._uses.placed():
            is_known = self._rendering.has(node) or self._rendering.is_below(node, known)
            # A name that a function is given stays where it is: among the values of a call, too.
            is_known = is_known and (use.kind is not UseKind.NAME or node in self._found.texts)
            if self._is_of_region(node) and not is_known:
                raise BlamedUse(node, NotCertain(*reason_of(use)))
        for node in self._own():
            if isinstance(node, ast.Name | ast.Attribute) and not self._rendering.has(node):
                text = self._denoting.value(node, self._scope)
                if isinstance(text, Text) and " " in text.text and self._context.models.tables.word.search(text.text):
                    raise BlamedUse(node, NotCertain(*reason_of_text(text.text)))

    def _check_renewed(self) -> None:
        check_renewed(
            self._rows, [*(each for each in self._own() if renews(each)), *self._writes.by_key], self._uses.parent
        )

    def _is_of_region(self, node: ast.AST) -> bool:
        above: ast.AST | None = node
        while above is not None and above is not self._function:
            if above is self._region:
                return True
            if above in self._others or isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
                return False
            above = self._uses.parent(above)
        return above is self._region

    def _check_handles(self) -> None:
        transactions = Transactions(self._region, self._uses.parent, self._context.units)
        by_key = len(self._writes.by_key)
        if self._context.is_stricter and len(self._handles) > max(1, by_key):  # what was read may decide what comes
            self._found.assumes.add(RewriteAssumption.READ_COMMITTED)
        for handle in self._handles:
            opened = transactions.opened(handle)
            if opened is None:
                self._found.assumes.add(RewriteAssumption.COMMITTED_READS)
            elif isinstance(handle, ast.Name):
                with blaming(handle):
                    if opened.is_stricter and not (self._is_snapshot_of_one() and len(self._writes) == 1):
                        raise NotCertain(
                            "its isolation level is one that tripstore does not have", "put with expect_latest"
                        )
                    transactions.check_handle(handle, self._rendering.replaced.keys(), writes=bool(self._writes))
        if self._writes.check(transactions):
            self._found.assumes.add(RewriteAssumption.SEPARATE_WRITES)

    def _make_edits(self) -> None:
        try:
            self._found.edits += self._rendering.edits(self._writes.texts() | self._fetches, self._kept)
        except NotCertain as why:
            raise BlamedUse(self._region, why) from None
