"""Tables of index versions that are not as they were created: an entry may be cut there, or refused for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Fact
from schemaless_core.errors import InvalidServer, SchemalessError
from schemaless_core.indexes.catalogue import Catalogue
from schemaless_core.indexes.entries import IndexVersion
from schemaless_core.servers.clusters import Cluster

#: Tables of thousands of shards are counted.
LOOK_SECONDS = 10.0


class IndexTables:
    """The tables of all versions, as their servers have them."""

    def __init__(self, catalogue: Catalogue, clusters: Mapping[str, Cluster]) -> None:
        self._catalogue = catalogue
        self._clusters = clusters

    def facts(self, cluster: str) -> list[Fact]:
        """What a doctor says of the primary of a cluster; nothing where all columns are as they were created.

        No refusal: cells are as safe as before, and the next version of the index is made beside this one.
        """
        try:
            self._catalogue.refresh()
            versions = self._catalogue.kept()
        except SchemalessError as error:
            return [Fact("columns", f"of indexes not compared: {error.message}", False, advice=error.hint or "")]
        return list(self._altered(cluster, versions))

    def refuse_altered(self) -> None:
        """Raise for the first altered table of any server."""
        for cluster in self._clusters.values():
            for fact in self._altered(cluster.name, self._catalogue.kept()):
                raise InvalidServer(cluster.primary.node.name, f"{fact.name}: {fact.value}", hint=fact.advice)

    def _altered(self, cluster: str, versions: list[IndexVersion]) -> Iterator[Fact]:
        node = self._clusters[cluster].primary.node
        for version in versions:
            for fact in node.altered_index(version.table, Deadline(LOOK_SECONDS)):
                yield replace(fact, is_refusal=False, advice=f"{fact.advice} {_another(version)}")


def _another(version: IndexVersion) -> str:
    return (
        f"Or `tripstore index create {version.name}` makes the next version; promote it, and drop version"
        f" {version.number}."
    )
