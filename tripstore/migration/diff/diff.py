"""`Diffing`: begins jobs that compare the two stores, and makes the runners that serve them. One per facade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from schemaless_core.cell.canonical import Json
from schemaless_core.cell.requests import check_shard, listed_names
from schemaless_core.control.jobs.jobs import Job, Jobs, JobState
from schemaless_core.deadline import Deadline
from schemaless_core.errors import InvalidRequest
from schemaless_core.indexes.verify import VerificationReport
from tripstore.backends.postgres.capture.partitions.look import look_at_partitions
from tripstore.backends.postgres.cells.sums.sums import TableSums
from tripstore.backends.postgres.cells.sums.turns import Turns
from tripstore.backends.postgres.errors import HistoryTruncated, UnreadableRow
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.backends.postgres.sizes import ABOUT_ROWS
from tripstore.backends.postgres.wire.connections import connected
from tripstore.engines.backfill.throttle import Throttles
from tripstore.engines.validation.diff.buckets import Digests, ShardedDigests
from tripstore.engines.validation.diff.diff import CellDiff
from tripstore.engines.validation.diff.histories import Histories
from tripstore.engines.validation.diff.indexes import INDEX, IndexDiff
from tripstore.engines.validation.diff.keylist import KeyList, NoKeyList, Written, check_place, source_of
from tripstore.engines.validation.diff.older import OlderDiff
from tripstore.engines.validation.diff.portions import Walk, bounds_of, parts_of
from tripstore.engines.validation.diff.runner import KIND, DiffRunner, RunnerSettings, written_of
from tripstore.engines.validation.diff.shard_values import ShardValues
from tripstore.engines.validation.diff.suspects import READ_SECONDS, Judge
from tripstore.engines.validation.recheck import Recheck
from tripstore.facade.facade import Facade
from tripstore.handover.authority import Backend
from tripstore.migration.backfill.sparing import check_limits, kept, limits_of, sparing
from tripstore.migration.diff.again import RecheckedRows, seen_by_samples
from tripstore.migration.diff.decoding import DecoderDiff
from tripstore.migration.diff.ignored import IgnoredDeletions
from tripstore.migration.diff.latest import StoredLatest
from tripstore.migration.diff.order import Order
from tripstore.migration.diff.purged import PurgedDifferences
from tripstore.migration.diff.rechecking import Rechecking
from tripstore.migration.diff.roles import AuthorityRoles, RowsInFlight
from tripstore.migration.diff.spared import SparedTurns
from tripstore.migration.diff.unit import UNIT, check_unit
from tripstore.migration.diff.version_sets import StoredSets
from tripstore.migration.diff.versions import StoredVersions

#: What a part is of. A process of an earlier version, which compared one child of each parent, knows no `rows`.
ROWS, OLDER, DECODER = "rows", "older_versions", "decoder"
#: A part is one pass over the tables, unless they have the index that `schema plan` proposes; a minute or two is lost
#: with a process that dies.
PARTS_MAX = 16
CELLS_PER_PART = 16_000_000
#: How long a server may take to sum one shard.
SUM_SECONDS = 3600.0
SIZE_SECONDS = 30.0

_HAS_CELLS = "SELECT EXISTS (SELECT FROM tripstore.cell AS c WHERE c.column_name = %s)"


class DiffPlan(msgspec.Struct, frozen=True):
    """What `begin` would do."""

    spec: dict[str, Json]
    parts: list[Json]
    #: About how many cells the source has.
    estimate: int


class Diffing:
    """Needs a legacy store."""

    def __init__(self, facade: Facade) -> None:
        assert facade.duo is not None
        assert facade.config.legacy is not None
        self._config = facade.config
        self._legacy = facade.duo.legacy
        self._control = facade.duo.ports.control
        self._layout = facade.config.legacy.layout
        self._postgres = facade.config.legacy.postgres.text
        self._store = facade.store
        self.jobs = Jobs(facade.store.control)

    def plan(self, order: Order) -> DiffPlan:
        """What is to be compared, in parts. An index is of all shards and columns: a partial diff leaves it out."""
        shards = self._shards(order)
        order = msgspec.structs.replace(order, indexes=order.indexes and not order.is_partial)
        listed_names(order.columns)
        said = msgspec.to_builtins(order)
        self.check_limits(said)
        order = msgspec.structs.replace(order, **kept(self._config.throttle, said))
        if order.source == order.target:
            raise InvalidRequest("A store does not differ from itself.", hint="Give two: --from and --to.")
        self._check_known(order.columns or ())
        estimate = self._estimate()
        number = min(PARTS_MAX, max(order.processes, estimate // CELLS_PER_PART + 1))
        parts: list[Json] = [{ROWS: bounds_of(each)} for each in parts_of(shards, number)]
        if order.older:
            parts += [{OLDER: bounds_of(each)} for each in parts_of(shards, max(number, order.processes))]
        again = RecheckedRows({}, {}) if order.is_partial else seen_by_samples(self.jobs)
        if order.decoded:
            parts.append({DECODER: again.rows})
        if order.indexes:
            names = [definition.name for definition in self._config.core.indexes]
            parts += [{INDEX: {"name": name, "again": again.values.get(name, [])}} for name in names]
        spec: dict[str, Json] = {**msgspec.to_builtins(order), "is_partial": order.is_partial}
        # What carries changes is another after a hand-over; and what a closer look found a weaker one does not undo.
        # Nor does it answer for partitions that change after its beginning.
        spec["note"] = {
            "epoch": self._control.authority().epoch,
            "scope": order.scope,
            "breach": self._breach(),
            "unit": UNIT,
            **again.note,
        }
        spec["unit"], spec["layout"] = UNIT, self._layout.digest
        spec["tables"] = {name: str(column.table) for name, column in self._layout.columns.items()}
        if estimate:
            spec["estimate"] = estimate
        return DiffPlan(spec, parts, estimate)

    def begin(self, plan: DiffPlan, *, is_detached: bool = False) -> Job:
        """Begin the job; nothing is compared before a worker runs it. A key list must have its place by then."""
        if plan.spec.get("keys") is not None:
            check_place(Path(str(plan.spec["keys"])))
        return self.jobs.create(KIND, plan.spec, plan.parts, is_detached=is_detached)

    def runner(self, job: Job, worker: str) -> DiffRunner:
        """Serves a job in this thread."""
        check_unit(job, self._layout.digest)
        order = order_of(job)
        settings, lists, turns = (
            RunnerSettings(worker, order.sample),
            self.key_list(job) or NoKeyList(),
            self._turns(job),
        )
        return DiffRunner(self.jobs, job.id, self.walks(order, job.id, turns), settings, lists, turns)

    def check_limits(self, spec: Mapping[str, Any], *, is_begun: bool = False) -> None:
        """Raise `InvalidRequest` for a limit on blocks or on a probe that could not be kept."""
        check_limits(limits_of(self._config.throttle, spec), self._legacy.database, is_begun=is_begun)

    def _turns(self, job: Job) -> SparedTurns | None:
        """None: the job has no limits."""
        limits = limits_of(self._config.throttle, job.spec)
        throttles = sparing(limits, self._legacy.database, self._store.control, job.id)
        if not throttles:
            return None
        return SparedTurns(self.jobs, job, Throttles(throttles), counts_blocks=limits.blocks_max > 0)

    def key_list(self, job: Job) -> KeyList | None:
        """Where the job's differences are written; None: nowhere."""
        order = order_of(job)
        return None if order.keys is None else KeyList(Path(order.keys), job.id, order.source)

    def check_resumable(self, job: Job) -> None:
        """Raise `FormerUnit`, `FormerLayout`, or `KeyListElsewhere`: another machine has what it found, or no place."""
        check_unit(job, self._layout.digest)
        key_list, keys = self.key_list(job), order_of(job).keys
        if key_list is not None and keys is not None:
            key_list.check(self._written(job))
            check_place(Path(keys))

    def finish(self, job: Job) -> None:
        """What is to be done once when all is compared; may be repeated."""
        key_list = self.key_list(job)
        if key_list is not None and self.jobs.state(job.id) is JobState.DONE:
            key_list.finish(self._written(job))

    def _written(self, job: Job) -> dict[int, Written]:
        return {number: written_of(each) for number, each in self.jobs.checkpoints(job.id).items()}

    def rechecking_list(self, path: Path) -> tuple[Order, Rechecking]:
        """The recheck of a key list, and the comparison that wrote the list."""
        legacy, store = Backend.LEGACY.value, Backend.STORE.value
        is_back = source_of(path) == store
        order = Order(source=store, target=legacy) if is_back else Order(source=legacy, target=store)
        return order, self.rechecking(order)

    def rechecking(self, order: Order) -> Rechecking:
        """The recheck of differences."""
        roles = self._roles(order)
        in_flight, ignored = RowsInFlight(roles, self._legacy, self._store), self._ignored(order, roles)
        children = self._layout.child_bits
        judge = Judge(
            roles,
            in_flight,
            (UnreadableRow,),
            explaining=self._explaining(order, ignored),
            latest=StoredLatest(children),
        )
        decoded = self._decoder(order).again
        return Rechecking(judge, roles, _histories(ignored), self._store.mends, children, decoded)

    def walks(self, order: Order, seed: str = "", turns: Turns | None = None) -> Mapping[str, Walk]:
        """What serves each kind of part. Where a sample is taken, the seed says which. Tables are read by turns."""
        sums = self._legacy.sums if turns is None else self._legacy.sums.by_turns(turns)
        roles = self._roles(order)
        in_flight, ignored = RowsInFlight(roles, self._legacy, self._store), self._ignored(order, roles)
        incomparable, unreadable = (HistoryTruncated,), (UnreadableRow,)
        broken = (*incomparable, *unreadable, msgspec.MsgspecError)
        children = self._layout.child_bits
        return {
            ROWS: CellDiff(
                self._digests(order.source, sums),
                self._digests(order.target, sums),
                Judge(
                    roles,
                    in_flight,
                    unreadable,
                    explaining=self._explaining(order, ignored),
                    latest=StoredLatest(children),
                ),
                order.columns,
                children=children,
            ),
            OLDER: OlderDiff(
                StoredSets(
                    sums,
                    self._store.as_copier(),
                    self._layout,
                    READ_SECONDS,
                    order.older,
                    order.columns,
                ),
                roles,
                in_flight,
                _histories(ignored),
                children=children,
            ),
            INDEX: IndexDiff(
                {definition.name: definition for definition in self._config.core.indexes},
                ShardValues(self._config.core.shards, seed, broken),
                roles,
                Recheck(in_flight, READ_SECONDS, broken),
                self._verify,
                broken,
                self._explaining(order, ignored),
            ),
            DECODER: self._decoder(order),
        }

    def _decoder(self, order: Order) -> DecoderDiff:
        database, shards = self._legacy.database, self._shards(order)
        return DecoderDiff(database, self._layout, self._store, order.decoded, order.columns, shards)

    def _roles(self, order: Order) -> AuthorityRoles:
        return AuthorityRoles(self._control, self._legacy, self._store, Backend(order.source))

    def _ignored(self, order: Order, roles: AuthorityRoles) -> IgnoredDeletions:
        return IgnoredDeletions(self._layout, self._legacy.database, roles, Backend(order.source))

    def _explaining(self, order: Order, ignored: IgnoredDeletions) -> PurgedDifferences:
        return PurgedDifferences(ignored, self._store, Backend(order.source))

    def _digests(self, name: str, sums: TableSums) -> Digests:
        if Backend(name) is Backend.LEGACY:
            return sums
        return ShardedDigests(self._store.as_copier(), SUM_SECONDS, self._layout.child_bits)

    def _verify(self, name: str) -> VerificationReport | None:
        current = self._store.indexes.catalogue.find(name).current
        return None if current is None else self._store.indexes.verify(name, current.number)

    def _shards(self, order: Order) -> range:
        total = self._config.core.shards
        if order.shards is None:
            return range(total)
        first, last = order.shards
        check_shard(first, total)
        check_shard(last - 1, total)
        if first >= last:
            raise InvalidRequest(f"{first}-{last - 1} are no shards.", hint="Write the lower number first.")
        return range(first, last)

    def _check_known(self, columns: Sequence[str]) -> None:
        """Raise `InvalidRequest` for a column that neither store has: without any cell all would be equal (I12).

        Schemaless is asked last: it looks through all of its cells.
        """
        known = [*self._layout.columns, LEGACY_ID]
        for name in columns:
            if name not in known and not self._is_in_postgres(name) and not self._is_in_schemaless(name):
                hint = f"The layout has {', '.join(known)}."
                raise InvalidRequest(f"There is no column {name} to compare.", hint=hint)

    def _is_in_postgres(self, name: str) -> bool:
        """Whether cells of a column that the layout does not have are kept there."""
        deadline = Deadline(SIZE_SECONDS)
        return bool(self._legacy.database.run(lambda connection: connection.rows(_HAS_CELLS, (name,)), deadline)[0][0])

    def _is_in_schemaless(self, name: str) -> bool:
        sums = self._digests(Backend.STORE.value, self._legacy.sums).checksums(range(self._config.core.shards), [name])
        return any(bucket.count for bucket in sums.buckets.values())

    def _estimate(self) -> int:
        tables = [column.table.sql for column in self._layout.columns.values()]
        tables += [self._layout.parent.table.sql, "tripstore.cell", "tripstore.tomb"]
        counted = [(tables.count(table), table) for table in dict.fromkeys(tables)]
        sizes = [times * self._size(table) for times, table in counted]
        return sum(sizes)

    def _breach(self) -> int:
        """The number of the newest breach by now."""
        with connected(self._postgres, "diff") as connection:
            breach = look_at_partitions(connection)
        return 0 if breach is None else breach.number

    def _size(self, table: str) -> int:
        """None of a table that was never analysed: no estimate is better than one that is far off."""
        deadline = Deadline(SIZE_SECONDS)
        return int(
            self._legacy.database.run(lambda connection: connection.rows(ABOUT_ROWS, (table, 0)), deadline)[0][0]
        )


def _histories(ignored: IgnoredDeletions) -> Histories:
    return Histories(StoredVersions(ignored), (HistoryTruncated,), (UnreadableRow,))


def order_of(job: Job) -> Order:
    """What a job compares."""
    return msgspec.convert({name: job.spec[name] for name in Order.__struct_fields__ if name in job.spec}, Order)
