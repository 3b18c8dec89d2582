"""Compares two answers to one read, entry by entry. Pure: knows no store, no clock, no thread.

What belongs to a store and not to the data, added ids and times, is not compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from schemaless_core.cell.answers import Bucket, IndexEntry, IndexPage, Row, RowPage
from schemaless_core.cell.canonical import Json, canonical_bytes
from schemaless_core.cell.cell import Cell
from schemaless_core.errors import InvalidCell
from tripstore.engines.validation.reads import Failed

#: Differences that are told of one pair of answers.
DIFFERENCES_MAX = 20
#: The path of a whole body.
WHOLE = "$"
#: The path of bytes that are not canonical, or no JSON at all: read as a body they may seem the same.
BYTES = "bytes"
_CELLS = "cells."
#: Operations that answer a list of questions, each in its place.
_BY_PLACE = frozenset({"get_cells", "get_cells_latest"})
#: Operations that answer what belongs to what, and what each asks for.
_PAIRS = {"resolve_ids": "legacy id", "legacy_ids": "row"}


class DifferenceClass(StrEnum):
    """How the other store's answer differs from the authority's."""

    MISSING = "missing"  #: It lacks an entry.
    EXTRA = "extra"  #: It has one more.
    FIELD = "field"  #: An entry is another; the path says where. `bytes`: they are no JSON.
    ORDER = "order"  #: The same entries in another order.
    ERROR = "error"  #: It raised.
    TIMEOUT = "timeout"  #: It did not answer in time.


@dataclass(frozen=True, slots=True)
class AnswerDifference:
    """One difference: of which entry, and where in it."""

    kind: DifferenceClass
    #: The entry, as a person would name it: `BASE@3 of <row key>`.
    entry: str
    path: str = ""


class Observed(ABC):
    """An answer that is no store's, and says itself how another one differs."""

    @abstractmethod
    def differences(self, given: Any) -> Iterator[AnswerDifference]:
        """How the other side's answer, of the same class, differs from this one."""


class _Entry(NamedTuple):
    """One comparable part of an answer."""

    name: str
    #: By path, what is compared; a body stands under its own.
    value: Any


def compare(operation: str, wanted: Any, given: Any) -> list[AnswerDifference]:
    """How `given` differs from `wanted`, the authority's answer; none: they are equal.

    With more than `DIFFERENCES_MAX` of them there may be others.
    """
    if _is_torn(wanted) or _is_torn(given):
        return [_torn(given if _is_torn(wanted) else wanted)]
    if isinstance(given, Failed):
        kind = DifferenceClass.TIMEOUT if given.is_late else DifferenceClass.ERROR
        return [AnswerDifference(kind, given.error, given.message)]
    if isinstance(wanted, Cell) and _is_same(wanted, given):
        return []  # which most are
    return list(islice(_differences(operation, wanted, given), DIFFERENCES_MAX + 1))


def first_difference(wanted: Json, held: Json, path: str = "") -> str | None:
    """Where two bodies differ first, as a path of the wanted one; None: nowhere."""
    if isinstance(wanted, dict) and isinstance(held, dict):
        for name in sorted(wanted.keys() | held.keys()):
            below = f"{path}.{name}" if path else name
            if name not in wanted or name not in held:
                return below
            found = first_difference(wanted[name], held[name], below)
            if found is not None:
                return found
        return None
    if isinstance(wanted, list) and isinstance(held, list) and len(wanted) == len(held):
        for position, (one, other) in enumerate(zip(wanted, held, strict=True)):
            found = first_difference(one, other, f"{path}[{position}]")
            if found is not None:
                return found
        return None
    return None if _is_alike(wanted, held) else path or WHOLE


def _is_alike(wanted: Json, held: Json) -> bool:
    try:
        return canonical_bytes(wanted) == canonical_bytes(held)
    except InvalidCell:  # a store holds what no put would take
        return type(wanted) is type(held) and wanted == held


def _is_torn(answer: Any) -> bool:
    return isinstance(answer, Failed) and answer.is_torn


def _torn(other: Any) -> AnswerDifference:
    """Of one cell the answer that can be read says which it is; which of several was damaged is unknown."""
    return AnswerDifference(
        DifferenceClass.FIELD, _cell(other).name if isinstance(other, Cell) else "the answer", BYTES
    )


def _differences(operation: str, wanted: Any, given: Any) -> Iterator[AnswerDifference]:
    if isinstance(wanted, Observed):
        yield from wanted.differences(given)
    elif isinstance(wanted, IndexPage) and isinstance(given, IndexPage):
        yield from _in_order(_entries(wanted.entries), _entries(given.entries))
        if wanted.cursor != given.cursor:
            yield AnswerDifference(DifferenceClass.FIELD, "the page", "cursor")
    elif isinstance(wanted, RowPage) and isinstance(given, RowPage):
        yield from _in_order(_entries(wanted.rows), _entries(given.rows))
        if wanted.after != given.after:
            yield AnswerDifference(DifferenceClass.FIELD, "the page", "after")
    elif operation in _PAIRS:
        yield from _in_order(*(_pairs(_PAIRS[operation], answer) for answer in (wanted, given)))
    elif isinstance(wanted, Mapping) and isinstance(given, Mapping):
        yield from _in_order(_mapped(wanted), _mapped(given))
    elif operation in _BY_PLACE:
        yield from _by_place(_entries(wanted), _entries(given))
    elif isinstance(wanted, list) and isinstance(given, list):
        yield from _in_order(_entries(wanted), _entries(given))
    else:
        yield from _by_place(_entries([wanted]), _entries([given]))


