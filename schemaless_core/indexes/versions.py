"""`IndexVersions`: creates, promotes and drops versions of indexes. Every step may be repeated, and killed at any line.

A version is created empty and filled by its group from the beginning of the logs, beside the ones that are there; the
alias is moved by one compare-and-set once it is filled and verified. All versions stay up to date until they are
dropped: promoting the older one is the way back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

from schemaless_core.cell.standing import ShardHead
from schemaless_core.config import DatastoreConfig
from schemaless_core.deadline import Deadline
from schemaless_core.definitions.index import IndexDefinition
from schemaless_core.definitions.query import unknown_index
from schemaless_core.engine.base import Node
from schemaless_core.engine.groups import OffsetSeen
from schemaless_core.errors import ControlUnavailable, InvalidRequest, SchemalessError, Unavailable, shown
from schemaless_core.failpoints import reach
from schemaless_core.indexes.catalogue import KEPT, Catalogue, IndexRecord, Verified, VersionRecord, VersionState
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.indexes.maintainer import count_errors
from schemaless_core.indexes.rows import AS_COPIER, heads_of
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.routing import Router

logger = logging.getLogger(__name__)

#: Tables of thousands of shards.
DDL_SECONDS = 600.0
LOOK_SECONDS = 10.0
#: How long a promotion waits for the group to pass the heads of its beginning.
CATCH_UP_SECONDS = 10.0
PAUSE_SECONDS = 0.05


class GroupOffsets(Protocol):
    """How far groups are."""

    def find(self, group: str) -> Mapping[int, OffsetSeen | SchemalessError]:
        """Return a group's offsets in all shards."""
        ...


class Groups(Protocol):
    """Where groups are registered."""

    def register_group(self, name: str, start: Literal["beginning"]) -> object:
        """Create a group and its offsets in all shards; what is there stays."""
        ...

    def remove(self, group: str) -> None:
        """Forget a group and its offsets."""
        ...

    def forget(self, group: str) -> None:
        """Forget a group, and touch no shard."""
        ...


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """A version as an operator wants to see it."""

    record: VersionRecord
    is_current: bool
    #: Whether its definition is the configured one.
    is_configured: bool
    #: Cells that its group has not passed yet, and the shards that did not say.
    lag_cells: int
    unknown_shards: int
    #: Fields that are missing because they do not parse; None when a server did not say.
    errors: int | None


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """An index and its versions, the newest last; none as long as it is only configured."""

    name: str
    alias: int | None
    versions: tuple[VersionStatus, ...]


