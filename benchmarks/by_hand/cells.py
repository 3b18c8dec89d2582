"""Cells as a careful engineer would keep them without us, in tables of their own: by PyMySQL, and by SQLAlchemy."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pymysql
import sqlalchemy as sa
from pymysql.constants import CLIENT
from sqlalchemy import orm

from schemaless_core import Datastore
from tripstore.local.binlog import BinlogServer

COUNTERS = """\
CREATE TABLE IF NOT EXISTS by_hand.counter (shard INT PRIMARY KEY, last BIGINT NOT NULL)"""
CELLS = """\
CREATE TABLE IF NOT EXISTS by_hand.cell_{shard} (
  id BIGINT PRIMARY KEY, row_key BINARY(16) NOT NULL, name VARCHAR(64) CHARACTER SET ascii NOT NULL,
  ref_key BIGINT NOT NULL, body MEDIUMBLOB NOT NULL, at DATETIME(6) NOT NULL, UNIQUE (row_key, name, ref_key))"""
PUT = """\
BEGIN;
UPDATE by_hand.counter SET last = LAST_INSERT_ID(last + 1) WHERE shard = {shard};
INSERT INTO by_hand.cell_{shard} VALUES (LAST_INSERT_ID(), %s, %s, %s, %s, UTC_TIMESTAMP(6));
COMMIT"""
GET = """\
SELECT id, ref_key, body, at FROM by_hand.cell_{shard}
 WHERE row_key = %s AND name = %s ORDER BY ref_key DESC LIMIT 1"""


class CellsByHand:
    """One connection, ids in the order of commits, bodies as JSON: no pool, deadline, fence, repeat or metric."""

    def __init__(self, server: BinlogServer, shards: int) -> None:
        self.shards = shards
        self.connection = pymysql.connect(
            host="127.0.0.1",
            port=server.port,
            user="root",
            password=server.password,
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
            ssl_disabled=True,
        )
        self.cursor = self.connection.cursor()

    def make_tables(self) -> None:
        self.cursor.execute("CREATE DATABASE IF NOT EXISTS by_hand")
        self.cursor.execute(COUNTERS)
        for shard in range(self.shards):
            self.cursor.execute(CELLS.format(shard=shard))
            self.cursor.execute("INSERT IGNORE INTO by_hand.counter VALUES (%s, 0)", (shard,))

    def put(self, row_key: UUID, name: str, ref_key: int, body: Any) -> int:
        statement = PUT.format(shard=row_key.int % self.shards)
        encoded = json.dumps(body, separators=(",", ":")).encode()
        self.cursor.execute(statement, (row_key.bytes, name, ref_key, encoded))
        self.cursor.nextset()
        added_id = self.cursor.lastrowid
        self.cursor.nextset()
        self.cursor.nextset()
        return added_id

    def get_latest(self, row_key: UUID, name: str) -> Any:
        self.cursor.execute(GET.format(shard=row_key.int % self.shards), (row_key.bytes, name))
        found = self.cursor.fetchone()
        return (*found[:2], json.loads(found[2]), found[3]) if found else None

    def make_plain_table(self) -> None:
        """A cell table without a counter, for `executemany`."""
        self.cursor.execute("CREATE DATABASE IF NOT EXISTS by_hand")
        self.cursor.execute(CELLS.format(shard="plain"))

    def put_many(self, first: int, rows: list[tuple[UUID, str, int, Any]]) -> None:
        """PyMySQL turns this into one INSERT of many rows."""
        now = datetime.now(UTC)
        self.cursor.executemany(
            "INSERT INTO by_hand.cell_plain VALUES (%s, %s, %s, %s, %s, %s)",
            [
                (first + n, key.bytes, name, ref_key, json.dumps(body, separators=(",", ":")).encode(), now)
                for n, (key, name, ref_key, body) in enumerate(rows)
            ],
        )

    def close(self) -> None:
        self.connection.close()


class SQLAlchemyPeers:
    """The same cell through SQLAlchemy: plain inserts and selects, no counter row, one commit each."""

    def __init__(self, server: BinlogServer, datastore: Datastore) -> None:
        url = sa.URL.create("mysql+pymysql", "root", server.password, "127.0.0.1", server.port)
        self.engine = sa.create_engine(url, connect_args={"ssl_disabled": True})
        name = datastore.config.datastore
        metadata = sa.MetaData(schema=f"{name}_meta")
        self.table = sa.Table(
            "peers",
            metadata,
            sa.Column("added_id", sa.BigInteger, primary_key=True, autoincrement=True),
            sa.Column("row_key", sa.BINARY(16), nullable=False),
            sa.Column("column_name", sa.VARBINARY(64), nullable=False),
            sa.Column("ref_key", sa.BigInteger, nullable=False),
            sa.Column("body", sa.LargeBinary(2**24 - 1), nullable=False),
            sa.UniqueConstraint("row_key", "column_name", "ref_key"),
        )
        metadata.create_all(self.engine)
        registry = orm.registry()

        class PeerCell:
            def __init__(self, **values: Any) -> None:
                for key, value in values.items():
                    setattr(self, key, value)

        registry.map_imperatively(PeerCell, self.table)
        self.mapped: Any = PeerCell

    def core_put(self, body: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.insert(self.table).values(self._row(body)))

    def orm_put(self, body: Any) -> None:
        with orm.Session(self.engine) as session:
            session.add(self.mapped(**self._row(body)))
            session.commit()

    def core_get(self, row_key: UUID) -> Any:
        table = self.table
        latest = sa.select(table).where(table.c.row_key == row_key.bytes, table.c.column_name == b"BASE")
        with self.engine.connect() as connection:
            return connection.execute(latest.order_by(table.c.ref_key.desc()).limit(1)).first()

    def orm_get(self, row_key: UUID) -> Any:
        table = self.table
        latest = sa.select(self.mapped).where(table.c.row_key == row_key.bytes, table.c.column_name == b"BASE")
        with orm.Session(self.engine) as session:
            return session.execute(latest.order_by(table.c.ref_key.desc()).limit(1)).scalar()

    def _row(self, body: Any) -> dict[str, Any]:
        encoded = json.dumps(body, separators=(",", ":")).encode()
        return {"row_key": uuid4().bytes, "column_name": b"BASE", "ref_key": 1, "body": encoded}

    def close(self) -> None:
        self.engine.dispose()
