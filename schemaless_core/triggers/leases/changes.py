"""Changes of leases, within the caller's transaction.

The row of a group is the lock of its leases, and its version tells workers that something changed. A transaction locks
that row, reads the leases, and changes those that are still as they were. Leases need no locks of their own. One
statement serves all shards of a group that change in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from schemaless_core.control.tables import trigger_group as group_table
from schemaless_core.control.tables import trigger_lease as table
from schemaless_core.triggers.leases.coordinator import Change, Lease

LEASES = sa.select(table.c.group_name, table.c.shard, table.c.owner, table.c.heir, table.c.fence).order_by(
    table.c.group_name, table.c.shard
)

#: An update of groups that the workers are to notice.
CHANGE_GROUP = sa.update(group_table).values(version=group_table.c.version + 1)

#: What a statement binds at most; SQLite refuses more than 32,766.
SHARDS_PER_STATEMENT = 8_192


def read_leases(connection: sa.Connection, wanted: sa.Executable) -> list[Lease]:
    return [Lease(*row) for row in connection.execute(wanted)]


def lock_groups(connection: sa.Connection, names: Collection[str]) -> list[str]:
    """Lock the rows of groups, so that no other transaction changes their leases. Return the groups that exist."""
    if not names:
        return []
    wanted = sa.select(group_table.c.name).where(group_table.c.name.in_(names)).order_by(group_table.c.name)
    return list(connection.execute(wanted.with_for_update()).scalars())


def release_leases(connection: sa.Connection, worker: str, leases: Collection[Lease]) -> None:
    """Let go of leases that are still the worker's at the same fence: each goes to its heir, if it has one."""
    stored = _locked(connection, leases)
    given = defaultdict[tuple[str, str | None], list[int]](list)
    for lease in leases:
        now = stored.get((lease.group, lease.shard))
        if now is not None and (now.owner, now.fence) == (worker, lease.fence):
            given[lease.group, now.heir].append(lease.shard)
    _write(connection, given, {})


def revoke_leases(connection: sa.Connection, group: str, fences: Mapping[int, int]) -> None:
    """Take shards from their owners, under a fence above these, unless theirs is as high already."""
    if not lock_groups(connection, [group]):
        return
    by_fence = defaultdict[int, list[int]](list)
    for shard, fence in fences.items():
        by_fence[fence].append(shard)
    for fence, shards in by_fence.items():
        for first in range(0, len(shards), SHARDS_PER_STATEMENT):
            some = table.c.shard.in_(shards[first : first + SHARDS_PER_STATEMENT])
            is_lower = (table.c.group_name == group) & some & (table.c.fence < fence)
            connection.execute(sa.update(table).where(is_lower).values(owner=None, heir=None, fence=fence + 1))
    connection.execute(CHANGE_GROUP.where(group_table.c.name == group))


def change_leases(connection: sa.Connection, changes: Sequence[Change]) -> int:
    """Make the changes whose owner and fence are still as they were. How many leases became different."""
    stored = _locked(connection, changes)
    given = defaultdict[tuple[str, str | None], list[int]](list)
    inherited = defaultdict[tuple[str, str | None], list[int]](list)
    for change in changes:
        now = stored.get((change.group, change.shard))
        if now is None or (now.owner, now.fence) != (change.owner, change.fence):
            continue
        if change.is_given:
            given[change.group, change.new_owner].append(change.shard)
        elif change.heir != now.heir:
            inherited[change.group, change.heir].append(change.shard)
    return _write(connection, given, inherited)


def _locked(connection: sa.Connection, wanted: Iterable[Lease | Change]) -> dict[tuple[str, int], Lease]:
    """Take the groups of these leases, and return the leases as they are until the end of the transaction."""
    shards = defaultdict[str, list[int]](list)
    for lease in wanted:
        shards[lease.group].append(lease.shard)
    found = {}
    for group in lock_groups(connection, list(shards)):
        some = table.c.shard.in_(shards[group]) if len(shards[group]) <= SHARDS_PER_STATEMENT else sa.true()
        for lease in read_leases(connection, LEASES.where(table.c.group_name == group, some)):
            found[group, lease.shard] = lease
    return found


def _write(
    connection: sa.Connection,
    given: Mapping[tuple[str, str | None], Sequence[int]],
    inherited: Mapping[tuple[str, str | None], Sequence[int]],
) -> int:
    """Set new owners and new heirs: shards by group and worker."""
    for (group, owner), shards in given.items():
        _update(connection, group, shards, {"owner": owner, "heir": None, "fence": table.c.fence + 1})
    for (group, heir), shards in inherited.items():
        _update(connection, group, shards, {"heir": heir})
    groups = {group for group, _worker in [*given, *inherited]}
    if groups:
        connection.execute(CHANGE_GROUP.where(group_table.c.name.in_(groups)))
    return sum(len(shards) for shards in [*given.values(), *inherited.values()])


def _update(connection: sa.Connection, group: str, shards: Sequence[int], values: Mapping[str, Any]) -> None:
    for first in range(0, len(shards), SHARDS_PER_STATEMENT):
        some = table.c.shard.in_(shards[first : first + SHARDS_PER_STATEMENT])
        connection.execute(sa.update(table).where(table.c.group_name == group, some).values(**values))
