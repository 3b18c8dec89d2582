"""The CHECK on why a change is parked goes: Postgres reads and plans it again for each row that capture queues.

That was an eighth of what a captured row cost its writer. Relays alone set the column, from an enumeration.
"""

from __future__ import annotations

from alembic import op

from tripstore.backends.postgres.migrations.locking import lock_without_a_queue

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.execute(lock_without_a_queue("tripstore.queue"))
    op.execute("ALTER TABLE tripstore.queue DROP CONSTRAINT IF EXISTS queue_parked_check")


def downgrade() -> None:
    """No version needs the CHECK; the column itself goes with the revision that made it."""
