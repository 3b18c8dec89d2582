"""Schemaless: an append-only store of immutable JSON cells in sharded MySQL, MariaDB or SQLite."""

from schemaless_core.lazy import imported_when_asked
from schemaless_core.version import VERSION

_HOMES = {
    "schemaless_core.cell.answers": (
        "ANY",
        "Bucket",
        "Condition",
        "IndexEntry",
        "IndexPage",
        "Position",
        "PutResult",
        "PutStatus",
        "Row",
        "RowPage",
        "Scalar",
        "ShardPage",
    ),
    "schemaless_core.cell.canonical": (
        "Json",
        "canonical_bytes",
    ),
    "schemaless_core.cell.cell": (
        "Cell",
        "CellKey",
        "ColumnKey",
    ),
    "schemaless_core.datastore": ("Datastore",),
    "schemaless_core.health": ("Health",),
    "schemaless_core.cell.encoded": (
        "EncodedCell",
        "EncodedOutcome",
    ),
    "schemaless_core.cell.put_errors": ("BatchFailed", "CellConflict"),
    "schemaless_core.errors": (
        "BackupDamaged",
        "BackupRefused",
        "BufferFull",
        "CellPurged",
        "Conflict",
        "ControlUnavailable",
        "CoordinatorUnavailable",
        "CopyDiffers",
        "DictionaryMissing",
        "DocumentConflict",
        "FolderUnavailable",
        "IndexMissing",
        "Invalid",
        "InvalidCell",
        "InvalidConfig",
        "InvalidRequest",
        "InvalidServer",
        "LedElsewhere",
        "LogHole",
        "MoveRefused",
        "NodeUnavailable",
        "PacketTooLarge",
        "PositionUnknown",
        "PromotionOvertaken",
        "PromotionRefused",
        "ReplicationRefused",
        "SchemalessError",
        "SchemaMissing",
        "ServerInHand",
        "StaleEpoch",
        "StoreClosed",
        "TopologyConflict",
        "Unavailable",
        "UnknownFormat",
    ),
    "schemaless_core.memory": ("MemoryStore",),
    "schemaless_core.cell.standing": ("ShardStatus",),
    "schemaless_core.store": ("CellStore", "JointStore"),
}

__version__ = VERSION
__all__ = sorted(name for names in _HOMES.values() for name in names)
__getattr__ = imported_when_asked(__name__, _HOMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
