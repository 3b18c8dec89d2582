"""`DictionaryCatalogue`: which dictionaries the servers have, and that each has all of them.

There is no other list. A server has what its own bodies need, whatever becomes of the control database; one that was
added, or restored, gets what the others have.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from schemaless_core.deadline import Deadline
from schemaless_core.engine.dictionaries import PREFIX, Dictionary, dictionaries_of, document_of
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.errors import SchemaMissing
from schemaless_core.servers.clusters import Cluster

LOOK_SECONDS = 10.0


class DictionaryCatalogue:
    """Of one datastore."""

    def __init__(self, clusters: Mapping[str, Cluster]) -> None:
        self._clusters = clusters

    def all(self) -> list[Dictionary]:
        """Those of all servers, by column and number."""
        return dictionaries_of({each.name: each for found in self._found().values() for each in found}.values())

    def put(self, dictionary: Dictionary) -> None:
        """Give it to each server. Safe to repeat; until it was, some writers may use it and others not yet."""
        document = document_of(dictionary)
        for name in self._found():
            self._give(self._clusters[name], document)

    def spread(self) -> int:
        """Give each server what it lacks of the others'; return how many documents that were."""
        found = self._found()
        everywhere = {each.name: each for its in found.values() for each in its}
        count = 0
        for name, its in found.items():
            for lacking in everywhere.keys() - {each.name for each in its}:
                self._give(self._clusters[name], everywhere[lacking])
                count += 1
        return count

    def _found(self) -> dict[str, list[StoredDocument]]:
        """By cluster. One that is to come has no tables yet, and no bodies."""
        found = dict[str, list[StoredDocument]]()
        for name, cluster in self._clusters.items():
            with suppress(SchemaMissing):
                found[name] = cluster.ask(lambda node: node.find_documents(PREFIX, Deadline(LOOK_SECONDS)))
        return found

    def _give(self, cluster: Cluster, document: StoredDocument) -> None:
        cluster.ask(lambda node: node.put_document(document, Deadline(LOOK_SECONDS)), is_write=True)
