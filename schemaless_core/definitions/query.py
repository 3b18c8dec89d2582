"""A checked call of `query_index`: what an entry must meet, the order of entries, and where a page starts.

Pure: knows the definition of an index and no store. Entries are ordered by the value of one field, missing first, and
within it by row key; without a field by row key alone; descending is the exact reverse. A cursor is the last place of
a page, never a count, so entries that come and go meanwhile neither repeat nor hide others.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple, get_args
from uuid import UUID

import msgspec

from schemaless_core.cell.answers import Condition, Operator, Scalar
from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.cell.requests import check_limit, listed_names
from schemaless_core.definitions.documents import meant
from schemaless_core.definitions.index import IndexDefinition, IndexField
from schemaless_core.definitions.values import BadValue, check, json_form, parse, sort_key
from schemaless_core.errors import InvalidRequest, shown

CONDITIONS_MAX = 100
VALUES_MAX = 1000  #: Of one `in`.
CURSOR_CHARACTERS_MAX = 8192

OPERATORS: tuple[str, ...] = get_args(Operator)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_OTHER_WORDS = {"==": "=", "<>": "!=", "is": "=", "eq": "=", "ne": "!="}


class CheckedCondition(NamedTuple):
    """A condition whose values are of the field's type: one, two for `between`, any number for `in`."""

    field: IndexField
    operator: str
    values: tuple[Scalar, ...]

    def holds(self, value: Scalar | None) -> bool:
        """Whether a value of the field meets it. A missing one never does."""
        if value is None:
            return False
        found = sort_key(self.field.kind, value)
        wanted = [sort_key(self.field.kind, each) for each in self.values]
        if self.operator == "in":
            return found in wanted
        if self.operator == "between":
            return wanted[0] <= found <= wanted[1]
        return _COMPARISONS[self.operator](found, wanted[0])


class After(NamedTuple):
    """The place of the last entry of a page: its value of the order field, and its row key."""

    value: Scalar | None
    row_key: UUID


@dataclass(frozen=True, slots=True)
class Query:
    """A checked question to one index."""

    definition: IndexDefinition
    shard_value: Scalar
    conditions: tuple[CheckedCondition, ...]
    fields: tuple[str, ...]
    order_by: IndexField | None
    descending: bool
    limit: int
    after: After | None

    def holds(self, values: Sequence[Scalar | None]) -> bool:
        """Whether an entry with these fields, in the definition's order, is among the answers of all pages."""
        same_shard = CheckedCondition(self.definition.shard_field, "=", (self.shard_value,))
        return same_shard.holds(values[0]) and all(
            condition.holds(values[self.definition.position_of(condition.field.name)]) for condition in self.conditions
        )

    def is_after_cursor(self, values: Sequence[Scalar | None], row_key: UUID) -> bool:
        """Whether an entry stands behind the place where this page starts."""
        if self.after is None:
            return True
        here, start = self.sort_key(values, row_key), self._place(self.after.value, self.after.row_key)
        return here < start if self.descending else here > start

    def sort_key(self, values: Sequence[Scalar | None], row_key: UUID) -> tuple[Any, ...]:
        """What entries are sorted by, with `reverse=descending`."""
        return self._place(self._order_value(values), row_key)

    def selected(self, values: Sequence[Scalar | None]) -> dict[str, Scalar | None]:
        """The fields that the caller asked for."""
        return {name: values[self.definition.position_of(name)] for name in self.fields}

    def cursor_after(self, values: Sequence[Scalar | None], row_key: UUID) -> str:
        """The cursor of the page that starts behind this entry."""
        value = self._order_value(values)
        mark = _Mark(
            index=self.definition.name,
            order=_order_text(self.order_by),
            descending=self.descending,
            filter=_filter_digest(self.definition, self.shard_value, self.conditions),
            value=None if value is None or self.order_by is None else json_form(self.order_by.kind, value),
            row_key=row_key,
        )
        return urlsafe_b64encode(msgspec.json.encode(mark)).rstrip(b"=").decode("ascii")

    def _order_value(self, values: Sequence[Scalar | None]) -> Scalar | None:
        return None if self.order_by is None else values[self.definition.position_of(self.order_by.name)]

    def _place(self, value: Scalar | None, row_key: UUID) -> tuple[Any, ...]:
        return (row_key.bytes,) if self.order_by is None else (sort_key(self.order_by.kind, value), row_key.bytes)