def _in_order(wanted: Sequence[_Entry | None], given: Sequence[_Entry | None]) -> Iterator[AnswerDifference]:
    """Entries that are told apart by their names: which are missing, which are there too many, which are others."""
    ours, theirs = _by_name(wanted), _by_name(given)
    for name in ours:
        if name not in theirs:
            yield AnswerDifference(DifferenceClass.MISSING, name)
    for name in theirs:
        if name not in ours:
            yield AnswerDifference(DifferenceClass.EXTRA, name)
    both = [name for name in ours if name in theirs]
    for name in both:
        yield from _of_entry(name, ours[name], theirs[name])
    if both != [name for name in theirs if name in ours]:
        yield AnswerDifference(DifferenceClass.ORDER, "the page")


def _by_name(answer: Sequence[_Entry | None]) -> dict[str, Any]:
    """Entries by name; one that is there again has a name of its own, which the other answer has only if it repeats."""
    found: dict[str, Any] = {}
    for entry in answer:
        if entry is not None:
            name, times = entry.name, 1
            while name in found:
                times += 1
                name = f"{entry.name} ({times})"
            found[name] = entry.value
    return found


def _by_place(wanted: Sequence[_Entry | None], given: Sequence[_Entry | None]) -> Iterator[AnswerDifference]:
    """Answers to a list of questions, None where nothing was found."""
    for ours, theirs in zip(wanted, given, strict=True):
        if ours is None and theirs is not None:
            yield AnswerDifference(DifferenceClass.EXTRA, theirs.name)
        elif ours is not None and theirs is None:
            yield AnswerDifference(DifferenceClass.MISSING, ours.name)
        elif ours is not None and theirs is not None:
            if ours.name != theirs.name:
                yield AnswerDifference(DifferenceClass.FIELD, ours.name, "ref_key")
            else:
                yield from _of_entry(ours.name, ours.value, theirs.value)


def _of_entry(name: str, ours: Any, theirs: Any) -> Iterator[AnswerDifference]:
    if isinstance(ours, _Parts) and isinstance(theirs, _Parts):
        for part in sorted(ours.keys() | theirs.keys()):
            if part not in theirs:
                yield AnswerDifference(DifferenceClass.MISSING, name, part)
            elif part not in ours:
                yield AnswerDifference(DifferenceClass.EXTRA, name, part)
            elif (path := first_difference(ours[part], theirs[part])) is not None:
                is_cell = part.startswith(_CELLS)
                yield AnswerDifference(
                    DifferenceClass.FIELD, name, f"{part}.{path}" if is_cell and path != WHOLE else part
                )
    elif (path := first_difference(ours, theirs)) is not None:
        yield AnswerDifference(DifferenceClass.FIELD, name, path)


class _Parts(dict[str, Json]):
    """What an entry is made of that has several bodies."""


def _is_same(wanted: Cell, given: object) -> bool:
    try:
        return wanted == given
    except InvalidCell:  # a store holds what no put would take: where it differs is told below
        return False


def _mapped(answer: Mapping[Any, Any]) -> list[_Entry | None]:
    return _entries(answer[name] for name in sorted(answer))


def _pairs(what: str, answer: Mapping[Any, Any]) -> list[_Entry]:
    """In one order: an answer has none."""
    found = [(asked, answer[asked]) for asked in sorted(answer)]
    return [_Entry(f"{what} {asked}", str(value) if isinstance(value, UUID) else value) for asked, value in found]


def _entries(answer: Iterable[Any]) -> list[_Entry | None]:
    return [None if each is None else _MAKERS[type(each)](each) for each in answer]


def _cell(cell: Cell) -> _Entry:
    return _Entry(f"{cell.column_name}@{cell.ref_key} of {cell.row_key}", cell.body)


def _index_entry(entry: IndexEntry) -> _Entry:
    fields: dict[str, Json] = {
        name: None if value is None else [type(value).__name__, str(value)] for name, value in entry.fields.items()
    }
    return _Entry(f"entry of {entry.row_key}", _Parts({**fields, **_cells(entry.cells or {})}))


def _row(row: Row) -> _Entry:
    return _Entry(f"row {row.row_key}", _Parts(_cells(row.cells)))


def _cells(cells: Mapping[str, Cell]) -> _Parts:
    return _Parts({f"{_CELLS}{name}": [cell.ref_key, cell.body] for name, cell in cells.items()})


def _bucket(bucket: Bucket) -> _Entry:
    return _Entry(f"bucket {bucket.number} of shard {bucket.shard}", [bucket.count, str(bucket.sum)])


_MAKERS: Mapping[type[Any], Callable[[Any], _Entry]] = {
    Cell: _cell,
    IndexEntry: _index_entry,
    Row: _row,
    Bucket: _bucket,
}
