"""`Backups`: of a datastore: plans backups and restores, and begins them as jobs. What a folder has, `kept.py` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import NamedTuple

from schemaless_core.backups.decision import RestoreDecision, begin_within, refuse_decided
from schemaless_core.backups.folders import BackupFolder, open_folder
from schemaless_core.backups.kept import find_backup, find_newest, kept_backups, lacking
from schemaless_core.backups.manifest import Manifest
from schemaless_core.backups.purged import KnownPurges
from schemaless_core.backups.restore_runner import KIND as RESTORE
from schemaless_core.backups.restore_runner import RestoreRunner, topology_of
from schemaless_core.backups.restoring import ShardRestoring
from schemaless_core.backups.runner import END, KIND, BackupRunner
from schemaless_core.backups.source import BackupSource
from schemaless_core.cell.canonical import Json
from schemaless_core.config import DatastoreConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.jobs.jobs import HAS_END, Job, Jobs
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.copies import HoldsCopies
from schemaless_core.engine.primacy import Opening
from schemaless_core.errors import BackupDamaged, BackupRefused, InvalidRequest, SchemaMissing
from schemaless_core.indexes.catalogue import Catalogue
from schemaless_core.promotion.ports import AuthorityPort
from schemaless_core.promotion.promoter import AsTheyWere
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.schema import Schema
from schemaless_core.servers.topologies import Topologies
from schemaless_core.servers.topology import spread

LOOK_SECONDS = 10.0


class BackupOrder(NamedTuple):
    """What an operator asks for. `is_full`: earlier backups are not built upon."""

    place: str
    is_full: bool = False
    #: Of each process; None: as fast as the servers answer.
    cells_per_second: float | None = None


class BackupPlan(NamedTuple):
    """What a backup would read. `base`: the backup that it builds upon; empty: none."""

    order: BackupOrder
    base: str
    shards: int
    #: In the logs, and those of them that the backup before has.
    cells: int
    there: int


class RestoreOrder(NamedTuple):
    """What an operator asks for. `until`: cells that were stored later are left out.

    `despite_lost_purges`: what only later backups know to be purged may come back, where those cannot be read.
    """

    place: str
    backup: str
    until: datetime | None = None
    despite_lost_purges: bool = False


class RestorePlan(NamedTuple):
    """What a restore would write, and where; what keeps it from being begun."""

    order: RestoreOrder
    manifest: Manifest
    #: Shards by cluster.
    places: Mapping[str, int]
    refusals: tuple[str, ...]


class Backups:
    """Made for a call or two. `authority`: who says which backend is the authority; None: no layer above has a say."""

    def __init__(
        self,
        config: DatastoreConfig,
        clusters: Mapping[str, Cluster],
        schema: Schema,
        control: ControlDatabase,
        catalogue: Catalogue,
        create_indexes: Callable[[], object],
        authority: AuthorityPort | None = None,
    ) -> None:
        self._config = config
        self._clusters = clusters
        self._schema = schema
        self._control = control
        self._catalogue = catalogue
        self._create_indexes = create_indexes
        self._authority = authority or AsTheyWere()
        self._source = BackupSource(clusters, control)
        self.jobs = Jobs(control)

    # ---- backups -------------------------------------------------------------------------------------------------

    def plan(self, order: BackupOrder) -> BackupPlan:
        """Look at the servers and at the folder. Nothing is written. `BackupDamaged`: what it would build upon is."""
        self._refuse_files()
        topology = self._source.topology()
        folder = open_folder(order.place)
        base = None if order.is_full else self._newest(folder)
        if order.is_full:  # damage of an earlier one is no matter
            self._refuse_other(folder, next((each.manifest for each in kept_backups(folder) if each.manifest), None))
        heads = {cluster: self._heads(cluster) for cluster in topology.clusters}
        cells = sum(heads[at.cluster].get(shard, 0) for shard, at in topology)  # a move may have left a copy elsewhere
        return BackupPlan(
            order,
            "" if base is None else base.backup,
            topology.shards,
            cells,
            0 if base is None else sum(shard.last for shard in base.shards),
        )

    def begin(self, plan: BackupPlan, *, is_detached: bool = False) -> Job:
        """Write it down as a job, which any worker may serve. Nothing is read yet."""
        spec: dict[str, Json] = {
            "place": plan.order.place,
            "base": plan.base,
            "datastore": self._config.datastore,
            "cells_per_second": plan.order.cells_per_second,
            "estimate": max(0, plan.cells - plan.there),
            "unit": "cells",
            HAS_END: True,
        }
        return self.jobs.create(KIND, spec, [*range(plan.shards), END], is_detached=is_detached)

    def runner(self, job: Job, worker: str) -> BackupRunner:
        """What serves a backup, as a worker of this name."""
        folder = open_folder(str(job.spec["place"]))
        return BackupRunner(self.jobs, job, worker, self._source, folder, self._indexes)

    def _newest(self, folder: BackupFolder) -> Manifest | None:
        """The backup to build upon: the newest, and all its files must be there. None: there is none yet."""
        newest = find_newest(folder)
        self._refuse_other(folder, newest)
        if newest is not None and (files := lacking(folder, newest)):
            raise BackupDamaged(files[0], f"is missing, or cut, and {len(files) - 1} more of {newest.backup} are")
        return newest

    def _refuse_other(self, folder: BackupFolder, newest: Manifest | None) -> None:
        """A restore takes the newest of a folder: of two datastores it might be the other one's."""
        if newest is not None and newest.datastore != self._config.datastore:
            raise BackupRefused(
                f"{folder.place} has backups of datastore {newest.datastore}, and this one is "
                f"{self._config.datastore}.",
                hint="Give each datastore a folder of its own.",
            )

    def _indexes(self) -> list[str]:
        self._catalogue.refresh()
        return sorted({version.name for version in self._catalogue.kept()})

    # ---- restores ------------------------------------------------------------------------------------------------

    def plan_restore(self, order: RestoreOrder) -> RestorePlan:
        """Look at the folder and at the servers. Nothing is written."""
        self._refuse_files()
        folder = open_folder(order.place)
        manifest = find_backup(folder, order.backup)
        refusals = [f"{name} is missing, or cut." for name in lacking(folder, manifest)]
        if not order.despite_lost_purges and (lost := KnownPurges(folder, manifest).lost()):
            refusals.append(
                f"{lost[0]} cannot be read, and {len(lost) - 1} more: rows that only they know to be purged would come"
                " back. Mend them, or accept that by --despite-lost-purges, and purge these rows again."
            )
        shards = self._config.shards
        if len(manifest.shards) != shards:
            refusals.append(f"The backup has {len(manifest.shards):,} shards, and the configuration {shards:,}.")
        refusals += self._not_empty()
        refusals += self._authority_refusals(manifest)
        places = spread(shards, list(self._clusters))
        counts = {name: len(places.shards_of(name)) for name in places.clusters}
        exact = order._replace(backup=manifest.backup)
        return RestorePlan(exact, manifest, counts, tuple(refusals))

    def begin_restore(self, plan: RestorePlan, *, is_detached: bool = False) -> Job:
        """Write it down as a job, which any worker may serve, unless another one restores the datastore."""
        if plan.refusals:
            raise BackupRefused(plan.refusals[0], hint="`tripstore backup restore --dry-run` shows all of it.")
        self._schema.prepare()
        until = plan.order.until
        spec: dict[str, Json] = {
            "place": plan.order.place,
            "backup": plan.order.backup,
            "until": None if until is None else until.isoformat(),
            "despite_lost_purges": plan.order.despite_lost_purges,
            "opens_at": round(self.jobs.now().timestamp() * 1000),
            "clusters": list(self._clusters),
            "estimate": sum(shard.last for shard in plan.manifest.shards),
            "unit": "added ids",
            HAS_END: True,
        }
        return self.jobs.create(
            RESTORE,
            spec,
            [*range(len(plan.manifest.shards)), END],
            is_detached=is_detached,
            with_it=partial(begin_within, self._control, plan.order.backup),
        )

    def restore_runner(self, job: Job, worker: str) -> RestoreRunner:
        """What serves a restore, as a worker of this name."""
        folder = open_folder(str(job.spec["place"]))
        manifest = find_backup(folder, str(job.spec["backup"]))
        clusters = job.spec["clusters"]
        if clusters != list(self._clusters):
            hint = "Go on with the configuration that it began with."
            raise InvalidRequest(f"{job.id} restores to clusters {clusters}.", hint=hint)
        until, opens_at = job.spec["until"], int(str(job.spec.get("opens_at", 0)))
        restoring = ShardRestoring(
            self._clusters,
            folder,
            job.id,
            KnownPurges(folder, manifest, despite_lost=bool(job.spec.get("despite_lost_purges"))),
            None if until is None else datetime.fromisoformat(str(until)),
            opens_at,
        )
        topology = topology_of(manifest, spread(len(manifest.shards), list(self._clusters)), opens_at)
        return RestoreRunner(
            self.jobs,
            job,
            worker,
            manifest,
            folder,
            restoring,
            topology,
            RestoreDecision(self._control, job.id),
            self._authority,
            self._create_indexes,
        )

    def cancel_restore(self, job: str) -> Job:
        """Give one up for ever: what it wrote stays, and is closed. `BackupRefused`: its shards are being opened."""
        exact = self.jobs.find(RESTORE, job).id
        return self.jobs.cancel(RESTORE, exact, may=partial(refuse_decided, exact))

    def _authority_refusals(self, manifest: Manifest) -> list[str]:
        opening = self._authority.opening()
        if isinstance(opening, Opening) and opening.authority_epoch < manifest.authority_epoch:
            return [
                f"The authority row is at epoch {opening.authority_epoch}, and the backup's shards at "
                f"{manifest.authority_epoch}: Postgres was restored from an older backup than this one."
            ]
        return []

    def _not_empty(self) -> list[str]:
        """Shards that are there: a restore makes them itself, so that no put can be among what it writes."""
        try:
            known = Topologies(self._control).find_newest()
        except SchemaMissing:
            known = None
        found = {name: heads for name in self._clusters if (heads := self._heads(name))}
        if known is not None and found:
            return [f"Datastore {self._config.datastore} has shards already: it was created, or restored."]
        if known is not None:
            return [
                "The control database is of servers that were lost: it knows their promotions, groups and indexes. Let "
                "`control:` name an empty database, and keep this one for its audit log."
            ]
        return [f"Cluster {name} has {len(heads):,} shards of this datastore already." for name, heads in found.items()]

    def _heads(self, cluster: str) -> dict[int, int]:
        def look(node: Node) -> dict[int, int]:
            try:
                return {shard: head.head for shard, head in node.heads(None, Deadline(LOOK_SECONDS)).items()}
            except SchemaMissing:
                return {}

        return self._clusters[cluster].ask(look)

    def _refuse_files(self) -> None:
        for name, cluster in self._clusters.items():
            if not isinstance(cluster.nodes[0].node, HoldsCopies):
                raise InvalidRequest(
                    f"Cluster {name} is a file, and backups are of MySQL and MariaDB.",
                    hint="Copy the file while no process has it open.",
                )
