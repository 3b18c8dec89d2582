"""Bounds and checkpoints of a backfill's parts: ranges of row keys, or lists of them. As documents and as chunks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import CellKey
from schemaless_core.control.jobs.records import StoredFinding
from schemaless_core.errors import InvalidRequest
from tripstore.handover.ports import Chunk, Selection

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
        return cls(_key(saved.get("after") or bounds.get("after")), _key(bounds.get("upto")))

    def chunk(self, rows: int, selection: Selection) -> Chunk:
        """The next so many rows."""
        if self.keys is None:
            return Chunk(self.after, self.upto, rows, selection)
        some = self.keys[self.passed : self.passed + rows]
        return Chunk(None, None, len(some), selection, some)

    def through(self, chunk: Chunk, after: UUID | None) -> tuple[UUID, ...]:
        """The listed keys that a chunk has passed: it may have been cut short after a row key."""
        keys = chunk.keys or ()
        return keys if after is None else keys[: bisect_right(keys, after)]

    def solved(self, through: Sequence[UUID], told: Collection[CellKey]) -> tuple[int, ...]:
        """The findings about these row keys; of conflicts those whose cells were told of: equal, or found again."""
        questions = (each for key in through for each in self.questions.get(key, ()))
        return tuple(each.finding for each in questions if each.cell is None or each.cell in told)

    def checkpoint(self, through: Sequence[UUID], after: UUID | None) -> Json:
        """Where the part goes on."""
        if self.keys is not None:
            return {"passed": self.passed + len(through)}
        return {"after": _text(after)}

    def is_last(self, through: Sequence[UUID], after: UUID | None) -> bool:
        if self.keys is not None:
            return self.passed + len(through) >= len(self.keys)
        return after is None


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


def _written(question: Question) -> Json:
    """As it stands in the bounds, under its row key."""
    return [question.finding, *(question.cell[1:] if question.cell else ())]


def _questions(bounds: Mapping[str, Json]) -> dict[UUID, list[Question]]:
    found = cast("Mapping[str, list[list[Any]]]", bounds.get("findings") or {})
    rows = ((UUID(key), written) for key, written in found.items())
    return {key: [Question(n, CellKey(key, *cell) if cell else None) for n, *cell in written] for key, written in rows}


def _range(after: UUID | None, upto: UUID | None) -> Json:
    return {"after": _text(after), "upto": _text(upto)}


def _text(key: UUID | None) -> str | None:
    return None if key is None else str(key)


def _key(text: object) -> UUID | None:
    return UUID(text) if isinstance(text, str) else None
