"""`PurgedAnswers`: two answers held together without what was purged from one store, and the other one may have yet.

A deleted row that is purged from Schemaless has a tombstone in Postgres, and nothing in Schemaless: neither is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from schemaless_core.cell.answers import IndexPage, RowPage
from schemaless_core.cell.cell import REF_KEY_MAX, Cell, CellKey
from schemaless_core.errors import SchemalessError
from tripstore.engines.validation.compare import compare
from tripstore.engines.validation.reads import Failed, Read

#: Those of the keys that were purged, each with the ref key up to which its column was.
FindPurged = Callable[[Sequence[CellKey]], Mapping[CellKey, int]]
#: Of a row that was purged as a whole every key is, of whatever column.
_ANY_COLUMN = "-"


class PurgedAnswers:
    """Knows what one of the two stores has purged."""

    def __init__(self, find: FindPurged) -> None:
        self._find = find

    def explain(self, read: Read, wanted: Any, given: Any) -> bool:
        """Whether two answers differ by nothing but what was purged. Of pages: as far as both go."""
        if isinstance(wanted, Failed) or isinstance(given, Failed):
            return False
        keys = list(dict.fromkeys([*_keys(wanted), *_keys(given)]))
        try:
            purged = self._find(keys).keys() if keys else ()
        except SchemalessError:
            return False
        if not purged:
            return False
        ours, theirs = (_without(purged, answer) for answer in (wanted, given))
        return not compare(read.operation, *_as_far_as_both(ours, theirs))


def _keys(answer: Any) -> Iterator[CellKey]:
    """Of an answer's cells, and of rows as a whole where it names some."""
    match answer:
        case Cell():
            yield answer.key
        case IndexPage():
            yield from (_of_row(entry.row_key) for entry in answer.entries)
        case RowPage():
            yield from (cell.key for row in answer.rows for cell in row.cells.values())
        case Mapping():
            yield from (key for pair in answer.items() for key in _of_pair(*pair))
        case list():
            yield from (each.key for each in answer if isinstance(each, Cell))


def _without(purged: Collection[CellKey], answer: Any) -> Any:
    match answer:
        case Cell():
            return None if answer.key in purged else answer
        case IndexPage():
            return replace(answer, entries=[each for each in answer.entries if _of_row(each.row_key) not in purged])
        case RowPage():
            rows = [replace(row, cells=_without(purged, row.cells)) for row in answer.rows]
            return replace(answer, rows=[row for row in rows if row.cells])
        case Mapping():
            return {
                name: value for name, value in answer.items() if not any(key in purged for key in _of_pair(name, value))
            }
        case list():
            return [None if isinstance(each, Cell) and each.key in purged else each for each in answer]
    return answer


def _of_pair(name: Any, value: Any) -> Iterator[CellKey]:
    """Of an answer by name: a cell, or a legacy id and its row."""
    if isinstance(value, Cell):
        yield value.key
    else:
        yield from (_of_row(each) for each in (name, value) if isinstance(each, UUID))


def _of_row(row_key: UUID) -> CellKey:
    return CellKey(row_key, _ANY_COLUMN, REF_KEY_MAX)


def _as_far_as_both(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """A page that had purged entries ends elsewhere than one that had none."""
    if isinstance(ours, IndexPage) and isinstance(theirs, IndexPage):
        both = min(len(ours.entries), len(theirs.entries))
        one, other = (replace(page, entries=page.entries[:both], cursor=None) for page in (ours, theirs))
        return one, other
    if isinstance(ours, RowPage) and isinstance(theirs, RowPage):
        both = min(len(ours.rows), len(theirs.rows))
        first, second = (replace(page, rows=page.rows[:both], after=None) for page in (ours, theirs))
        return first, second
    return ours, theirs
