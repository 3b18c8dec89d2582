"""Groups of triggers, as data and as a screen: how far they are, which workers serve them, what to do if none does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.datastore import Datastore
from schemaless_core.errors import Unavailable
from schemaless_core.triggers.leases.coordinator import GroupState
from schemaless_core.triggers.leases.pulse import living_workers
from schemaless_core.triggers.triggers import GroupStatus, ShardOfGroup
from tripstore.cli.tables import table

#: Groups of the store itself are called <kind>:<what>.
_INDEX = "index:"
_BUILT_IN = (_INDEX, "mirror:")
#: Parked cells counted per shard; a group halts long before.
PARKED_MAX = 100_000


class ShardView(msgspec.Struct, frozen=True):
    """How far a group is in one shard; what a silent server would have said is null."""

    shard: int
    epoch: int | None
    offset: int | None
    head: int | None
    lag_cells: int | None
    lag_seconds: float | None
    owner: str | None
    heir: str | None
    is_served: bool
    parked: int | None


class GroupView(msgspec.Struct, frozen=True):
    """A group; sums are over the shards whose servers answered, `unknown` counts the others."""

    name: str
    state: str
    reason: str
    start: str
    offset: int
    lag_cells: int
    lag_seconds: float
    parked: int
    timeout_seconds: float | None
    shards: int
    unserved: int
    unknown: int
    workers: list[str]
    is_fine: bool
    advice: list[str]
    shard_views: list[ShardView] | None


def look_at_groups(
    datastore: Datastore, name: str | None = None, *, has_shards: bool = False
) -> tuple[list[GroupView], int]:
    """Look at all groups, or one, and count the living workers. Takes a heartbeat, a lease where a worker is dead."""
    triggers = datastore.triggers
    if not triggers.coordinator.groups():
        return [], 0
    living = living_workers(triggers.coordinator, datastore.config.triggers.lease_seconds)
    views = []
    for status in triggers.status(name):
        view = _view(status, living)
        if has_shards:
            parked = _parked(datastore, view.name)
            shard_views = [_shard(shard, living, parked) for shard in status.shards]
            view = msgspec.structs.replace(view, shard_views=shard_views)
        views.append(view)
    return views, len(living)


def unmaintained(datastore: Datastore, views: Sequence[GroupView]) -> list[str]:
    """The configured indexes that no group stands for: no version of them was created."""
    known = {view.name.split(":")[1] for view in views if view.name.startswith(_INDEX)}
    return sorted(index.name for index in datastore.config.indexes if index.name not in known)


def screen(views: Sequence[GroupView]) -> Iterator[RenderableType]:
    """Yield a table of groups, and below it what is wrong with them."""
    headings = ("group", "state", "start", "offset", "lag", "oldest", "parked", "timeout", "served")
    yield table(headings, [_row(view) for view in views])
    for view in views:
        yield from (Text(f"{view.name}: {advice}", style=_style(view)) for advice in view.advice)


def shard_screen(view: GroupView) -> Iterator[RenderableType]:
    """Yield a table of a group's shards."""
    headings = ("shard", "offset", "head", "lag", "oldest", "parked", "owner", "heir")
    yield table(headings, [_shard_row(shard) for shard in view.shard_views or ()])


def _view(status: GroupStatus, living: set[str]) -> GroupView:
    record = status.record
    unserved = sum(shard.owner not in living for shard in status.shards)
    workers = sorted({shard.owner for shard in status.shards if shard.owner is not None} & living)
    is_halted = record.state is GroupState.HALTED
    return GroupView(
        name=record.name,
        state=record.state.value,
        reason=record.reason,
        start=record.start,
        offset=sum(shard.added_id or 0 for shard in status.shards),
        lag_cells=status.lag_cells,
        lag_seconds=round(status.lag_seconds, 3),
        parked=status.parked,
        timeout_seconds=status.timeout_seconds,
        shards=len(status.shards),
        unserved=unserved,
        unknown=status.unknown,
        workers=workers,
        is_fine=not (is_halted or unserved or status.unknown or status.beyond),
        advice=list(_advice(status, unserved, is_halted)),
        shard_views=None,
    )


def _advice(status: GroupStatus, unserved: int, is_halted: bool) -> Iterator[str]:
    name = status.record.name
    if unserved:
        command = "tripstore worker run" if name.startswith(_BUILT_IN) else "tripstore triggers run MODULE"
        yield f"no worker serves {_of(unserved, len(status.shards))}; `{command}` does"
    if is_halted:
        yield f"HALTED: {status.record.reason}; mend it, then `tripstore triggers resume {name}`"
    if status.unknown:
        yield f"the servers of {_of(status.unknown, len(status.shards))} do not answer; `tripstore status`"
    for shard in status.beyond:
        command = f"tripstore triggers reset {name} --shard {shard} --to TIME"
        yield f"above the head of shard {shard}: no cell of it is delivered; `{command}`"
    if status.parked:
        yield f"{status.parked:,} parked; `tripstore triggers parked list {name}`"


def _of(count: int, shards: int) -> str:
    return f"its {shards} shards" if count == shards else f"{count} of its {shards} shards"


def _shard(shard: ShardOfGroup, living: set[str], parked: Counter[int] | None) -> ShardView:
    age = None if shard.lag_seconds is None else round(shard.lag_seconds, 3)
    is_served = shard.owner in living
    count = None if parked is None else parked[shard.shard]
    return ShardView(
        shard.shard, shard.epoch, shard.added_id, shard.head, shard.lag_cells, age, shard.owner, shard.heir,
        is_served, count,
    )  # fmt: skip


def _parked(datastore: Datastore, group: str) -> Counter[int] | None:
    """Parked cells per shard, those that wait behind others too; None when a server does not say."""
    try:
        return Counter(row.shard for row in datastore.triggers.parked(group, limit=PARKED_MAX))
    except Unavailable:
        return None


def _row(view: GroupView) -> tuple[str | Text, ...]:
    state = Text(view.state, style="green" if view.state == GroupState.RUNNING.value else "bold red")
    return (
        view.name,
        state,
        view.start,
        f"{view.offset:,}",
        f"{view.lag_cells:,} cells",
        f"{view.lag_seconds:.1f} s",
        Text(f"{view.parked:,}", style="yellow" if view.parked else ""),
        "" if view.timeout_seconds is None else f"{view.timeout_seconds:g} s",
        _served(view),
    )


def _served(view: GroupView) -> Text:
    served = f"{view.shards - view.unserved} of {view.shards} shards by {len(view.workers)} workers"
    return Text(served, style="bold red" if view.unserved else "green")


def _shard_row(shard: ShardView) -> tuple[str | Text, ...]:
    unknown = "unknown"
    return (
        str(shard.shard),
        unknown if shard.offset is None else f"{shard.offset:,}",
        unknown if shard.head is None else f"{shard.head:,}",
        unknown if shard.lag_cells is None else f"{shard.lag_cells:,}",
        "" if shard.lag_seconds is None else f"{shard.lag_seconds:.1f} s",
        unknown if shard.parked is None else f"{shard.parked:,}",
        _owner(shard),
        shard.heir or "",
    )


def _owner(shard: ShardView) -> Text:
    if shard.is_served:
        return Text(shard.owner or "")
    return Text("no worker" if shard.owner is None else f"{shard.owner} (dead)", style="bold red")


def _style(view: GroupView) -> str:
    return "yellow" if view.is_fine else "bold red"
