"""`Transactions`: which sessions a function opens itself, and whether a write in one is alone and last."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import takewhile

from tripstore.audit.meaning.bindings import last_name
from tripstore.audit.names import words
from tripstore.audit.rewrite.verdicts import NotCertain

#: What may be asked of a session besides, when all that it reads and writes goes to tripstore.
_HARMLESS = words("commit flush close")
_STRICTER = words("REPEATABLE SERIALIZABLE")


@dataclass(frozen=True)
class OpenedTransaction:
    """A `with` that opens a session, a connection or a cursor under a name."""

    statement: ast.With
    opener: ast.Call
    name: str

    @property
    def is_stricter(self) -> bool:
        """Whether it asks for REPEATABLE READ or SERIALIZABLE."""
        parts = ast.walk(self.opener)
        texts = [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        return any(_STRICTER & set(text.upper().split()) for text in texts)


@dataclass(frozen=True)
class Transactions:
    """Of one part of a function. `units` are the names of the company's own contexts that commit at their end."""

    function: ast.With | ast.FunctionDef | ast.AsyncFunctionDef
    parents: Callable[[ast.AST], ast.AST | None]
    units: Collection[str]

    def opened(self, handle: ast.expr | None) -> OpenedTransaction | None:
        """The `with` that opens what a handle names; None: it comes from elsewhere."""
        if not isinstance(handle, ast.Name):
            return None
        found = [each for each in self._all() if each.name == handle.id]
        return found[0] if len(found) == 1 else None

    def check_handle(self, handle: ast.Name, known: Collection[ast.AST], *, writes: bool) -> None:
        """Nothing but the calls that are rewritten, and what is harmless then, uses a session of the function's own.

        Where nothing is written to tripstore, reads of other tables may stay: none of them sees or changes its rows.
        """
        for node in ast.walk(self.function):
            if not (isinstance(node, ast.Name) and node.id == handle.id and isinstance(node.ctx, ast.Load)):
                continue
            is_harmless = self._is_harmless_use(node) or (not writes and self._is_read_of_others(node))
            if not (is_harmless or self._is_inside(node, known)):
                raise NotCertain(
                    f"{handle.id} does something else as well, in the same transaction",
                    "take this out into a transaction of its own",
                )

    def _is_harmless_use(self, node: ast.Name) -> bool:
        """`session.commit()`, `with …, session.begin():`"""
        above = self.parents(node)
        call = self.parents(above) if isinstance(above, ast.Attribute) else None
        if not isinstance(above, ast.Attribute) or not isinstance(call, ast.Call):
            return False
        return above.attr in _HARMLESS or (above.attr == "begin" and isinstance(self._with_of(call), ast.With))

    def _is_read_of_others(self, node: ast.Name) -> bool:
        """`session.get(User, 7)`, `session.scalars(select(User))`: legacy tables in it would be a use of their own."""
        above = self.parents(node)
        call = self.parents(above) if isinstance(above, ast.Attribute) else None
        if not isinstance(above, ast.Attribute) or not isinstance(call, ast.Call) or not call.args:
            return False
        asked = call.args[0]
        while isinstance(asked, ast.Call) and isinstance(asked.func, ast.Attribute) and asked.func.attr != "select":
            asked = asked.func.value
        is_select = isinstance(asked, ast.Call) and last_name(asked.func) == "select"
        return above.attr == "get" or (above.attr in ("scalar", "scalars") and is_select)

    def check_write(self, statements: list[ast.stmt], transaction: OpenedTransaction | None) -> bool:
        """The writes are the last that their transaction does, and it commits. Answers whether a loop has them."""
        if transaction is None:
            raise NotCertain(
                "its transaction begins elsewhere: a rollback would not take a put back",
                "open the transaction here, or put after its commit",
            )
        body = transaction.statement.body
        tails = self._tails(body, transaction.name)
        tail = next((each for each in tails if self._has_last(each, statements, transaction.name)), None)
        if tail is None:
            raise NotCertain(
                "the transaction goes on after it: an error there would not take a put back",
                "let it be the last statement",
            )
        is_committed = self._is_committed(body, transaction.name) or self._is_committed(tail, transaction.name)
        if not (self._commits(transaction) or is_committed):
            raise NotCertain(
                f"whether {ast.unparse(transaction.opener.func)}() commits at its end cannot be told",
                f"--unit {last_name(transaction.opener.func)}, if it does",
            )
        return isinstance(self.parents(statements[0]), ast.For)

    def is_committed_next(self, statements: list[ast.stmt], handle: ast.expr | None) -> bool:
        """Whether a session that comes from elsewhere commits right after them; that of `Trip.query` is `….session`."""
        above = self.parents(statements[0])
        for body in (getattr(above, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(body, list) and statements[0] in body:
                start = body.index(statements[0])
                after = body[start + len(statements) : start + len(statements) + 1]
                return body[start : start + len(statements)] == statements and _commits(after, handle)
        return False

    def _has_last(self, body: list[ast.stmt], statements: list[ast.stmt], name: str) -> bool:
        """Whether these are its last ones, or all that a loop at its end does."""
        ends = self._ends(body, name)
        if ends and isinstance(ends[-1], ast.For) and not ends[-1].orelse:
            return ends[-1].body == statements
        return ends[-len(statements) :] == statements

    def _all(self) -> Iterator[OpenedTransaction]:
        for node in ast.walk(self.function):
            if isinstance(node, ast.With):
                for item in node.items:
                    if isinstance(item.context_expr, ast.Call) and isinstance(item.optional_vars, ast.Name):
                        yield OpenedTransaction(node, item.context_expr, item.optional_vars.id)

    def _commits(self, transaction: OpenedTransaction) -> bool:
        callees = {last_name(transaction.opener.func)}
        for item in transaction.statement.items:
            match item.context_expr:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if name == transaction.name:
                    callees.add(method)  # with Session(engine) as session, session.begin():
        return "begin" in callees or bool(callees & set(self.units))

    def _tails(self, body: list[ast.stmt], name: str) -> Iterator[list[ast.stmt]]:
        """The statements after which nothing happens: those of the body, and of an `if` at its end."""
        yield body
        end = self._ends(body, name)
        if end and isinstance(end[-1], ast.If):
            yield from self._tails(end[-1].body, name)
            yield from self._tails(end[-1].orelse, name)

    def _ends(self, body: list[ast.stmt], name: str) -> list[ast.stmt]:
        """A body without what follows its last statement that does something."""
        end = len(body)
        while end and (self._is_harmless(body[end - 1], name) or _is_plain_return(body[end - 1])):
            end -= 1
        return body[:end]

    def _is_committed(self, body: list[ast.stmt], name: str) -> bool:
        """Whether it ends with a commit."""
        rest = list(takewhile(lambda each: not isinstance(each, ast.Return), body[len(self._ends(body, name)) :]))
        return any(isinstance(each, ast.Expr) and ".commit(" in ast.unparse(each) for each in rest)

    def _is_harmless(self, statement: ast.stmt, name: str) -> bool:
        call = statement.value if isinstance(statement, ast.Expr) else None
        return (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in _HARMLESS
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id == name
        )

    def _with_of(self, node: ast.AST | None) -> ast.AST | None:
        above = self.parents(node) if node is not None else None
        return self.parents(above) if isinstance(above, ast.withitem) else None

    def _is_inside(self, node: ast.AST, known: Collection[ast.AST]) -> bool:
        above: ast.AST | None = node
        while above is not None and above is not self.function:
            if above in known:
                return True
            above = self.parents(above)
        return False


def _commits(after: list[ast.stmt], handle: ast.expr | None) -> bool:
    """`session.commit()`"""
    match after:
        case [ast.Expr(value=ast.Call(func=ast.Attribute(value=session, attr="commit")))]:
            return last_name(session) == "session" if handle is None else ast.dump(session) == ast.dump(handle)
    return False


def _is_plain_return(statement: ast.stmt) -> bool:
    """`return`, `return True`, `return found`: it cannot fail."""
    return isinstance(statement, ast.Return) and isinstance(statement.value, ast.Constant | ast.Name | None)
