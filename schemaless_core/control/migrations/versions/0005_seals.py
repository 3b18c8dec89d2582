"""Seals of the audit log: one for each line from now on, and the head of the chain."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NO_SEAL = "0" * 64


def upgrade() -> None:
    op.create_table(
        "audit_seal",
        sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("seal", sa.String(64), nullable=False),
    )
    head = op.create_table(
        "audit_head",
        sa.Column("seat", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("seal", sa.String(64), nullable=False),
        sa.Column("pruned", sa.Integer, nullable=False),
        sa.Column("pruned_seal", sa.String(64), nullable=False),
    )
    op.bulk_insert(head, [{"seat": 0, "number": 0, "seal": NO_SEAL, "pruned": 0, "pruned_seal": NO_SEAL}])


def downgrade() -> None:
    for name in ("audit_head", "audit_seal"):
        op.drop_table(name)