class IndexVersions:
    """The life of index versions."""

    def __init__(
        self,
        config: DatastoreConfig,
        clusters: Mapping[str, Cluster],
        router: Router,
        catalogue: Catalogue,
        groups: Groups,
        offsets: GroupOffsets,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._clusters = clusters
        self._router = router
        self._catalogue = catalogue
        self._groups = groups
        self._offsets = offsets
        self._sleep = sleep

    def create_missing(self) -> list[IndexVersion]:
        """Create the first version of every configured index that has none; finish one whose creation was killed."""
        if not self._config.indexes:
            return []
        self._catalogue.refresh()
        self._catalogue.take_over_copies()
        known = {version.name for version in self._catalogue.kept()}
        missing = [definition for definition in self._config.indexes if definition.name not in known]
        created = [self._create(definition, is_first=True) for definition in missing]
        return [version for version in created if version is not None]

    def create(self, name: str) -> IndexVersion:
        """Create the next version of a configured index, empty; its group fills it. Finishes what was killed.

        The first version of a datastore without any cell answers queries at once.
        """
        version = self._create(self._configured(name), is_first=False)
        assert version is not None  # the next one can always be created
        return version

    def _create(self, definition: IndexDefinition, *, is_first: bool) -> IndexVersion | None:
        """Create a version; None if it was to be the first, and another process created one."""
        version = self._reserve(definition, is_first=is_first)
        if version is None:
            return None
        reach("index.version_reserved")
        for cluster_name, shards in self._shards_by_cluster().items():
            node = self._clusters[cluster_name]
            node.write(lambda node: node.create_index(version.table, shards, Deadline(DDL_SECONDS)))  # noqa: B023
        reach("index.tables_created")
        self._groups.register_group(version.group_name, "beginning")
        reach("index.group_registered")
        is_empty = all(head.head == 0 for head in self._heads().values())

        def open_it(record: IndexRecord) -> IndexRecord:
            known = record.versions.get(version.number)
            if known is None or known.state is not VersionState.CREATING:
                return record
            if is_empty and record.alias is None:
                ready = record.with_version(replace(known, state=VersionState.READY))
                return replace(ready, alias=version.number)
            return record.with_version(replace(known, state=VersionState.BUILDING))

        opened = self._change(version, "index.create", open_it).versions.get(version.number)
        if opened is None or opened.state is VersionState.DROPPING:
            self._remove_parts(version)  # made after they were dropped
            raise InvalidRequest(
                f"Version {version.number} of index {version.name} was dropped while it was created.",
                hint=f"Run `tripstore index create {version.name}` again if it is wanted.",
            )
        extra = {"event": "index.created", "index": version.name, "version": version.number}
        logger.info("an index version is created", extra=extra)
        return version

    def promote(
        self, name: str, number: int, *, force: bool = False, patience_seconds: float = CATCH_UP_SECONDS
    ) -> None:
        """Let a version answer the queries from now on. Refused while it may lack entries; `force` skips all checks.

        Its group must pass the heads of this moment, and it must have been verified without differences, or have been
        behind the alias before.
        """
        record = self._version(name, number)
        if not force:
            if record.state is not VersionState.READY and not (record.verified and record.verified.is_clean):
                raise InvalidRequest(
                    f"Version {number} of index {name} was never verified without differences.",
                    hint=f"Run `tripstore index verify {name} --version {number}` first.",
                )
            self.wait_for_group(record.version, patience_seconds)
        reach("index.before_promote")

        def point_to_it(index: IndexRecord) -> IndexRecord:
            known = index.versions.get(number)
            if known is None or known.state not in KEPT:
                raise self._not_kept(name, number)
            return replace(index.with_version(replace(known, state=VersionState.READY)), alias=number)

        self._change(record.version, "index.promote", point_to_it)
        logger.info(
            "another version answers queries", extra={"event": "index.promoted", "index": name, "version": number}
        )

    def drop(self, name: str, number: int) -> None:
        """Remove a version, its tables and its group; never the one that answers queries. Finishes what was killed."""
        record = self._version(name, number, is_any_state=True)

        def give_it_up(index: IndexRecord) -> IndexRecord:
            if index.alias == number:
                raise InvalidRequest(
                    f"Version {number} of index {name} answers the queries.",
                    hint="Promote another version first; the last one stays as long as the index does.",
                )
            known = index.versions.get(number)
            if known is None:
                return index
            return index.with_version(replace(known, state=VersionState.DROPPING))

        # First all processes stop writing and reading it. One that does not know yet meets tables that are gone.
        self._change(record.version, "index.drop", give_it_up)
        reach("index.drop_begun")
        self._remove_parts(record.version)
        reach("index.tables_dropped")
        self._change(record.version, "index.dropped", lambda index: index.without({number}))
        logger.info("an index version is dropped", extra={"event": "index.dropped", "index": name, "version": number})

    def leave(self, name: str, numbers: Collection[int]) -> None:
        """Take versions, with alias and entries, from an index: from now on the cells come from another datastore.

        What it does to rows changes no entry here, and groups lose their offsets. It may be repeated, and needs no
        shard. Numbers are not used again: a process that slept takes no version that was made since.
        """
        detail = {"index": name}
        change = partial(self._catalogue.change, name, detail=detail)
        left = change(lambda index: index.given_up(numbers), action="index.leave").versions
        reach("index.leave_begun")
        for number in left.keys() & numbers:
            self._groups.forget(left[number].version.group_name)
            self._remove_tables(left[number].version)
        reach("index.entries_left")
        change(lambda index: index.without(numbers), action="index.left")
        logger.info("an index is left to another datastore", extra={"event": "index.left", "index": name})

    def _remove_parts(self, version: IndexVersion) -> None:
        """Group, tables and list of errors; may be repeated."""
        self._groups.remove(version.group_name)
        self._remove_tables(version)

    def _remove_tables(self, version: IndexVersion) -> None:
        for cluster_name, shards in self._shards_by_cluster().items():
            cluster, table = self._clusters[cluster_name], version.table.name
            cluster.write(lambda node: node.drop_index(table, shards, Deadline(DDL_SECONDS)))  # noqa: B023
            cluster.write(lambda node: node.drop_field_errors(version.name, version.number, Deadline(DDL_SECONDS)))

    def record_verified(self, version: IndexVersion, verified: Verified) -> None:
        """Keep what a verification found, for the promotion to see."""

        def note(index: IndexRecord) -> IndexRecord:
            known = index.versions.get(version.number)
            return index if known is None else index.with_version(replace(known, verified=verified))

        try:
            self._change(version, "index.verified", note)
        except ControlUnavailable as error:
            # The verdict is the caller's all the same; only a promotion will ask for another one.
            extra = {"event": "index.verdict_not_kept", "index": version.name, "version": version.number}
            logger.warning("%s", error, extra=extra)

    def status(self) -> list[IndexStatus]:
        """All indexes that are configured or exist, with their versions."""
        self._catalogue.refresh()
        records = self._catalogue.indexes()
        configured = {definition.name: definition for definition in self._config.indexes}
        return [
            self._status(records.get(name, IndexRecord(name)), configured.get(name))
            for name in sorted({*records, *configured})
            if name in configured or records[name].versions
        ]

    def find(self, name: str, number: int | None = None) -> IndexVersion:
        """Return a version of an index, by default the newest."""
        self._catalogue.refresh()
        records = self._catalogue.indexes()
        if name not in records or not records[name].versions:
            raise unknown_index(name, [each for each, record in records.items() if record.versions])
        return self._version(name, max(records[name].versions) if number is None else number).version

    def wait_for_group(self, version: IndexVersion, patience_seconds: float) -> None:
        """Wait until a version's group has passed the heads of this moment in all shards; `Unavailable` if not."""
        heads = self.places()
        patience = Deadline(patience_seconds)
        while True:
            behind = self.behind(version, heads)
            if not behind:
                return
            if patience.is_over:
                raise Unavailable(
                    f"Index {version.name} v{version.number} is {sum(behind.values()):,} cells behind"
                    f" in {len(behind)} shards.",
                    hint="Let `tripstore worker run` catch up, then repeat.",
                )
            self._sleep(PAUSE_SECONDS)

    def places(self) -> dict[int, tuple[int, int]]:
        """Where the logs of all shards end at this moment: epochs and added ids."""
        return {shard: (head.state.epoch, head.head) for shard, head in self._heads().items()}

    def behind(self, version: IndexVersion, heads: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """The shards whose offsets have not passed these heads, and by how many cells."""
        found = self._offsets.find(version.group_name)
        behind = {}
        for shard, (epoch, head) in heads.items():
            seen = found.get(shard)
            if seen is None or isinstance(seen, SchemalessError) or seen.offset is None:
                behind[shard] = head
            elif (seen.offset.epoch, seen.offset.added_id) < (epoch, head) and head > 0:
                behind[shard] = max(1, head - seen.offset.added_id)
        return behind

    def _reserve(self, definition: IndexDefinition, *, is_first: bool) -> IndexVersion | None:
        """Take the next number, or the one of a creation that was killed."""

        def reserve(record: IndexRecord) -> IndexRecord:
            is_there = any(each.state in KEPT for each in record.versions.values())
            if _unfinished(record, definition) is not None or (is_first and is_there):
                return record
            version = IndexVersion(definition, record.next_number)
            return record.with_version(VersionRecord(version, VersionState.CREATING))

        detail = {"index": definition.name, "definition": definition.digest}
        record = self._catalogue.change(definition.name, reserve, action="index.reserve", detail=detail)
        return _unfinished(record, definition)

    def _change(self, version: IndexVersion, action: str, decide: Callable[[IndexRecord], IndexRecord]) -> IndexRecord:
        detail = {"index": version.name, "version": version.number}
        return self._catalogue.change(version.name, decide, action=action, detail=detail)

    def _configured(self, name: str) -> IndexDefinition:
        for definition in self._config.indexes:
            if definition.name == name:
                return definition
        raise InvalidRequest(
            f"No index {shown(name)} is configured.", hint="Add its definition to indexes: of the configuration."
        )

    def _version(self, name: str, number: int, *, is_any_state: bool = False) -> VersionRecord:
        """A version as the control database has it."""
        index = self._catalogue.find(name)
        record = index.versions.get(number)
        if record is None:
            known = ", ".join(str(each) for each in sorted(index.versions)) or "none"
            raise InvalidRequest(f"Index {shown(name)} has no version {shown(number)}.", hint=f"Versions: {known}.")
        if not is_any_state and record.state not in KEPT:
            raise self._not_kept(name, number)
        return record

    def _not_kept(self, name: str, number: int) -> InvalidRequest:
        return InvalidRequest(
            f"Version {number} of index {name} is not complete, or is being dropped.",
            hint=f"Run `tripstore index create {name}` again, or drop it.",
        )

    def _status(self, record: IndexRecord, definition: IndexDefinition | None) -> IndexStatus:
        digest = None if definition is None else definition.digest
        versions = []
        for number in sorted(record.versions):
            each = record.versions[number]
            lag, unknown = self._lag(each.version)
            errors = count_errors(self._router, each.version, self._config.shards, Deadline(LOOK_SECONDS))
            is_configured = each.version.definition.digest == digest
            versions.append(VersionStatus(each, record.alias == number, is_configured, lag, unknown, errors))
        return IndexStatus(record.name, record.alias, tuple(versions))

    def _lag(self, version: IndexVersion) -> tuple[int, int]:
        lag, unknown = 0, 0
        for seen in self._offsets.find(version.group_name).values():
            if isinstance(seen, SchemalessError) or seen.offset is None:
                unknown += 1
            else:
                lag += max(0, seen.head - seen.offset.added_id)
        return lag, unknown

    def _heads(self) -> dict[int, ShardHead]:
        """The heads of all shards, of their owners."""
        deadline = Deadline(LOOK_SECONDS)

        def look(node: Node, part: Mapping[int, None]) -> dict[int, ShardHead]:
            return heads_of(node, part, deadline)

        shards = dict.fromkeys(range(self._config.shards))
        return self._router.read_many(shards, look, AS_COPIER, "primary_only", deadline)

    def _shards_by_cluster(self) -> dict[str, list[int]]:
        """The shards of each cluster; their tables are created and dropped on its primary."""
        owners: dict[str, list[int]] = {}
        for name, cluster in self._clusters.items():
            held = cluster.write(lambda node: node.shards_present())
            if held:
                owners[name] = sorted(held)
        return owners


def _unfinished(record: IndexRecord, definition: IndexDefinition) -> IndexVersion | None:
    """The version of this definition whose creation was begun."""
    for each in record.versions.values():
        if each.state is VersionState.CREATING and each.version.definition.digest == definition.digest:
            return each.version
    return None
