"""Schemaless: an append-only store of immutable JSON cells in sharded MySQL, MariaDB or SQLite."""

from schemaless_core.answers import (
    ANY,
    Bucket,
    Condition,
    IndexEntry,
    IndexPage,
    Position,
    PutResult,
    PutStatus,
    Row,
    RowPage,
    Scalar,
    ShardPage,
)
from schemaless_core.canonical import Json, canonical_bytes
from schemaless_core.cell import Cell, CellKey, ColumnKey
from schemaless_core.datastore import Datastore
from schemaless_core.encoded import EncodedCell, EncodedOutcome
from schemaless_core.errors import (
    BatchFailed,
    CellConflict,
    Conflict,
    ControlUnavailable,
    DocumentConflict,
    IndexMissing,
    Invalid,
    InvalidCell,
    InvalidConfig,
    InvalidRequest,
    InvalidServer,
    LogHole,
    NodeUnavailable,
    PacketTooLarge,
    PositionUnknown,
    SchemalessError,
    SchemaMissing,
    StaleEpoch,
    TopologyConflict,
    Unavailable,
    UnknownFormat,
)
from schemaless_core.memory import MemoryStore
from schemaless_core.standing import ShardStatus
from schemaless_core.store import CellStore
from schemaless_core.version import VERSION

__version__ = VERSION

__all__ = [
    "ANY",
    "BatchFailed",
    "Bucket",
    "Cell",
    "CellConflict",
    "CellKey",
    "CellStore",
    "ColumnKey",
    "Condition",
    "Conflict",
    "ControlUnavailable",
    "Datastore",
    "DocumentConflict",
    "EncodedCell",
    "EncodedOutcome",
    "IndexEntry",
    "IndexMissing",
    "IndexPage",
    "Invalid",
    "InvalidCell",
    "InvalidConfig",
    "InvalidRequest",
    "InvalidServer",
    "Json",
    "LogHole",
    "MemoryStore",
    "NodeUnavailable",
    "PacketTooLarge",
    "Position",
    "PositionUnknown",
    "PutResult",
    "PutStatus",
    "Row",
    "RowPage",
    "Scalar",
    "SchemaMissing",
    "SchemalessError",
    "ShardPage",
    "ShardStatus",
    "StaleEpoch",
    "TopologyConflict",
    "Unavailable",
    "UnknownFormat",
    "canonical_bytes",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