def build_query(
    definition: IndexDefinition,
    shard_value: Scalar,
    where: Sequence[Condition],
    fields: Sequence[str] | None,
    order_by: str | None,
    descending: bool,
    limit: int,
    cursor: str | None,
) -> Query:
    """Check a call in full and return what it asks, or raise `InvalidRequest`."""
    check_limit(limit)
    if type(descending) is not bool:
        raise InvalidRequest(f"descending={shown(descending)} is neither True nor False.", hint="Pass True or False.")
    value = check(definition.shard_field.kind, shard_value, f"The shard value, {definition.shard_field.name}")
    conditions = _conditions(definition, where)
    order = None if order_by is None else definition.field(order_by)
    after = None if cursor is None else _after(cursor, definition, value, conditions, order, descending)
    return Query(definition, value, conditions, _fields(definition, fields), order, descending, limit, after)


def check_cells_asked(columns: object) -> None:
    """`columns` of a query is "*", a list of column names or None."""
    if columns is None or columns == "*":
        return
    if isinstance(columns, str) or not isinstance(columns, Collection):
        hint = f"Pass [{shown(columns)}]" if isinstance(columns, str) else "Pass a list of column names"
        raise InvalidRequest(f"columns={shown(columns)} is no list.", hint=f'{hint}, or "*" for every column.')
    listed_names(columns)


def check_consistency(consistency: str) -> None:
    if consistency not in ("fast", "verified"):
        raise InvalidRequest(
            f"consistency={shown(consistency)} is unknown.",
            hint="Use 'fast', or 'verified' to have entries checked against their cells.",
        )


def unknown_index(index: object, known: Iterable[str]) -> InvalidRequest:
    """What a store answers that has no index of this name."""
    names = sorted(known)
    none = "This store has no indexes; name their definitions under indexes: of its configuration."
    return InvalidRequest(f"There is no index {shown(index)}.", hint=meant(index, names, "Indexes") if names else none)


# ------------------------------------------------------------------------------------------ conditions and fields

_WHERE_HINT = 'Pass a list of (field, operator, value), [("city_uuid", "=", city)].'


def _conditions(definition: IndexDefinition, where: object) -> tuple[CheckedCondition, ...]:
    if not isinstance(where, list | tuple):
        raise InvalidRequest(f"where={shown(where)} is no list of conditions.", hint=_WHERE_HINT)
    if len(where) > CONDITIONS_MAX:
        raise InvalidRequest(
            f"where has {len(where)} conditions, {CONDITIONS_MAX} are allowed.", hint="Use `in` for many values."
        )
    return tuple(_condition(definition, condition) for condition in where)


def _condition(definition: IndexDefinition, condition: object) -> CheckedCondition:
    if not isinstance(condition, list | tuple) or len(condition) != 3:
        raise InvalidRequest(f"{shown(condition)} is no condition.", hint=_WHERE_HINT)
    name, operator, value = condition
    field = definition.field(name)
    if not isinstance(operator, str) or operator not in OPERATORS:
        meant = _OTHER_WORDS.get(operator.strip().lower()) if isinstance(operator, str) else None
        hint = f"Did you mean {meant!r}?" if meant else f"Operators: {' '.join(OPERATORS)}."
        raise InvalidRequest(f"{shown(operator)} is no operator.", hint=hint)
    values = _several(field, operator, value) if operator in ("in", "between") else [value]
    what = f"The value of {field.name} in the condition {operator!r}"
    return CheckedCondition(field, operator, tuple(check(field.kind, each, what) for each in values))


