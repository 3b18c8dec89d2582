"""The tables of the control database as its migrations leave them."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import MEDIUMTEXT

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

audit_seal = sa.Table(
    "audit_seal",
    metadata,
    sa.Column("entry", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("seal", sa.String(64), nullable=False),
)

audit_head = sa.Table(
    "audit_head",
    metadata,
    sa.Column("seat", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("seal", sa.String(64), nullable=False),
    sa.Column("pruned", sa.Integer, nullable=False),
    sa.Column("pruned_seal", sa.String(64), nullable=False),
)

document = sa.Table(
    "document",
    metadata,
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("body", sa.Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb"), nullable=False),
)

trigger_group = sa.Table(
    "trigger_group",
    metadata,
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("start", sa.String(64), nullable=False),
    sa.Column("parked_allowed", sa.Integer, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
)

trigger_lease = sa.Table(
    "trigger_lease",
    metadata,
    sa.Column("group_name", sa.String(128), primary_key=True),
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.String(128), nullable=True),
    sa.Column("heir", sa.String(128), nullable=True),
    sa.Column("fence", sa.BigInteger, nullable=False),
)

trigger_worker = sa.Table(
    "trigger_worker",
    metadata,
    sa.Column("worker", sa.String(128), primary_key=True),
    sa.Column("host", sa.String(128), nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("group_names", sa.Text, nullable=False),
    sa.Column("counter", sa.BigInteger, nullable=False),
)

trigger_leader = sa.Table(
    "trigger_leader",
    metadata,
    sa.Column("seat", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("owner", sa.String(128), nullable=True),
    sa.Column("term", sa.BigInteger, nullable=False),
    sa.Column("counter", sa.BigInteger, nullable=False),
)

ledger_count = sa.Table(
    "ledger_count",
    metadata,
    sa.Column("ledger", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(190), primary_key=True),
    sa.Column("hour", sa.String(16), primary_key=True),
    sa.Column("total", sa.BigInteger, nullable=False),
)

ledger_note = sa.Table(
    "ledger_note",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("ledger", sa.String(64), nullable=False),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Index("ledger_note_ledger", "ledger", "id"),
)

ledger_writer = sa.Table(
    "ledger_writer",
    metadata,
    sa.Column("writer", sa.String(64), primary_key=True),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("at", sa.String(32), nullable=False),
)

_LONG = sa.Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")

job = sa.Table(
    "job",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(64), nullable=False, unique=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("spec", _LONG, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("is_detached", sa.Boolean, nullable=False),
    sa.Column("begun_ms", sa.BigInteger, nullable=False),
    sa.Column("ended_ms", sa.BigInteger, nullable=True),
    sa.Column("who", sa.String(128), nullable=False),
    sa.Column("host", sa.String(128), nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("note", sa.Integer, nullable=True),
)

job_part = sa.Table(
    "job_part",
    metadata,
    sa.Column("job", sa.String(64), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("bounds", _LONG, nullable=False),
    sa.Column("checkpoint", _LONG, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("worker", sa.String(128), nullable=True),
    sa.Column("until_ms", sa.BigInteger, nullable=False),
    sa.Column("is_done", sa.Boolean, nullable=False),
    sa.Column("saved_ms", sa.BigInteger, nullable=True),
)

job_count = sa.Table(
    "job_count",
    metadata,
    sa.Column("job", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("total", sa.BigInteger, nullable=False),
)

job_finding = sa.Table(
    "job_finding",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("job", sa.String(64), nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("is_open", sa.Boolean, nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("row_key", sa.String(36), nullable=True),
    sa.Column("column_name", sa.String(64), nullable=True),
    sa.Column("ref_key", sa.BigInteger, nullable=True),
    sa.Column("body", _LONG, nullable=False),
    sa.Index("job_finding_job", "job", "is_open", "id"),
)

job_worker = sa.Table(
    "job_worker",
    metadata,
    sa.Column("job", sa.String(64), primary_key=True),
    sa.Column("worker", sa.String(128), primary_key=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)
