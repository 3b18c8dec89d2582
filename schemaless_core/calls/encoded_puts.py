"""`EncodedPuts`: many cells at once, as they are stored.

Gates, counter rows and the comparison with what is stored are those of every put. Index entries are left to the
maintainer, which tails the log: a copy of the past must not push fresh cells out of its way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from schemaless_core import metrics
from schemaless_core.calls.lookups import conflict
from schemaless_core.calls.packets import Packet, lanes_of, packets
from schemaless_core.calls.purged import find_purged
from schemaless_core.cell.cell import REF_KEY_MAX, REF_KEY_MIN, check_column_name
from schemaless_core.cell.encoded import EncodedCell, EncodedOutcome, Problem, decode_cell
from schemaless_core.cell.page_bytes import halves
from schemaless_core.cell.put_errors import CellConflict
from schemaless_core.cell.standing import Standing
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Stored
from schemaless_core.errors import InvalidCell, PacketTooLarge, SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.habits import Habits
from schemaless_core.process.collecting import uncollected
from schemaless_core.servers.fanout import FanOut
from schemaless_core.servers.routing import Router

#: Row key, column name, ref key.
Key = tuple[bytes, bytes, int]

ROW_KEY_BYTES = 16
#: Packets of one batch that are under way at the same time.
LANES = 2


@dataclass
class _Tally:
    """What became of cells that have no problem."""

    created: int = 0
    existed: int = 0
    purged: int = 0


class EncodedPuts:
    """The part of a datastore that takes cells in bulk."""

    def __init__(
        self, router: Router, config: DatastoreConfig, habits: Habits, standing: Standing, lanes: FanOut
    ) -> None:
        self._router = router
        self._lanes = lanes
        self._config = config
        self._habits = habits
        self._standing = standing
        #: The last packet met cells that were there before: likely the next one does too. Right or wrong, the answer
        #: is the same; it only decides which of two ways to insert is tried first.
        self._meets_cells = False

    def put(self, cells: Sequence[EncodedCell]) -> EncodedOutcome:
        with uncollected():
            return self._put(cells)

    def _put(self, cells: Sequence[EncodedCell]) -> EncodedOutcome:
        problems: dict[int, SchemalessError] = dict(_invalid(cells, self._config.max_body_bytes))
        created = existed = purged = 0
        waiting: Sequence[int] = range(len(cells))
        if problems:
            waiting = [n for n in waiting if n not in problems]
        while waiting:
            # A key that occurs again is put again afterwards: the store itself says whether the bodies agree.
            firsts, waiting = _split_repeated(cells, waiting)
            for outcome in self._put_lanes(cells, firsts):
                created, existed = created + outcome.created, existed + outcome.existed
                purged += outcome.purged
                problems.update(outcome.problems)
        for status, count in (("created", created), ("exists", existed), ("purged", purged), ("failed", len(problems))):
            if count:
                metrics.cells_written(status, count)
        return EncodedOutcome(created, existed, tuple(Problem(n, problems[n]) for n in sorted(problems)), purged)

    def _put_lanes(self, cells: Sequence[EncodedCell], positions: Sequence[int]) -> Iterable[EncodedOutcome]:
        """Two packets are under way at a time, of different shards: while a server works the next one is written."""
        lanes = lanes_of(cells, positions, self._config.shards, LANES)
        return self._lanes.run({n: partial(self._put_lane, cells, lane) for n, lane in enumerate(lanes)}).values()

    def _put_lane(self, cells: Sequence[EncodedCell], waiting: dict[int, list[int]]) -> EncodedOutcome:
        tally, problems = _Tally(), dict[int, SchemalessError]()
        for packet in packets(cells, waiting):
            self._put_packet(cells, packet, tally, problems)
        found = tuple(Problem(*each) for each in problems.items())
        return EncodedOutcome(tally.created, tally.existed, found, tally.purged)

    def unequal(self, cells: Sequence[EncodedCell]) -> list[int]:
        """Read cells again; the positions of those that are not there exactly as they are here."""
        found: list[int] = []
        (waiting,) = lanes_of(cells, range(len(cells)), self._config.shards, 1) or ({},)
        for part in packets(cells, waiting):
            stored = self._stored({shard: [cells[n][:3] for n in positions] for shard, positions in part.items()})
            found += [n for positions in part.values() for n in positions if stored.get(cells[n][:3]) != cells[n].body]
        return sorted(self._unpurged(cells, found))

    def _unpurged(self, cells: Sequence[EncodedCell], positions: Sequence[int]) -> Iterator[int]:
        """Those of the positions whose cells were not purged."""
        purged = find_purged(self._router, self._config.shards, [cells[n][:3] for n in positions])
        return (n for n in positions if cells[n][:3] not in purged)

    def _stored(self, wanted: Mapping[int, list[Key]]) -> dict[Key, bytes]:
        """The bodies that are stored under these keys."""
        deadline = self._deadline(sum(map(len, wanted.values())))
        sightings = self._router.read_many(
            wanted, lambda node, keys: node.find_many(keys, deadline), self._standing, "primary_only", deadline
        )
        return {cell[1:4]: cell.body for sighting in sightings.values() for cell in sighting.cells}

    def _put_packet(
        self, cells: Sequence[EncodedCell], part: Packet, tally: _Tally, problems: dict[int, SchemalessError]
    ) -> None:
        """Write one packet per server, and count what became of its cells."""
        wanted = {shard: [cells[n] for n in positions] for shard, positions in part.items()}
        deadline = self._deadline(sum(map(len, part.values())))
        answers = self._router.write_many(wanted, self._standing, deadline, may_exist=self._meets_cells)
        reach("encoded.answered")
        meets_cells, created_before = False, tally.created
        for shard, answer in answers.items():
            if isinstance(answer, PacketTooLarge) and len(part[shard]) > 1:
                for half in halves(part[shard]):
                    self._put_packet(cells, {shard: half}, tally, problems)
                continue
            if isinstance(answer, SchemalessError):
                problems.update(dict.fromkeys(part[shard], answer))
                continue
            stored, _epoch = answer
            if isinstance(stored, range):
                tally.created += len(stored)
                continue
            meets_cells = True
            for n, what in zip(part[shard], stored, strict=True):
                if what.is_created:
                    tally.created += 1
                elif what.purged is not None:
                    tally.purged += 1
                elif (conflict := _conflict(cells[n], what)) is None:
                    tally.existed += 1
                else:
                    problems[n] = conflict
        if tally.created > created_before or meets_cells:  # else no shard took anything, and nothing is known
            self._meets_cells = meets_cells

    def _deadline(self, cells: int) -> Deadline:
        if self._habits.deadline is not None:
            return Deadline(self._habits.deadline)
        deadlines = self._config.deadlines
        return Deadline(deadlines.put_seconds + cells * deadlines.batch_cell_seconds)


def _conflict(cell: EncodedCell, stored: Stored) -> CellConflict | None:
    found = stored.found
    if found is not None and found[1:4] == cell[:3] and found.body == cell.body:
        return None
    return conflict(decode_cell(cell), found)


def _invalid(cells: Sequence[EncodedCell], max_body_bytes: int) -> Iterator[tuple[int, InvalidCell]]:
    """What no shard may hold. That a body is canonical is its maker's word."""
    names = _checked_names({cell.column_name for cell in cells})
    if not names and _is_sound(cells, max_body_bytes):
        return
    for n, (row_key, name, ref_key, body) in enumerate(cells):
        if name in names:
            yield n, names[name]
        elif len(row_key) != ROW_KEY_BYTES:
            yield n, InvalidCell(f"the row key has {len(row_key)} bytes", hint="Pass the 16 bytes of a UUID.")
        elif not REF_KEY_MIN <= ref_key <= REF_KEY_MAX:
            yield n, InvalidCell("the ref key does not fit into 64 bits with a sign")
        elif len(body) > max_body_bytes:
            reason = f"the body has {len(body):,} bytes, {max_body_bytes:,} are allowed"
            yield n, InvalidCell(reason, hint="Split the body over several columns, or raise max_body_bytes.")


