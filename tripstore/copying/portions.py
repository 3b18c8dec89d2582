"""Bounds and checkpoints of a backfill's parts: ranges of row keys, or lists of them. As documents and as chunks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast
from uuid import UUID

from schemaless_core.canonical import Json
from tripstore.handover.ports import Chunk, Selection

#: Of one part; a part is one document of the control database.
KEYS_PER_PART = 2_000


class Portion(NamedTuple):
    """A part as its bounds say, from its checkpoint on."""

    after: UUID | None = None
    upto: UUID | None = None
    keys: tuple[UUID, ...] | None = None
    #: Of a list: how many are through.
    passed: int = 0
    #: Findings of earlier jobs, by row key.
    findings: Mapping[str, Sequence[int]] = {}

    @classmethod
    def of(cls, bounds: Json, checkpoint: Json) -> Portion:
        """What is left of a part."""
        assert isinstance(bounds, dict)
        saved = checkpoint if isinstance(checkpoint, dict) else {}
        listed = cast("list[str] | None", bounds.get("keys"))
        if listed is not None:
            findings = cast("Mapping[str, Sequence[int]]", bounds.get("findings") or {})
            keys = tuple(map(UUID, listed))
            return cls(keys=keys, passed=cast(int, saved.get("passed", 0)), findings=findings)
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

    def solved(self, through: Sequence[UUID]) -> tuple[int, ...]:
        """The findings about these keys."""
        return tuple(number for key in through for number in self.findings.get(str(key), ()))

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


def lists(keys: Iterable[UUID], findings: Mapping[UUID, Sequence[int]] | None = None) -> list[Json]:
    """These row keys, each once, in order."""
    known = findings or {}
    ordered = sorted(set(keys))
    parts: list[Json] = []
    for first in range(0, len(ordered), KEYS_PER_PART):
        some = ordered[first : first + KEYS_PER_PART]
        parts.append(
            {
                "keys": [str(key) for key in some],
                "findings": {str(key): list(known[key]) for key in some if key in known},
            }
        )
    return parts


def _range(after: UUID | None, upto: UUID | None) -> Json:
    return {"after": _text(after), "upto": _text(upto)}


def _text(key: UUID | None) -> str | None:
    return None if key is None else str(key)


def _key(text: object) -> UUID | None:
    return UUID(text) if isinstance(text, str) else None
