"""The tables of the control database as its migrations leave them."""

from __future__ import annotations

import sqlalchemy as sa

VERSION_TABLE = "control_version"

metadata = sa.MetaData()

topology = sa.Table(
    "topology",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("why", sa.String(200), nullable=False),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("host", sa.String(128), nullable=False),
    sa.Column("action", sa.String(64), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)
