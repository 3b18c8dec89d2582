"""`Indexes`: what a datastore offers around its indexes. Puts the parts together and routes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from schemaless_core.config import DatastoreConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import FieldError
from schemaless_core.errors import SchemaMissing
from schemaless_core.indexes.aftercommit import AfterCommit
from schemaless_core.indexes.catalogue import Catalogue
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.indexes.maintainer import IndexGroup
from schemaless_core.indexes.tables import IndexTables
from schemaless_core.indexes.verify import CATCH_UP_SECONDS, Verification, VerificationReport
from schemaless_core.indexes.versions import GroupOffsets, Groups, IndexStatus, IndexVersions
from schemaless_core.indexes.writer import EntryWriter
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.fanout import FanOut
from schemaless_core.servers.routing import Router
from schemaless_core.triggers.group import Group

ERRORS_SECONDS = 10.0


class IndexParts:
    """What all stores of one datastore share: what is known of the indexes, and the thread that writes entries."""

    def __init__(
        self, config: DatastoreConfig, clusters: Mapping[str, Cluster], router: Router, control: ControlDatabase
    ) -> None:
        self.catalogue = Catalogue(control, clusters, config.datastore, config.deadlines.connect_seconds)
        self.writer = EntryWriter(router, config.shards)
        columns = {name for definition in config.indexes for name in definition.column_names}
        self.after_commit = AfterCommit(self.writer, self.catalogue, columns)

    def after_fork(self) -> None:
        self.catalogue.after_fork()
        self.after_commit.after_fork()


class Indexes:
    """The index half of a datastore, but for its queries."""

    def __init__(
        self,
        parts: IndexParts,
        config: DatastoreConfig,
        clusters: Mapping[str, Cluster],
        router: Router,
        groups: Groups,
        offsets: GroupOffsets,
        lanes: FanOut,
    ) -> None:
        self._lanes = lanes
        self.catalogue = parts.catalogue
        self.writer = parts.writer
        self.after_commit = parts.after_commit
        self.tables = IndexTables(parts.catalogue, clusters)
        self._config = config
        self._clusters = clusters
        self._router = router
        self._versions = IndexVersions(config, clusters, router, parts.catalogue, groups, offsets)
        self._groups: dict[str, IndexGroup] = {}

    def create_missing(self) -> list[tuple[str, int]]:
        """Create the first version of each configured index that has none; name and number of those.

        `InvalidServer` when a server has altered the table of one that is there.
        """
        created = [(version.name, version.number) for version in self._versions.create_missing()]
        self.tables.refuse_altered()
        return created

    def create(self, name: str) -> int:
        """Create the next version of an index from its configured definition; return its number."""
        return self._versions.create(name).number

    def promote(self, name: str, number: int, *, force: bool = False, patience_seconds: float = 10.0) -> None:
        """Let a version answer the queries; promoting the older one is the way back."""
        self._versions.promote(name, number, force=force, patience_seconds=patience_seconds)

    def drop(self, name: str, number: int) -> None:
        """Remove a version that does not answer the queries."""
        self._versions.drop(name, number)

    def there(self) -> dict[str, list[int]]:
        """The numbers of all versions by index."""
        return self.catalogue.there()

    def leave(self, there: Mapping[str, Collection[int]]) -> None:
        """Take these versions, with alias and entries, from all indexes: another datastore leads from now on."""
        for name, numbers in there.items():
            self._versions.leave(name, numbers)

    def status(self) -> list[IndexStatus]:
        """All indexes with their versions, how far they are, and how far behind."""
        return self._versions.status()

    def verify(
        self,
        name: str,
        number: int | None = None,
        *,
        repair: bool = False,
        patience_seconds: float = CATCH_UP_SECONDS,
    ) -> VerificationReport:
        """Compare a version (the newest) with the cells, both ways; keep the verdict for its promotion."""
        version = self._versions.find(name, number)
        report = self._compared(version, repair=repair, patience_seconds=patience_seconds)
        self._versions.record_verified(version, report.verified)
        return report

    def compare(self, name: str, number: int) -> VerificationReport:
        """The same, and no word of it is kept."""
        version = self._versions.find(name, number)
        return self._compared(version, repair=False, patience_seconds=CATCH_UP_SECONDS)

    def _compared(self, version: IndexVersion, *, repair: bool, patience_seconds: float) -> VerificationReport:
        waiting = self._versions.wait_for_group
        verification = Verification(version, self._router, self._config.shards, self.writer, waiting)
        return verification.run(repair=repair, patience_seconds=patience_seconds)

    def errors(self, name: str, number: int | None = None, limit: int = 100) -> list[FieldError]:
        """Fields that are missing from entries because their values do not parse; never the values themselves."""
        version = self._versions.find(name, number)
        found: list[FieldError] = []
        for cluster in self._clusters.values():
            try:
                found += cluster.write(
                    lambda node: node.find_field_errors(name, version.number, limit, Deadline(ERRORS_SECONDS))
                )
            except SchemaMissing:
                continue
        return sorted(found, key=lambda error: error.key)[:limit]

    def version(self, name: str, number: int) -> IndexVersion:
        """A version that is kept; `InvalidRequest` where there is none."""
        return self._versions.find(name, number)

    def behind(self, name: str, number: int) -> Callable[[], int]:
        """A question: how many of the cells of this moment a version's group has not passed yet."""
        version, heads = self._versions.find(name, number), self._versions.places()
        return lambda: sum(self._versions.behind(version, heads).values())

    def groups(self) -> Iterable[Group]:
        """The groups that keep the versions up to date, as many as are known at this moment: for a worker."""
        kept = {version.group_name: version for version in self.catalogue.kept()}
        self._groups = {
            name: self._groups.get(name)
            or IndexGroup(version, self.writer, self._router, self._config.shards, self._lanes)
            for name, version in kept.items()
        }
        return list(self._groups.values())