def _is_sound(cells: Sequence[EncodedCell], max_body_bytes: int) -> bool:
    """The same told of all at once: every cell of a migration passes here."""
    if not cells:
        return True
    keys, _names, refs, bodies = zip(*cells, strict=True)
    is_in_range = min(refs) >= REF_KEY_MIN and max(refs) <= REF_KEY_MAX
    return is_in_range and set(map(len, keys)) == {ROW_KEY_BYTES} and max(map(len, bodies)) <= max_body_bytes


def _checked_names(names: Collection[bytes]) -> dict[bytes, InvalidCell]:
    refused: dict[bytes, InvalidCell] = {}
    for name in names:
        try:
            check_column_name(name.decode())
        except UnicodeDecodeError:
            refused[name] = InvalidCell("the column name is no UTF-8")
        except InvalidCell as error:
            refused[name] = error
    return refused


def _split_repeated(cells: Sequence[EncodedCell], positions: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """The first position of each key, and the others."""
    keys = {cells[n][:3] for n in positions}
    if len(keys) == len(positions):
        return positions, ()
    firsts: list[int] = []
    repeated: list[int] = []
    for n in positions:
        key = cells[n][:3]
        (firsts if key in keys else repeated).append(n)
        keys.discard(key)
    return firsts, repeated
