"""`LegacySettings`: how cells are read and written over connections to Postgres."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemaless_core.config import DeadlineConfig, PoolConfig

#: What `synchronous_commit` may be for a decision: with less an acknowledged one could be lost in a crash.
DURABLE = ("on", "remote_apply")


@dataclass(frozen=True, slots=True)
class LegacySettings:
    """Deadlines, the pool, and what the server does to sessions that stop."""

    deadlines: DeadlineConfig = field(default_factory=lambda: DeadlineConfig(put_seconds=2.0, batch_cell_seconds=0.01))
    pool: PoolConfig = field(default_factory=PoolConfig)
    lock_seconds: float = 1.0  #: Waiting for one lock; another open transaction holds it.
    statement_seconds: float = 60.0  #: One statement, as the server counts; a call's own deadline is shorter.
    idle_transaction_seconds: float = 5.0  #: The server ends a transaction of ours whose process stopped so long.
    application: str = "tripstore"
    synchronous_commit: str = "on"  #: Of a decision, one of `DURABLE`.
