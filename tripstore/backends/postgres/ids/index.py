"""The index by which a legacy id finds its row in Schemaless. Made with the shards wherever there is a legacy store."""

from __future__ import annotations

from schemaless_core.definitions.index import IndexDefinition, IndexField, SourceColumn
from schemaless_core.definitions.values import IndexFieldType
from tripstore.backends.postgres.layout.layout import LEGACY_ID

LEGACY_ID_INDEX = "legacy_ids"
ID_FIELD = "id"


def legacy_id_index(datastore: str) -> IndexDefinition:
    return IndexDefinition(
        LEGACY_ID_INDEX, datastore, (SourceColumn(LEGACY_ID, (IndexField(ID_FIELD, IndexFieldType.INT),)),)
    )
