"""For type checkers: the names of `__init__.py`, which imports each when it is asked for."""

from schemaless_core.cell.answers import (
    ANY as ANY,
    Bucket as Bucket,
    Condition as Condition,
    IndexEntry as IndexEntry,
    IndexPage as IndexPage,
    Position as Position,
    PutResult as PutResult,
    PutStatus as PutStatus,
    Row as Row,
    RowPage as RowPage,
    Scalar as Scalar,
    ShardPage as ShardPage,
)
from schemaless_core.cell.canonical import (
    Json as Json,
    canonical_bytes as canonical_bytes,
)
from schemaless_core.cell.cell import (
    Cell as Cell,
    CellKey as CellKey,
    ColumnKey as ColumnKey,
)
from schemaless_core.datastore import (
    Datastore as Datastore,
)
from schemaless_core.health import Health as Health
from schemaless_core.cell.encoded import (
    EncodedCell as EncodedCell,
    EncodedOutcome as EncodedOutcome,
)
from schemaless_core.cell.put_errors import BatchFailed as BatchFailed, CellConflict as CellConflict
from schemaless_core.errors import (
    BackupDamaged as BackupDamaged,
    BackupRefused as BackupRefused,
    BufferFull as BufferFull,
    CellPurged as CellPurged,
    Conflict as Conflict,
    ControlUnavailable as ControlUnavailable,
    CoordinatorUnavailable as CoordinatorUnavailable,
    CopyDiffers as CopyDiffers,
    DictionaryMissing as DictionaryMissing,
    DocumentConflict as DocumentConflict,
    FolderUnavailable as FolderUnavailable,
    IndexMissing as IndexMissing,
    Invalid as Invalid,
    InvalidCell as InvalidCell,
    InvalidConfig as InvalidConfig,
    InvalidRequest as InvalidRequest,
    InvalidServer as InvalidServer,
    LedElsewhere as LedElsewhere,
    LogHole as LogHole,
    MoveRefused as MoveRefused,
    NodeUnavailable as NodeUnavailable,
    PacketTooLarge as PacketTooLarge,
    PositionUnknown as PositionUnknown,
    PromotionOvertaken as PromotionOvertaken,
    PromotionRefused as PromotionRefused,
    ReplicationRefused as ReplicationRefused,
    SchemalessError as SchemalessError,
    SchemaMissing as SchemaMissing,
    ServerInHand as ServerInHand,
    StaleEpoch as StaleEpoch,
    StoreClosed as StoreClosed,
    TopologyConflict as TopologyConflict,
    Unavailable as Unavailable,
    UnknownFormat as UnknownFormat,
)
from schemaless_core.memory import (
    MemoryStore as MemoryStore,
)
from schemaless_core.cell.standing import (
    ShardStatus as ShardStatus,
)
from schemaless_core.store import (
    CellStore as CellStore,
    JointStore as JointStore,
)

__version__: str
__all__: list[str]
