"""The authority row names the layout in force, so that a reader of an epoch reads the layout of that epoch.

The row of an installation that has capture begins with capture's layout; without capture no process goes by one yet.
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"

_IN_FORCE = """
ALTER TABLE tripstore.authority ADD COLUMN layout text;
ALTER TABLE tripstore.authority_history ADD COLUMN layout text;
UPDATE tripstore.authority SET layout = (
    SELECT l.digest FROM tripstore.capture AS c JOIN tripstore.layout AS l ON l.number = c.layout);
UPDATE tripstore.authority_history SET layout = a.layout FROM tripstore.authority AS a
WHERE authority_history.epoch = a.epoch
"""


def upgrade() -> None:
    op.execute(_IN_FORCE)


def downgrade() -> None:
    op.execute(
        "ALTER TABLE tripstore.authority DROP COLUMN layout; ALTER TABLE tripstore.authority_history DROP COLUMN layout"
    )