def _several(field: IndexField, operator: str, value: object) -> list[object]:
    """The values of an `in` or a `between`."""
    if operator == "between":
        if not isinstance(value, list | tuple) or len(value) != 2:
            reason = f"{field.name} cannot be between {shown(value)}."
            raise InvalidRequest(reason, hint="Pass the lowest and the highest value, (low, high); both are included.")
        return list(value)
    if not isinstance(value, list | tuple | set | frozenset):
        raise InvalidRequest(f"{field.name} cannot be in {shown(value)}.", hint="Pass a list of values.")
    if len(value) > VALUES_MAX:
        reason = f"`in` has {len(value)} values for {field.name}, {VALUES_MAX} are allowed."
        raise InvalidRequest(reason, hint="Ask in several calls, or use between.")
    return list(value)


def _fields(definition: IndexDefinition, fields: object) -> tuple[str, ...]:
    if fields is None:
        return tuple(field.name for field in definition.fields)
    if isinstance(fields, str) or not isinstance(fields, Collection):
        hint = f"Pass [{shown(fields)}]." if isinstance(fields, str) else "Pass a list of field names, or None for all."
        raise InvalidRequest(f"fields={shown(fields)} is no list.", hint=hint)
    return tuple(dict.fromkeys(definition.field(name).name for name in fields))


# --------------------------------------------------------------------------------------------------- cursors


class _Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a cursor holds. Not the definition: a page goes on when a new version of the index takes over."""

    index: str
    order: str
    descending: bool
    filter: str
    value: None | bool | int | float | str
    row_key: UUID


def _after(
    cursor: str,
    definition: IndexDefinition,
    shard_value: Scalar,
    conditions: tuple[CheckedCondition, ...],
    order: IndexField | None,
    descending: bool,
) -> After:
    """Return the place that a cursor holds, or refuse one of another query: its pages would lack entries silently."""
    mark = _decoded(cursor)
    if mark.index != definition.name:
        raise _another(f"of index {shown(mark.index)}, not of {definition.name!r}")
    if mark.order != _order_text(order):
        raise _another(f"in the order of {shown(mark.order)}, not of {_order_text(order)!r}")
    if mark.descending != descending:
        raise _another("in the other direction")
    if mark.filter != _filter_digest(definition, shard_value, conditions):
        raise _another("with another shard value or other conditions")
    if order is None or mark.value is None:
        return After(None, mark.row_key)
    value = parse(order.kind, mark.value)
    if isinstance(value, BadValue):
        raise _no_cursor(cursor)
    return After(value, mark.row_key)


def _decoded(cursor: object) -> _Mark:
    if not isinstance(cursor, str) or len(cursor) > CURSOR_CHARACTERS_MAX:
        raise _no_cursor(cursor)
    try:
        data = b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=_Mark)
    except (ValueError, msgspec.MsgspecError):
        raise _no_cursor(cursor) from None


def _no_cursor(cursor: object) -> InvalidRequest:
    return InvalidRequest(
        f"{shown(cursor)} is no cursor.", hint="Pass the cursor of the last page as it is, or None to start."
    )


def _another(difference: str) -> InvalidRequest:
    return InvalidRequest(
        f"The cursor is one {difference}.",
        hint="Ask as for the page that gave it (only limit, fields and columns may change), or start without one.",
    )


def _order_text(order: IndexField | None) -> str:
    """The order with its type: a field whose type was changed orders differently."""
    return "row_key" if order is None else f"{order.name} ({order.kind.value})"


def _filter_digest(definition: IndexDefinition, shard_value: Scalar, conditions: tuple[CheckedCondition, ...]) -> str:
    """Equal for the same question, in whatever order its conditions stand."""
    parts = [_part(definition.shard_field, "shard", (shard_value,))]
    parts += sorted(_part(condition.field, condition.operator, condition.values) for condition in conditions)
    return sha256(b"\n".join(parts)).hexdigest()[:16]


def _part(field: IndexField, operator: str, values: tuple[Scalar, ...]) -> bytes:
    texts: list[Json] = [json_form(field.kind, value) for value in values]
    if operator == "in":
        texts.sort(key=canonical_bytes)
    return canonical_bytes([field.name, field.kind.value, operator, texts])
