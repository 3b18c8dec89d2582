"""A question, or a change, that a chain of calls puts to one table; and the chain itself. Values only."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tripstore.audit.meaning.values import Entity

#: The operator of `Trip.fare + x`: SQLAlchemy writes + or ||, as the type of the column has it.
ANY_SUM = "+ or ||"


@dataclass(frozen=True, slots=True)
class AskedCondition:
    """A column, an operator of an index, and the expressions of its values."""

    attribute: str
    operator: str
    values: tuple[ast.expr, ...]
    is_truth: bool = False  #: `Trip.is_open`, `Trip.is_open.is_(False)`: of columns of truth values alone.


@dataclass(frozen=True, slots=True)
class ChangedValue:
    """What a column gets: a value, or with an operator what that makes of the value that the column has."""

    name: str  #: Of the attribute, or of the column where SQL names it.
    text: str
    operator: str = ""


@dataclass(frozen=True, slots=True)
class AskedChange:
    """The same while its value is still an expression."""

    name: str
    value: ast.expr
    operator: str = ""


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question, or a change, put to one table."""

    entity: Entity
    handle: ast.expr | None  #: The session or connection; None: that of `Trip.query`.
    columns: tuple[str, ...] = ()  #: None named: whole rows, as objects.
    end: str = ""  #: What brings the rows: get, first, one_or_none, all, scalar, count; nothing where a loop does.
    or_raise: str = ""  #: The call that raises where there is no row, as SQLAlchemy's `one` or Flask's `first_or_404`.
    conditions: tuple[AskedCondition, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()  #: With whether it descends.
    limit: ast.expr | None = None
    keys: tuple[ast.expr, ...] = ()  #: Of `session.get`.
    changes: tuple[AskedChange, ...] = ()
    is_update: bool = False
    is_delete: bool = False
    kept: ast.Assign | None = None  #: `statement = select(Trip)`, executed by its name.


def short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:59]}…"


def links(node: ast.expr) -> tuple[ast.expr | None, list[tuple[str, ast.Call]]]:
    """What a chain begins with, and its calls in order. `select(Trip)` begins with nothing."""
    chain: list[tuple[str, ast.Call]] = []
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            chain.append((node.func.id, node))
            return None, chain[::-1]
        if not isinstance(node.func, ast.Attribute):
            return None, []
        chain.append((node.func.attr, node))
        node = node.func.value
    return node, chain[::-1]
