"""`TripStore`: the Schemaless API over both databases. Routes each call to the part that does it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast, overload
from uuid import UUID

from schemaless_core.calls.using import Using
from schemaless_core.cell.answers import (
    ANY,
    Bucket,
    Condition,
    IndexPage,
    Location,
    PutResult,
    RowPage,
    Scalar,
    ShardPage,
)
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell, CellKey, ColumnKey, check_row_key
from schemaless_core.cell.children import NO_CHILDREN, Children
from schemaless_core.cell.requests import listed_columns, listed_keys
from schemaless_core.cell.sharding import shard_of
from schemaless_core.errors import StoreClosed
from schemaless_core.habits import Habits
from schemaless_core.health import HEALTH_SECONDS, Health
from schemaless_core.store import CellStore
from tripstore.backends.postgres.ids.ids import check_id
from tripstore.errors import StaleLayout
from tripstore.facade.facade import Facade
from tripstore.facade.home import RELOADS, Home

if TYPE_CHECKING:
    from tripstore.facade.experiments.experiment import Experiment
    from tripstore.facade.experiments.experiments import Experiments
    from tripstore.typed.column import R, TypedColumn
    from tripstore.typed.index import E, TypedIndex

T = TypeVar("T")


class TripStore(CellStore):
    """What `tripstore.connect` gives. A context manager; safe to share by threads and to inherit by forks."""

    def __init__(self, facade: Facade, reload: Callable[[], Facade] | None = None) -> None:
        self._home = Home(facade, reload)
        #: Whether it has no cohorts.
        self._is_at_authority = False
        self._arrange(Habits())

    def put_cell(
        self,
        row_key: UUID,
        column_name: str,
        ref_key: int,
        body: Json,
        *,
        expect_latest: int | None | Any = ANY,
    ) -> PutResult:
        using = self._using
        return self._asked(lambda facade: facade.writes.put(using, row_key, column_name, ref_key, body, expect_latest))

    def put_cells(self, cells: Sequence[Cell]) -> list[PutResult]:
        return self._asked(lambda facade: facade.writes.put_many(self._using, cells))

    def append_cell(self, row_key: UUID, column_name: str, body: Json) -> PutResult:
        return self._asked(lambda facade: facade.writes.append(self._using, row_key, column_name, body))

    def get_cell(self, row_key: UUID, column_name: str, ref_key: int) -> Cell | None:
        asked = {"row_key": row_key, "column_name": column_name, "ref_key": ref_key}
        return cast("Cell | None", self._read("get_cell", (row_key,), asked))

    def get_cell_latest(self, row_key: UUID, column_name: str) -> Cell | None:
        asked = {"row_key": row_key, "column_name": column_name}
        return cast("Cell | None", self._read("get_cell_latest", (row_key,), asked))

    def get_cells(self, keys: Sequence[CellKey]) -> list[Cell | None]:
        keys = listed_keys(keys)
        return cast("list[Cell | None]", self._read("get_cells", tuple(key[0] for key in keys), {"keys": keys}))

    def get_cells_latest(self, columns: Sequence[ColumnKey]) -> list[Cell | None]:
        columns = listed_columns(columns)
        rows = tuple(column[0] for column in columns)
        return cast("list[Cell | None]", self._read("get_cells_latest", rows, {"columns": columns}))

    def get_row(self, row_key: UUID, columns: Collection[str] | None = None) -> dict[str, Cell]:
        asked = {"row_key": row_key, "columns": _kept(columns)}
        return cast("dict[str, Cell]", self._read("get_row", (row_key,), asked))

    def get_history(
        self, row_key: UUID, column_name: str, *, before: int | None = None, limit: int = 100
    ) -> list[Cell]:
        asked = {"row_key": row_key, "column_name": column_name, "before": before, "limit": limit}
        return cast("list[Cell]", self._read("get_history", (row_key,), asked))

    def query_index(
        self,
        index: str,
        shard_value: Scalar,
        where: Sequence[Condition] = (),
        *,
        fields: Sequence[str] | None = None,
        columns: Sequence[str] | Literal["*"] | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int = 100,
        cursor: str | None = None,
        consistency: Literal["fast", "verified"] = "fast",
    ) -> IndexPage:
        asked = {
            "index": index,
            "shard_value": shard_value,
            "where": _kept(where),
            "fields": _kept(fields),
            "columns": _kept(columns),
            "order_by": order_by,
            "descending": descending,
            "limit": limit,
            "cursor": cursor,
            "consistency": consistency,
        }
        return cast(IndexPage, self._read("query_index", (shard_value,), asked))

    def get_cells_for_shard(self, shard: int, location: Location, limit: int) -> ShardPage:
        return self._of_log("get_cells_for_shard", lambda log: log.get_cells_for_shard(shard, location, limit))

    def get_cells_for_shards(self, locations: Mapping[int, Location], limit: int) -> dict[int, ShardPage]:
        return self._of_log("get_cells_for_shards", lambda log: log.get_cells_for_shards(locations, limit))

    def scan_rows(
        self, shard: int, after: UUID | None = None, limit: int = 1000, columns: Collection[str] | None = None
    ) -> RowPage:
        asked = {"shard": shard, "after": after, "limit": limit, "columns": _kept(columns)}
        return cast(RowPage, self._read("scan_rows", (), asked))

    def checksum(
        self, shard: int, columns: Collection[str] | None = None, children: Children = NO_CHILDREN
    ) -> list[Bucket]:
        using = self._using

        def work(store: CellStore) -> list[Bucket]:
            return using(store).checksum(shard, columns, children)

        return self._asked(lambda facade: facade.calls.ask("checksum", work, using.deadline))

    def resolve_id(self, number: int) -> UUID | None:
        """The row key of a legacy id, in every phase; None: no row ever had it."""
        return self.resolve_ids([number]).get(number)

    def resolve_ids(self, numbers: Iterable[int]) -> dict[int, UUID]:
        """The row keys of many legacy ids; what has none is left out. A deadline is that of all of them together."""
        wanted = tuple(check_id(number) for number in numbers)
        return cast("dict[int, UUID]", self._read("resolve_ids", wanted, {"numbers": wanted}))

    def legacy_id(self, row_key: UUID) -> int | None:
        """The legacy id of a row key; None: it never had one."""
        return self.legacy_ids([row_key]).get(row_key)

    def legacy_ids(self, row_keys: Iterable[UUID]) -> dict[UUID, int]:
        """The legacy ids of many row keys; what has none is left out."""
        wanted = tuple(row_keys)
        for row_key in wanted:
            check_row_key(row_key)
        return cast("dict[UUID, int]", self._read("legacy_ids", wanted, {"row_keys": wanted}))

    def shard_of(self, row_key: UUID) -> int:
        check_row_key(row_key)
        return shard_of(row_key, self.facade.config.core.shards)

    def using(
        self,
        *,
        read: Literal["primary", "replica"] | None = None,
        deadline: float | None = None,
        include_buffered: bool | None = None,
        durability: Literal["single", "double"] | None = None,
    ) -> Self:
        """Return the same store with other habits; what is not named stays as it was."""
        other = copy.copy(self)
        other._arrange(self._habits.with_changes(read, deadline, include_buffered, durability))
        return other

    @overload
    def typed(self, kind: type[R]) -> TypedColumn[R]: ...
    @overload
    def typed(self, kind: type[E]) -> TypedIndex[E]: ...
    def typed(self, kind: type[R] | type[E]) -> TypedColumn[R] | TypedIndex[E]:
        """Return the calls for a class that `tripstore models` wrote: of a column's rows, or of an index' entries."""
        from tripstore.typed.calls import typed  # no put of a service without typed rows waits for it

        return typed(self, kind)

    def at_authority(self) -> Self:
        """Return the same store without cohorts, for functions of triggers: they act upon what they read."""
        other = copy.copy(self)
        other._is_at_authority = True
        return other

    def health(self, *, deadline: float = HEALTH_SECONDS) -> Health:
        """Say whether calls can be served now, for a load balancer: the backend that answers callers is asked.

        The mirror is not: one that is down harms no caller. Nothing is raised for a server that does not answer.
        """
        from tripstore.facade.health import health  # no put waits for it

        return self._asked(lambda facade: health(facade, deadline))

    def experiment(
        self,
        name: str,
        *,
        key: Any = None,
        normalise: Callable[[Any], Any] | None = None,
        is_ordered: bool = True,
        raises: tuple[type[Exception], ...] = (),
        deadline: float | None = None,
        may_lag: bool = False,
    ) -> Experiment:
        """An old query and its rewrite side by side: a context for one call, or a decorator of the old query.

        The old one, the control, answers; of some calls the new one, the candidate, is asked on another thread and
        compared. `tripstore experiment set` lets the candidate answer a share of the callers, by `key`, and back.
        `normalise` makes of an answer what is compared; `is_ordered`: whether the order of its rows counts; `raises`:
        exceptions that are answers; `may_lag`: whether the candidate may answer what was true a moment ago.
        """
        from tripstore.facade.experiments.experiment import Experiment  # what has none does not wait for it
        from tripstore.facade.experiments.options import ExperimentOptions

        options = ExperimentOptions(key, normalise, is_ordered, raises, deadline, may_lag)
        return Experiment(name, self._experiments, options, lambda known: self._home.facade.experiments.declare(known))

    def close(self) -> None:
        """Close all connections, and refuse calls from now on. Stores made by `using` share both."""
        self._home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TripStore over {self._home.facade.store!r}>"

    @property
    def facade(self) -> Facade:
        """By the layout that this process knows to be in force."""
        return self._home.facade

    def _experiments(self) -> Experiments:
        facade = self._home.open_facade()
        if not facade.has_begun:
            facade.begin()
        return facade.experiments

    def _asked(self, work: Callable[[Facade], T]) -> T:
        """Do it; again after loading the layout in force, if the stores refuse the one that this process went by."""
        facade = self._home.open_facade()
        if not facade.has_begun:
            facade.begin()
        try:
            return self._inside(facade, work)
        except StaleLayout as error:
            stale = error
        for _reload in range(RELOADS):
            facade = self._home.renewed(facade, stale)
            facade.begin()
            try:
                return self._inside(facade, work)
            except StaleLayout as error:
                stale = error
        raise stale

    def _inside(self, facade: Facade, work: Callable[[Facade], T]) -> T:
        """A facade of a former layout is closed after a grace; a call that is longer inside goes on in the next one."""
        try:
            return work(facade)
        except StoreClosed as closed:
            if not self._home.has_replaced(facade):
                raise
            raise StaleLayout(facade.layout_digest, self._home.facade.layout_digest) from closed

    def _read(self, operation: str, keys: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
        def work(facade: Facade) -> Any:
            reads = facade.reads_at_authority if self._is_at_authority else facade.reads
            return reads.read(operation, keys, self._using, arguments)

        return self._asked(work)

    def _of_log(self, operation: str, work: Callable[[CellStore], T]) -> T:
        return self._asked(lambda facade: work(self._using(facade.log_store(operation))))

    def _arrange(self, habits: Habits) -> None:
        self._habits = habits
        self._using = Using(habits)


def _kept(given: Any) -> Any:
    """A list of the caller's as it is now: it may be looked at later. An iterator is read once."""
    is_list = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    return tuple(given) if is_list else given
