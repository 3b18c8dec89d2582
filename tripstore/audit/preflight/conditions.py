"""What a condition says of single columns: which it holds to one value, which an assignment leaves as they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tripstore.audit.preflight.grammar import TreeNode

_VALUES = ("A_Const", "ParamRef")
_EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class Condition:
    """A column against values: `=`, `<`, `in`, `between` … ; no operator: something that only a database can say."""

    column: str
    operator: str | None


def conjuncts(node: TreeNode | None) -> Iterator[TreeNode]:
    """The parts of a condition that all must hold."""
    if node is None:
        return
    if node.kind == "BoolExpr" and node.text("boolop") == "AND_EXPR":
        for each in node.every("args"):
            yield from conjuncts(each)
    else:
        yield node


def columns_in(node: TreeNode) -> list[str]:
    """The names of all columns in an expression, without those of their tables."""
    found = [each.strings("fields") for each in node.walk() if each.kind == "ColumnRef"]
    return [names[-1] for names in found if names]


def condition_of(node: TreeNode) -> Condition | None:
    """What a part says of one column; None when it is of none, of several, or more than a comparison."""
    left, right = node.find("lexpr"), node.find("rexpr")
    if node.kind != "A_Expr" or left is None:
        return None
    operator = "".join(node.strings("name"))
    match node.text("kind"):
        case "AEXPR_OP" if right is not None:
            if _is_value(left):
                left, right = right, left
                operator = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(operator, operator)
            values = [right]
        case "AEXPR_IN" if operator == "=":
            operator, values = "in", node.every("rexpr") or (right.every("items") if right is not None else [])
        case "AEXPR_OP_ANY" if operator == "=" and right is not None:
            operator, values = "in", [right]
        case "AEXPR_BETWEEN" if right is not None:
            operator, values = "between", right.every("items")
        case _:
            return None
    name = column_of(left)
    if name is None or not all(map(_is_value, values)):
        return None
    return Condition(name, {"<>": "!="}.get(operator, operator))


def column_of(node: TreeNode) -> str | None:
    """The column that an expression is, and nothing else."""
    if node.kind == "TypeCast":
        inner = node.find("arg")
        return None if inner is None else column_of(inner)
    if node.kind != "ColumnRef":
        return None
    names = node.strings("fields")
    return names[-1] if names and len(names) == len(node.every("fields")) else None


def pins(condition: TreeNode | None, alias: str, *, is_alone: bool) -> frozenset[str]:
    """The columns of a relation that the condition holds to one value each."""
    found = set()
    for part in conjuncts(condition):
        said = condition_of(part)
        if said is not None and said.operator == "=" and (is_alone or _is_of(part, alias)):
            found.add(said.column)
    return frozenset(found)


def unchanged(
    assigned: Iterable[TreeNode],
    condition: TreeNode | None,
    *,
    alias: str | None = None,
    equal_to_excluded: Collection[str] = (),
) -> frozenset[str]:
    """The assigned columns that get the value they have: `id = id`, or what the condition says that it is."""
    equal = [_sides(part) for part in conjuncts(condition)]
    kept = set()
    for target in assigned:
        name, value = target.text("name"), target.find("val")
        if value is None or target.has("indirection"):
            continue
        own = _reference(value)
        is_itself = own is not None and own[-1] == name and (len(own) == 1 or own[-2] == alias)
        is_excluded = own is not None and own == [_EXCLUDED, name] and name in equal_to_excluded
        if is_itself or is_excluded or any(_says(sides, name, alias, value) for sides in equal if sides):
            kept.add(name)
    return frozenset(kept)


def _says(sides: tuple[TreeNode, TreeNode], name: str, alias: str | None, value: TreeNode) -> bool:
    for column, other in (sides, sides[::-1]):
        own = _reference(column)
        if own is None or own[-1] != name or (len(own) > 1 and own[-2] != alias):
            continue
        if other.shape == value.shape:
            return True
    return False


def _sides(part: TreeNode) -> tuple[TreeNode, TreeNode] | None:
    left, right = part.find("lexpr"), part.find("rexpr")
    is_equal = part.kind == "A_Expr" and part.text("kind") == "AEXPR_OP" and part.strings("name") == ["="]
    return (left, right) if is_equal and left is not None and right is not None else None


def _reference(node: TreeNode) -> list[str] | None:
    return node.strings("fields") if node.kind == "ColumnRef" and column_of(node) is not None else None


def _is_of(part: TreeNode, alias: str) -> bool:
    """Whether the one column of a part is said to be this relation's."""
    return any(
        names[-2:-1] == [alias]
        for each in part.walk()
        if each.kind == "ColumnRef" and (names := each.strings("fields"))
    )


def _is_value(node: TreeNode) -> bool:
    """A constant or a parameter, cast perhaps, or a list of them; the current time is one too."""
    if node.kind == "TypeCast":
        inner = node.find("arg")
        return inner is not None and _is_value(inner)
    if node.kind == "A_ArrayExpr":
        return all(map(_is_value, node.every("elements")))
    if node.kind == "List":
        return all(map(_is_value, node.every("items")))
    return node.kind in _VALUES or node.kind == "SQLValueFunction"
