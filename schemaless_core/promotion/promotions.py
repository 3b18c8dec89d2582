"""`Promotions`: of a datastore: other servers as primaries, and what the old ones alone had."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from schemaless_core.config import DatastoreConfig
from schemaless_core.control.database import ControlDatabase
from schemaless_core.engine.open import open_node
from schemaless_core.errors import InvalidRequest, PromotionRefused
from schemaless_core.indexes.catalogue import Catalogue
from schemaless_core.promotion.ports import AuthorityPort
from schemaless_core.promotion.promoter import AsTheyWere, Promoter
from schemaless_core.promotion.salvage import LostTail, Salvage
from schemaless_core.servers.clusters import Cluster
from schemaless_core.servers.routing import Router
from schemaless_core.servers.topologies import Topologies
from schemaless_core.urls import NodeUrl

if TYPE_CHECKING:
    from schemaless_core.purging.purges import Purges


class Promotions:
    """Made for a call or two.

    `authority`: who says which backend is the authority, where a layer above has one; else shards are opened as they
    were.
    """

    def __init__(
        self,
        config: DatastoreConfig,
        clusters: Mapping[str, Cluster],
        router: Router,
        control: ControlDatabase,
        catalogue: Catalogue,
        purges: Callable[[], Purges],
    ) -> None:
        self._config = config
        self._clusters = clusters
        self._router = router
        self._control = control
        self._catalogue = catalogue
        self._purges = purges

    def promoter(self, cluster: str, authority: AuthorityPort | None = None) -> Promoter:
        """Makes another server of a cluster its primary."""
        its = self._cluster(cluster)
        return Promoter(its, self._clusters, self._config, self._control, authority or AsTheyWere())

    def salvage(self, cluster: str, url: NodeUrl, authority: AuthorityPort | None = None) -> Salvage:
        """Brings back what the old primary of a cluster alone had, from the server at this address."""
        name = self._cluster(cluster).name
        topology = Topologies(self._control).find_newest()
        if topology is None:
            hint = "Run `tripstore schema apply`."
            raise PromotionRefused("The control database does not know where shards are.", hint=hint)
        self._catalogue.refresh()
        tables = [version.table for version in self._catalogue.kept()]
        old = open_node(url, self._config)
        placed = topology.shards_of(name)
        from schemaless_core.purging.carried import CarriedPurges  # no put reads that file

        carried = CarriedPurges(self._router, old, self._purges())
        return Salvage(self._router, old, self._config.shards, placed, tables, carried, authority or AsTheyWere())

    def lost_tails(self, cluster: str, server: str) -> list[LostTail]:
        """What a server that does not lead has, and no primary. It is one of those that the configuration names."""
        return self.salvage(cluster, self._url(cluster, server)).lost_tails()

    def _url(self, cluster: str, server: str) -> NodeUrl:
        its = next(each for each in self._config.clusters if each.name == cluster)
        return next(url for url in (its.primary, *its.replicas) if str(url) == server)

    def _cluster(self, name: str) -> Cluster:
        if name not in self._clusters:
            known = ", ".join(self._clusters)
            raise InvalidRequest(f"There is no cluster {name}.", hint=f"The configuration names: {known}.")
        return self._clusters[name]
