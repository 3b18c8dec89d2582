"""Bounds and checkpoints of a backfill's parts: ranges of row keys, or lists of them. As documents and as chunks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import CellKey
from schemaless_core.control.jobs.records import StoredFinding
from schemaless_core.errors import InvalidRequest
from tripstore.handover.ports import Chunk, Past, Selection

#: Of one part; a part is one document of the control database.
KEYS_PER_PART = 2_000
#: Of one job: its parts are made in one transaction.
KEYS_MAX = 1_000_000


class Question(NamedTuple):
    """An open finding of an earlier job, which copying its row once more may answer."""

    finding: int
    #: Of a conflict: the version that stands in Schemaless otherwise. A later one that is copied says nothing of it.
    cell: CellKey | None = None

    @classmethod
    def of(cls, found: StoredFinding) -> Question:
        row_key, name, version = found.row_key, found.column_name, found.ref_key
        if found.kind != "conflict" or row_key is None or name is None or version is None:
            return cls(found.id)
        return cls(found.id, CellKey(row_key, name, version))


class NextPortion(NamedTuple):
    """Where a part goes on after a chunk, and whether that was its last one."""

    checkpoint: Json
    is_end: bool


class CountedRows(NamedTuple):
    """Of a chunk: rows that count for the job, and rows that were read."""

    rows: int
    looked_at: int


class CopyPortion(Protocol):
    """What is left of a part."""

    @property
    def questions(self) -> Mapping[UUID, Sequence[Question]]:
        """Findings of earlier jobs, by row key."""
        ...

    @property
    def may_repeat(self) -> bool:
        """Whether it reads rows once more that other parts of the job have read, with what is wrong with them."""
        ...

    def chunk(self, rows: int, selection: Selection) -> Chunk:
        """The next so many rows."""
        ...

    def next(self, chunk: Chunk, past: Past) -> NextPortion:
        """When a chunk was read, perhaps less than was asked for, and written."""
        ...

    def counted(self, past: Past) -> CountedRows: ...

    def solved(self, chunk: Chunk, past: Past, told: Collection[CellKey]) -> tuple[int, ...]:
        """Earlier findings that a chunk answers; `told`: the cells that it has."""
        ...


class PartPortion(NamedTuple):
    """A part as its bounds say, from its checkpoint on."""

    after: UUID | None = None
    upto: UUID | None = None
    keys: tuple[UUID, ...] | None = None
    #: Of a list: how many are through.
    passed: int = 0
    #: Findings of earlier jobs, by row key.
    questions: Mapping[UUID, Sequence[Question]] = {}

    @classmethod
    def of(cls, bounds: Json, checkpoint: Json) -> PartPortion:
        """What is left of a part."""
        assert isinstance(bounds, dict)
        saved = checkpoint if isinstance(checkpoint, dict) else {}
        listed = cast("list[str] | None", bounds.get("keys"))
        if listed is not None:
            keys = tuple(map(UUID, listed))
            return cls(keys=keys, passed=cast(int, saved.get("passed", 0)), questions=_questions(bounds))
        return cls(key_of(saved.get("after") or bounds.get("after")), key_of(bounds.get("upto")))

    @property
    def may_repeat(self) -> bool:
        return False

    def chunk(self, rows: int, selection: Selection) -> Chunk:
        """The next so many rows."""
        if self.keys is None:
            return Chunk(self.after, self.upto, rows, selection)
        some = self.keys[self.passed : self.passed + rows]
        return Chunk(None, None, len(some), selection, some)

    def solved(self, chunk: Chunk, past: Past, told: Collection[CellKey]) -> tuple[int, ...]:
        """The findings about these row keys; of conflicts those whose cells were told of: equal, or found again."""
        questions = (each for key in _through(chunk, past) for each in self.questions.get(key, ()))
        return tuple(each.finding for each in questions if each.cell is None or each.cell in told)

    def next(self, chunk: Chunk, past: Past) -> NextPortion:
        if self.keys is not None:
            passed = self.passed + len(_through(chunk, past))
            return NextPortion({"passed": passed}, passed >= len(self.keys))
        return NextPortion({"after": text_of(past.after)}, past.after is None)

    def counted(self, past: Past) -> CountedRows:
        return CountedRows(past.rows, past.rows)


def ranges(cuts: Sequence[UUID]) -> list[Json]:
    """All row keys, cut at these: each range ends with its cut."""
    ends: list[UUID | None] = [*sorted(set(cuts)), None]
    starts: list[UUID | None] = [None, *ends[:-1]]
    return [_range(after, upto) for after, upto in zip(starts, ends, strict=True)]


def lists(keys: Iterable[UUID], questions: Mapping[UUID, Sequence[Question]] | None = None) -> list[Json]:
    """These row keys, each once, in order."""
    known = questions or {}
    ordered = sorted(set(keys))
    check_number(len(ordered))
    parts: list[Json] = []
    for first in range(0, len(ordered), KEYS_PER_PART):
        some = ordered[first : first + KEYS_PER_PART]
        parts.append(
            {
                "keys": [str(key) for key in some],
                "findings": {str(key): list(map(_written, known[key])) for key in some if key in known},
            }
        )
    return parts


def check_number(keys: int) -> None:
    """Raise when these are too many for one job; a caller that reads them from a file need not read on."""
    if keys > KEYS_MAX:
        hint = "Give them in several jobs, or copy ranges: `tripstore backfill start`, with --where if need be."
        raise InvalidRequest(f"A job copies no more than {KEYS_MAX:,} listed row keys.", hint=hint)


def text_of(key: UUID | None) -> str | None:
    """As it stands in bounds and checkpoints."""
    return None if key is None else str(key)


def key_of(text: object) -> UUID | None:
    """The row key that a text of bounds or checkpoints names."""
    return UUID(text) if isinstance(text, str) else None


def _through(chunk: Chunk, past: Past) -> tuple[UUID, ...]:
    """The listed keys that a chunk has passed: it may have been cut short after a row key."""
    keys = chunk.keys or ()
    return keys if past.after is None else keys[: bisect_right(keys, past.after)]


def _written(question: Question) -> Json:
    """As it stands in the bounds, under its row key."""
    return [question.finding, *(question.cell[1:] if question.cell else ())]


def _questions(bounds: Mapping[str, Json]) -> dict[UUID, list[Question]]:
    found = cast("Mapping[str, list[list[Any]]]", bounds.get("findings") or {})
    rows = ((UUID(key), written) for key, written in found.items())
    return {key: [Question(n, CellKey(key, *cell) if cell else None) for n, *cell in written] for key, written in rows}


def _range(after: UUID | None, upto: UUID | None) -> Json:
    return {"after": text_of(after), "upto": text_of(upto)}
