"""`EndPortion`: the last parts of a walk by blocks, when all blocks were read: what the walk may have missed.

One part looks, and copies what is ours and what moved. Some parts, which workers share, read the leaves that were not
walked, by row keys, each a range of them. The last one looks once more whether Postgres is the one before, and drops
the trigger. Stages come one after the other, and each is where a worker that died is gone on from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, cast
from uuid import UUID

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import CellKey
from tripstore.backends.postgres.capture.timeline import ServerIdentity
from tripstore.handover.ports import Chunk, Past, Selection, WalkedLeaf
from tripstore.migration.backfill.portions import CountedRows, NextPortion, Question, key_of, text_of

#: Of bounds: which of the last parts it is.
END = "end"


class EndStage(StrEnum):
    """What the end of a walk does next."""

    LOOK = "look"  #: Which leaves were not walked, since they were written anew or moves in them went unseen.
    OURS = "ours"  #: Tombstones and cells of our own. A row that went since has its legacy id among them.
    MOVED = "moved"  #: Rows that moved from block to block, by their keys.
    AGAIN = "again"  #: The leaves that were not walked, by row keys.
    LAST = "last"  #: Whether all of this was read of one Postgres; then moves are noted no more.
    DONE = "done"  #: Nothing.


#: By the stage that a part begins with: the one that is no part of it any more.
UNTIL = {EndStage.LOOK: EndStage.AGAIN, EndStage.AGAIN: EndStage.LAST, EndStage.LAST: EndStage.DONE}


class EndPortion(NamedTuple):
    """From a stage on, up to another."""

    stage: EndStage = EndStage.LOOK
    until: EndStage = EndStage.AGAIN
    #: The leaves that were not walked; how many of them are through; and whether they are all there are.
    again: tuple[WalkedLeaf, ...] = ()
    through: int = 0
    is_all: bool = False
    #: Of row keys: those up to this one are through.
    after: UUID | None = None
    #: Of leaves that are read again: the row keys of this part.
    above: UUID | None = None
    upto: UUID | None = None
    #: Of moves: those up to this number are through; and where the rows end of which `after` is one, 0: anywhere.
    note: int = 0
    upto_note: int = 0
    #: The rows that moved. They are looked for when they are wanted.
    keys: tuple[UUID, ...] = ()
    #: The Postgres that is read; None: that of which the blocks were.
    server: ServerIdentity | None = None
    #: Whether rows that have no row key are still to be told of.
    tells_keyless: bool = True
    questions: Mapping[UUID, Sequence[Question]] = {}

    @classmethod
    def of(cls, bounds: Mapping[str, Json], checkpoint: Json, ended: Json = None) -> EndPortion:
        """What is left of a part. `ended`: the checkpoint of the part that looked, for those that come after it."""
        its = cast("Mapping[str, Any]", bounds[END])
        first = EndStage(its["stage"])
        found = cls(first, UNTIL[first], above=key_of(its.get("after")), upto=key_of(its.get("upto")))
        if first is not EndStage.LOOK:
            found = found._from(cast("Mapping[str, Any]", ended))._replace(stage=first, tells_keyless=False)
        return found if checkpoint is None else found._from(cast("Mapping[str, Any]", checkpoint))

    @property
    def document(self) -> Json:
        """Parts that read the same leaves again do not say which: the part that looked does."""
        is_shared = self.until is EndStage.LAST
        return {
            "stage": self.stage.value,
            "again": None if is_shared else cast(Json, [list(leaf) for leaf in self.again]),
            "through": self.through,
            "is_all": self.is_all,
            "after": text_of(self.after),
            "notes": [self.note, self.upto_note],
            "server": None if self.server is None else list(self.server),
            "tells_keyless": self.tells_keyless,
        }

    @property
    def is_through(self) -> bool:
        """Whether the part is done."""
        return self.stage is self.until

    @property
    def may_repeat(self) -> bool:
        """What was wrong with a row in its block is wrong with it now."""
        return True

    def at(self, stage: EndStage) -> EndPortion:
        """The next stage, from its beginning."""
        return self._replace(stage=stage, after=None)

    def unwalked(self, leaves: Sequence[WalkedLeaf], *, is_all: bool = False) -> EndPortion:
        """With the leaves that are to be read again, from the first on."""
        return self._replace(again=tuple(leaves), through=0, is_all=is_all)

    def anew(self, server: ServerIdentity, leaves: Sequence[WalkedLeaf]) -> EndPortion:
        """All is read again, of another Postgres."""
        return self.unwalked(leaves, is_all=True)._replace(server=server).at(EndStage.OURS)

    def chunk(self, rows: int, selection: Selection) -> Chunk:
        match self.stage:
            case EndStage.OURS:
                return Chunk(self.after, None, rows, selection, only_ours=True, tells_keyless=self.tells_keyless)
            case EndStage.MOVED:
                return Chunk(self.after, None, rows, selection, self.keys)
            case _:
                return Chunk(self.after or self.above, self.upto, rows, selection, leaf=self.again[self.through])

    def next(self, chunk: Chunk, past: Past) -> NextPortion:
        after = self._replace(tells_keyless=self.tells_keyless and self.stage is not EndStage.OURS)
        if past.after is not None:
            after = after._replace(after=past.after)
        elif self.stage is EndStage.OURS:
            # What moved is among the rows of all leaves.
            after = after.at(EndStage.AGAIN if self.is_all else EndStage.MOVED)
        elif self.stage is EndStage.MOVED:
            after = after._replace(after=None, note=self.upto_note, upto_note=0)
        else:
            after = after._replace(after=None, through=self.through + 1)
        return NextPortion(after.document, is_end=False)

    def counted(self, past: Past) -> CountedRows:
        """A row counts wherever it is read: one that moved may count in both places."""
        return CountedRows(past.rows, max(past.rows, past.looked_at))

    def solved(self, chunk: Chunk, past: Past, told: Collection[CellKey]) -> tuple[int, ...]:
        return ()

    def _from(self, document: Mapping[str, Any]) -> EndPortion:
        note, upto_note = document["notes"]
        again, server = document["again"], document["server"]
        return self._replace(
            stage=EndStage(document["stage"]),
            again=self.again if again is None else tuple(WalkedLeaf(*leaf) for leaf in again),
            through=document["through"],
            is_all=document["is_all"],
            after=key_of(document["after"]),
            note=note,
            upto_note=upto_note,
            server=None if server is None else ServerIdentity(*server),
            tells_keyless=document["tells_keyless"],
        )


def end_parts(ranges: Sequence[Json]) -> list[Json]:
    """The parts behind all blocks: the one that looks, those that share row keys, and the last."""
    again = [{"stage": EndStage.AGAIN.value, **cast("dict[str, Json]", each)} for each in ranges]
    first, last = {"stage": EndStage.LOOK.value}, {"stage": EndStage.LAST.value}
    return [{END: cast(Json, each)} for each in (first, *again, last)]
