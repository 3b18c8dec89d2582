"""`Parking`: the cells that groups set aside, kept beside the offsets of their shards."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from schemaless_core.cell.standing import Kind, ShardState, Standing
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.groups import ERROR_LENGTH_MAX, ParkedCell, ParkedKey, ParkedRow, Settling
from schemaless_core.errors import SchemalessError, missing_shard
from schemaless_core.servers.routing import Router

logger = logging.getLogger(__name__)

T = TypeVar("T")

SECONDS = 1.0
#: For what is asked every second, of all servers, by a loop that others wait for.
LOOK_SECONDS = 0.25
_STANDING = Standing(Kind.COPIER)


R = TypeVar("R", ParkedKey, ParkedRow)


class _Rows(NamedTuple, Generic[R]):
    """The parked cells of a shard, in the shape the router wants: with its state in sight."""

    state: ShardState
    rows: list[R]


class Parking:
    """The parked cells of all groups of a datastore."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def count(self, group: str) -> int:
        """How many cells are parked on the servers that answer."""
        return sum(self._ask_all(lambda node, deadline: node.groups.count_parked(group, deadline)))

    def due(self, group: str) -> set[int]:
        """The shards that have a cell whose next attempt is due, of the servers that answer."""
        return set[int]().union(*self._ask_all(lambda node, deadline: node.groups.due(group, deadline)))

    def listed(self, group: str, shard: int | None, limit: int) -> list[ParkedRow]:
        """Parked cells in the order of their logs; raises when a server does not answer."""
        found: list[ParkedRow] = []
        for cluster in self._router.holders(Deadline(SECONDS)):
            found += cluster.write(lambda node: node.groups.parked(group, shard, limit, Deadline(SECONDS)))
        return sorted(found, key=lambda row: (row.shard, row.added_id))[:limit]

    def retry(self, group: str, shard: int | None = None, added_id: int | None = None) -> int:
        """Make the next attempt of parked cells due now; how many there are."""
        counts = [
            cluster.write(lambda node: node.groups.retry(group, shard, added_id, Deadline(SECONDS)))
            for cluster in self._router.holders(Deadline(SECONDS))
        ]
        return sum(counts)

    def rows_of(
        self, group: str, shards: Sequence[int], upto: Mapping[int, int] | None = None
    ) -> dict[int, set[bytes]]:
        """The rows that have parked cells, per shard that could be asked; `upto` an added id of each shard."""

        def keys(node: Node, part: Sequence[int], deadline: Deadline) -> list[ParkedKey]:
            return node.groups.parked_keys(group, part, deadline)

        return {
            shard: {row.row_key for row in answer.rows if upto is None or row.added_id <= upto[shard]}
            for shard, answer in self._look(shards, keys).items()
            if not isinstance(answer, SchemalessError)
        }

    def first_of(self, group: str, shards: Sequence[int]) -> dict[int, int | None]:
        """The added id of the first parked cell, per shard that could be asked; None: it has none."""

        def keys(node: Node, part: Sequence[int], deadline: Deadline) -> list[ParkedKey]:
            return node.groups.parked_keys(group, part, deadline)

        return {
            shard: min((row.added_id for row in answer.rows), default=None)
            for shard, answer in self._look(shards, keys).items()
            if not isinstance(answer, SchemalessError)
        }

    def of_shard(self, group: str, shard: int) -> list[ParkedRow]:
        """The parked cells of one shard; raises when its server does not answer."""

        def cells(node: Node, part: Sequence[int], deadline: Deadline) -> list[ParkedRow]:
            return node.groups.parked_of(group, part, deadline)

        answer = self._look([shard], cells)[shard]
        if isinstance(answer, SchemalessError):
            raise answer
        return answer.rows

    def settle(self, group: str, shard: int, settling: Settling) -> None:
        """Forget a cell that was delivered."""
        self._change(shard, lambda node, deadline: node.groups.settle(group, shard, settling, deadline))

    def postpone(self, group: str, shard: int, fence: int, cell: ParkedCell) -> None:
        """Say when a cell that failed again is tried the next time."""
        self._change(shard, lambda node, deadline: node.groups.postpone(group, shard, fence, cell, deadline))

    def _change(self, shard: int, verb: Callable[[Node, Deadline], None]) -> None:
        """Change something at a shard's primary."""
        deadline = Deadline(SECONDS)

        def change(node: Node) -> _Rows[ParkedRow]:
            verb(node, deadline)
            return _Rows(node.heads([shard], deadline)[shard].state, [])

        self._router.read(shard, change, _STANDING, "primary_only", deadline)

    def _look(
        self, shards: Sequence[int], ask: Callable[[Node, Sequence[int], Deadline], list[R]]
    ) -> dict[int, _Rows[R] | SchemalessError]:
        deadline = Deadline(SECONDS)

        def look(node: Node, part: Mapping[int, None]) -> dict[int, _Rows[R]]:
            rows: defaultdict[int, list[R]] = defaultdict(list)
            for row in ask(node, list(part), deadline):
                rows[row.shard].append(row)
            heads = node.heads(list(part), deadline)
            for shard in part:
                if shard not in heads:
                    raise missing_shard(shard)
            return {shard: _Rows(heads[shard].state, rows[shard]) for shard in part}

        return self._router.read_each(dict.fromkeys(shards), look, _STANDING, "primary_only", deadline)

    def _ask_all(self, verb: Callable[[Node, Deadline], T]) -> Iterator[T]:
        """Ask every primary shortly; one that does not answer is passed over."""
        for cluster in self._router.holders(Deadline(SECONDS)):
            deadline = Deadline(LOOK_SECONDS)
            try:
                yield cluster.read(partial(_with_deadline, verb, deadline), "primary_only", deadline, is_fenced=False)
            except SchemalessError as error:
                extra = {"event": "triggers.parking_unknown", "cluster": cluster.name, "reason": error.message}
                logger.info("a server did not say what is parked", extra=extra)


def _with_deadline(verb: Callable[[Node, Deadline], T], deadline: Deadline, node: Node) -> T:
    return verb(node, deadline)


def told(error: BaseException) -> str:
    """What a function raised, in one line of storable text; it may name values, never bodies of ours."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # the user's own class; its name must do
        text = ""
    lines = f"{type(error).__name__}: {text}".encode("utf-8", "replace").decode().splitlines()
    return (lines[0] if lines else type(error).__name__)[:ERROR_LENGTH_MAX]
