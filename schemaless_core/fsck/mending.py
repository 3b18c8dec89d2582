"""`FsckMending`: makes right what fsck found in the logs of shards, as far as any server knows what is right.

Other faults have commands of their own. Each finding is looked at anew, and what is right by now is left alone; a
mend is one transaction that changes only what was seen. So it may be repeated, killed anywhere, and run beside callers.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

from schemaless_core import metrics
from schemaless_core.cell.cell import CellKey
from schemaless_core.cell.sharding import shard_of_bytes
from schemaless_core.cell.standing import Kind, Standing
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.control.audit import who_am_i
from schemaless_core.control.jobs.records import StoredFinding
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.mending import BodyChange, Mended, MendNote
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.fsck.faults import Fault
from schemaless_core.mends import Mends, RawCell
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.routing import Router
from schemaless_core.servers.shard_primaries import ShardPrimaries

logger = logging.getLogger(__name__)

CALL_SECONDS = 10.0


class MendOutcome(StrEnum):
    """What became of a finding."""

    MENDED = "mended"  #: It is right now.
    GIVEN_UP = "given_up"  #: What stood there is known to no server; readers pass it from now on.
    LEFT = "left"  #: It is as it was: the reason says what an operator can do.
    GONE = "gone"  #: It was right, or not there, when it was looked at again.


Became = tuple[MendOutcome, str]

_DONE: Became = (MendOutcome.MENDED, "")
_GONE: Became = (MendOutcome.GONE, "it is not like this any more")


class FsckMending:
    """Of the findings of one datastore."""

    def __init__(
        self,
        router: Router,
        clusters: Mapping[str, Cluster],
        shards: int,
        mends_as: Callable[[Standing], Mends],
        *,
        is_beside_postgres: bool,
        may_give_up: bool,
    ) -> None:
        """`is_beside_postgres`: what was lost or torn here may stand there, and `tripstore repair` knows.

        `may_give_up`: let readers pass holes, and delete cells whose bytes are no JSON, where no server has them right.
        """
        self._router = router
        self._primaries = ShardPrimaries(router, CALL_SECONDS)
        self._clusters = clusters
        self._shards = shards
        self._mends_as = mends_as
        self._may_give_up = may_give_up
        self._ways = {
            Fault.ABOVE_HEAD: self._raise_counter,
            Fault.TIME: self._raise_time,
            Fault.ELSEWHERE: self._bring_home,
        }
        if not is_beside_postgres:
            self._ways |= {Fault.BYTES: self._rewrite, Fault.HOLE: self._fill}

    @property
    def kinds(self) -> tuple[str, ...]:
        """Those that it can make right, in the order in which it does."""
        return tuple(fault.value for fault in self._ways)

    def mend(self, finding: StoredFinding) -> Became:
        """Make one right."""
        reach("fsck.before_mend")
        shard = int(str(finding.body["shard"]))
        try:
            became = self._ways[Fault(finding.kind)](shard, finding)
        except SchemalessError as error:
            became = MendOutcome.LEFT, error.message
        extra = {"event": "fsck.mended", "fault": finding.kind, "shard": shard, "outcome": became[0].value}
        logger.warning("fsck looked at a finding again", extra=extra)
        return became

    def _raise_counter(self, shard: int, finding: StoredFinding) -> Became:
        """Of all cells above it at once."""
        head = self._primaries.ask(shard, lambda node, end: node.heads([shard], end)[shard].head)
        if int(str(finding.body["added_id"])) <= head:
            return _GONE
        self._primaries.write(shard, lambda node, gate, end: node.mending.raise_counter(gate, head, end))
        return _DONE

    def _raise_time(self, shard: int, finding: StoredFinding) -> Became:
        """Unless the one before it is of a time that has not come: then that one is wrong, and not this."""
        moment = datetime.fromisoformat(str(finding.body["not_before"]))
        cell = self._at(shard, int(str(finding.body["added_id"])))
        if cell is None or not _is_of(cell, finding) or cell.created_at >= moment:
            return _GONE
        if moment > datetime.now(UTC):
            return MendOutcome.LEFT, f"a cell before it is of {moment.isoformat()}: see docs/howto/fsck.md"
        self._primaries.write(shard, lambda node, gate, end: node.mending.raise_time(gate, cell, moment, end))
        return _DONE

    def _bring_home(self, shard: int, finding: StoredFinding) -> Became:
        """Put a stray where its row belongs, as what is true there too; then delete it here."""
        cell = self._at(shard, int(str(finding.body["added_id"])))
        mends = self._mends_as(self._primaries.standing(shard))
        if cell is None or not _is_of(cell, finding) or (home := shard_of_bytes(cell.row_key, self._shards)) == shard:
            return _GONE
        deadline = Deadline(CALL_SECONDS)
        standing = Standing(Kind.COPIER, self._primaries.standing(home).authority_epoch)
        new = NewCell(*cell[1:5])
        answer = self._router.write_many({home: [new]}, standing, deadline, may_exist=True)[home]
        if isinstance(answer, SchemalessError):
            return MendOutcome.LEFT, answer.message
        stored, _epoch = answer
        if not isinstance(stored, range) and not stored[0].is_created:
            found = stored[0].found
            if stored[0].purged is None and (found is None or found.body != cell.body):
                return MendOutcome.LEFT, f"shard {home} has another body under its key: `tripstore cell get` shows it"
        note = MendNote("", who_am_i(), socket.gethostname()[:128])
        changes = [BodyChange(cell, None)]
        (is_done,) = self._primaries.write(shard, lambda node, gate, end: node.mending.change(gate, changes, note, end))
        metrics.cells_mended(Mended.PURGE.value, int(is_done))
        mends.rebuild(UUID(bytes=cell.row_key), {cell.column_name.decode()})
        return _DONE if is_done else _GONE

    def _rewrite(self, shard: int, finding: StoredFinding) -> Became:
        """The bytes that replicas have; if none has any, the same value by its canonical bytes."""
        assert finding.row_key is not None
        assert finding.column_name is not None
        assert finding.ref_key is not None
        key = CellKey(finding.row_key, finding.column_name, finding.ref_key)
        mends = self._mends_as(self._primaries.standing(shard))
        raw = mends.find(key)
        if raw is None or raw.is_canonical:
            return _GONE
        others = self._bodies_of_replicas(shard, key)
        if len(others) > 1:
            return MendOutcome.LEFT, "replicas have different bodies of it"
        body = next(iter(others), raw.canonical)
        if body is not None:
            return _DONE if mends.mend(raw, body) else _GONE
        if not self._may_give_up:
            return MendOutcome.LEFT, "its bytes are no JSON, and no replica has others: --give-up deletes it"
        if behind := self._behind(shard, raw.stored.added_id):
            return MendOutcome.LEFT, behind
        return (MendOutcome.GIVEN_UP, "") if mends.purge(raw) else _GONE

    def _fill(self, shard: int, finding: StoredFinding) -> Became:
        """Put what a replica has of a run of holes behind the head, and close them."""
        first, last = (int(str(finding.body[name])) for name in ("first", "last"))
        mends = self._mends_as(self._primaries.standing(shard))
        behind = self._behind(shard, last) if self._may_give_up else ""
        given_up = left = 0
        for hole in range(first, last + 1):
            cell = next(self._of_replicas(shard, hole), None)
            if cell is not None:
                left += not self._put_beside(mends, cell, hole)
            elif self._may_give_up and not behind:
                given_up += mends.close_hole(shard, hole)
            else:
                left += self._is_hole(shard, hole)
        if left:
            return MendOutcome.LEFT, behind or f"no replica has {left:,} of them: --give-up lets readers pass, for ever"
        return (MendOutcome.GIVEN_UP, "") if given_up else _DONE

    def _put_beside(self, mends: Mends, cell: StoredCell, hole: int) -> bool:
        """Whether the hole is none any more. A cell that was put again meanwhile stands behind it already."""
        (filled,) = mends.put_encoded_beside([(NewCell(*cell[1:5]), hole)])
        if filled is None:  # unless it is no hole any more, its cell was purged
            mends.close_hole(shard_of_bytes(cell.row_key, self._shards), hole)
            return True
        if filled.is_created:
            return True
        if filled.cell.body != cell.body:
            return False
        mends.close_hole(shard_of_bytes(cell.row_key, self._shards), hole)
        return True

    def _behind(self, shard: int, added_id: int) -> str:
        """Why it cannot be said that no replica will have it; "": all have come so far."""
        for node in self._replicas(shard):
            if node.heads([shard], Deadline(CALL_SECONDS))[shard].head < added_id:
                return f"replica {node.name} has not come so far: wait for it, or take it out of the configuration"
        return ""

    def _bodies_of_replicas(self, shard: int, key: CellKey) -> set[bytes]:
        """Those that are canonical."""
        stored = key.row_key.bytes, key.column_name.encode(), key.ref_key
        cells = (node.find(shard, *stored, Deadline(CALL_SECONDS)).cells for node in self._replicas(shard))
        return {cell.body for found in cells for cell in found if RawCell(cell).is_canonical}

    def _of_replicas(self, shard: int, added_id: int) -> Iterator[StoredCell]:
        for node in self._replicas(shard):
            cells = node.log({shard: added_id - 1}, 1, Deadline(CALL_SECONDS))[shard].cells
            yield from (cell for cell in cells if cell.added_id == added_id and self._is_sound(shard, cell))

    def _is_sound(self, shard: int, cell: StoredCell) -> bool:
        return RawCell(cell).is_canonical and shard_of_bytes(cell.row_key, self._shards) == shard

    def _replicas(self, shard: int) -> Iterator[Node]:
        cluster = self._clusters[self._router.cluster_of(shard, Deadline(CALL_SECONDS))]
        yield from (replica.node for replica in cluster.replicas)

    def _is_hole(self, shard: int, added_id: int) -> bool:
        return self._primaries.ask(shard, lambda node, end: node.mending.holes(shard, added_id - 1, 1, end)) == [
            added_id
        ]

    def _at(self, shard: int, added_id: int) -> StoredCell | None:
        cells = self._primaries.ask(shard, lambda node, end: node.log({shard: added_id - 1}, 1, end))[shard].cells
        return cells[0] if cells and cells[0].added_id == added_id else None


def _is_of(cell: StoredCell, finding: StoredFinding) -> bool:
    """Whether it is the cell that was found."""
    key = UUID(bytes=cell.row_key), cell.column_name.decode("utf-8", "backslashreplace"), cell.ref_key
    return key == (finding.row_key, finding.column_name, finding.ref_key)
