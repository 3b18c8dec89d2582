"""`Retries`: parked cells tried again on a schedule, by the worker that holds their shard."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from uuid import UUID

import msgspec

from schemaless_core import metrics
from schemaless_core.calls.lookups import Lookups
from schemaless_core.cell.cell import Cell, CellKey
from schemaless_core.config import TriggerConfig
from schemaless_core.engine.groups import ParkedCell, ParkedRow, Settling
from schemaless_core.errors import SchemalessError, Unavailable
from schemaless_core.failpoints import reach
from schemaless_core.triggers.deaths import ProcessDied
from schemaless_core.triggers.group import Group
from schemaless_core.triggers.joined import Joined
from schemaless_core.triggers.parking import Parking, told

logger = logging.getLogger(__name__)


class Retries:
    """Tries parked cells again; knows the schedule, leaves keeping them to the parking."""

    def __init__(self, parking: Parking, joined: Joined, lookups: Lookups, config: TriggerConfig) -> None:
        self._parking = parking
        self._joined = joined
        self._lookups = lookups
        self._config = config

    def retry_due(self, group: Group, shard: int, fence: int, shard_epoch: int) -> set[bytes]:
        """Deliver the due cells of a shard, in row scope also those behind them; return the rows that have some left.

        Only the worker that holds the shard may ask, and not while it delivers: a row's cells come one after the other.
        """
        rows = sorted(self._parking.of_shard(group.name, shard), key=lambda row: (row.row_key, row.added_id))
        retry = self._retry_row if group.parking == "row" else self._retry_cells
        left: set[bytes] = set()
        for row_key, of_row in groupby(rows, key=lambda row: row.row_key):
            if not retry(group, list(of_row), fence, shard_epoch):
                left.add(row_key)
        return left

    def _retry_row(self, group: Group, rows: Sequence[ParkedRow], fence: int, shard_epoch: int) -> bool:
        """The first decides when; once it is delivered those behind it follow. Whether all went.

        One that fails holds up those behind it. Some of them the group may know to go before it, and it after them.
        """
        left = {row.added_id: row for row in rows} if rows[0].is_due else {}
        held_up: list[ParkedRow] = []
        overtaken = set[int]()
        while left:
            row = held_up.pop() if held_up else next(iter(left.values()))
            if row.added_id not in left:
                continue
            # Only a row's first is failed and falls due; one that fails to overtake it waits as before.
            is_waiting = row.added_id != next(iter(left))
            if self._attempt(group, row, fence, shard_epoch, is_waiting=is_waiting):
                del left[row.added_id]
                continue
            chosen = [] if row.added_id in overtaken else self._overtaking(group, row, left)
            if not chosen:
                return False
            overtaken.add(row.added_id)
            held_up += [row, *reversed(chosen)]
        return rows[0].is_due

    def _overtaking(self, group: Group, row: ParkedRow, left: Mapping[int, ParkedRow]) -> list[ParkedRow]:
        """Of those that are left behind a row, the ones that may go before it."""
        keys = {_key(each): each for added_id, each in left.items() if added_id > row.added_id}
        try:
            chosen = group.overtaking(_key(row), list(keys), self._lookups.tombstones)
        except Unavailable as error:  # other rows of the shard have attempts due
            extra = {"event": "triggers.overtaking_unknown", "group": group.name, "reason": error.message}
            logger.info("nothing goes before a parked cell now", extra=extra)
            return []
        return [keys[key] for key in chosen]

    def _retry_cells(self, group: Group, rows: Sequence[ParkedRow], fence: int, shard_epoch: int) -> bool:
        """Each for itself. Whether all went."""
        went = [row.is_due and self._attempt(group, row, fence, shard_epoch, is_waiting=False) for row in rows]
        return all(went)

    def _attempt(self, group: Group, row: ParkedRow, fence: int, shard_epoch: int, *, is_waiting: bool) -> bool:
        """Deliver one parked cell; settle it, or say when it is tried again: by itself, or behind others of its row."""
        settling = Settling(fence, row.added_id, row.row_key, shard_epoch)
        error: Exception | None
        try:
            cell = self._lookups.cell(*_key(row))
        except msgspec.MsgspecError as torn:  # it waits for repair, and must not take the worker along
            error = torn
        else:
            if cell is not None and not is_waiting and not group.is_bundled:
                # Before the call: one that ends this process is not due again at once.
                self._postpone(group, row, fence, ProcessDied(1), is_waiting=False)
            error = None if cell is None else self._deliver(group, row.shard, cell, settling)
        if error is None:
            self._parking.settle(group.name, row.shard, settling)
            metrics.cell_settled(group.name)
            return True
        self._failed(group, row, fence, error, is_waiting=is_waiting)
        return False

    def give_up(self, group: Group, shard: int, fence: int, cell: Cell, error: Exception) -> None:
        """The function does not return for a parked cell. Any thread may say so; the process is about to end."""
        rows = self._parking.of_shard(group.name, shard)
        for row in rows:
            if row.added_id == cell.added_id:
                first = min(each.added_id for each in rows if each.row_key == row.row_key)
                is_waiting = group.parking == "row" and row.added_id != first
                counted = row if is_waiting else row._replace(attempts=row.attempts - 1)  # it was, before the call
                self._failed(group, counted, fence, error, is_waiting=is_waiting)

    def _failed(self, group: Group, row: ParkedRow, fence: int, error: Exception, *, is_waiting: bool) -> None:
        self._postpone(group, row, fence, error, is_waiting=is_waiting)
        metrics.delivery_failed(group.name)

    def _postpone(self, group: Group, row: ParkedRow, fence: int, error: Exception, *, is_waiting: bool) -> None:
        attempts = row.attempts + 1
        doublings = max(0, attempts - self._config.attempts)
        pause = min(self._config.retry_seconds * 2.0 ** min(doublings, 30), self._config.retry_seconds_max)
        news = ParkedCell(*row[1:5], attempts, is_waiting, told(error), pause)
        self._parking.postpone(group.name, row.shard, fence, news)

    def _deliver(self, group: Group, shard: int, cell: Cell, settling: Settling) -> Exception | None:
        """Call the function; what a transactional one puts is put as the cell is settled, or not at all."""
        if not group.is_transactional:
            error = group.retry(shard, cell).error
            reach("parking.delivered")
            return error
        staging = self._joined.staging(cell.row_key)
        error = group.retry(shard, cell, staging).error
        reach("parking.delivered")
        if error is None and staging.staged:
            try:
                self._joined.settle(group.name, shard, staging.staged, settling)
            except SchemalessError as refusal:
                return refusal
        return error


def _key(row: ParkedRow) -> CellKey:
    return CellKey(UUID(bytes=row.row_key), row.column_name.decode(), row.ref_key)
