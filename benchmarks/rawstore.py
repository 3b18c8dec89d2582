"""What a careful engineer would write by hand: the same statements through PyMySQL, SQLAlchemy Core and the ORM."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pymysql
import sqlalchemy as sa
from pymysql.constants import CLIENT
from sqlalchemy import orm

from schemaless_core import Datastore
from schemaless_core.engine.mysql import reads, writes
from schemaless_core.engine.mysql.names import Names
from tripstore.local.binlog import BinlogServer


class RawLoop:
    """A hand-written loop on one connection: no pool, no checks, no metrics; bodies already encoded."""

    def __init__(self, server: BinlogServer, datastore: Datastore) -> None:
        self.names = Names(datastore.config.datastore)
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
        self.cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self.put_statement = writes.PUT.replace("GATE", writes.OWNER_GATE)

    def put(self, shard: int, row_key: UUID, column_name: bytes, ref_key: int, body: bytes) -> int:
        gate = (shard, 1, 0)
        self.cursor.execute(
            self.names.sql(self.put_statement, shard), (row_key.bytes, column_name, ref_key, body, *gate, *gate)
        )
        self.cursor.nextset()
        inserted = self.cursor.rowcount
        self.cursor.nextset()
        added_id = self.cursor.lastrowid
        self.cursor.nextset()
        assert inserted == 1
        return added_id

    def get_latest(self, shard: int, row_key: UUID, column_name: bytes) -> Any:
        key = row_key.bytes
        self.cursor.execute(self.names.sql(reads.FIND_LATEST, shard), (key, column_name, key, column_name, shard))
        return self.cursor.fetchone()

    def make_plain_table(self) -> str:
        """A twin of a cell table without counter, for `executemany`."""
        table = f"{self.names.meta}.plain"
        self.cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} LIKE {self.names.cell(0)}")
        return table

    def executemany(self, table: str, first: int, rows: list[tuple[bytes, bytes, int, bytes]]) -> None:
        """PyMySQL turns this into one INSERT of many rows."""
        now = datetime.now(UTC)
        self.cursor.executemany(
            f"INSERT INTO {table} (added_id, row_key, column_name, ref_key, body, created_at)"
            " VALUES (%s, %s, %s, %s, %s, %s)",
            [(first + n, *row, now) for n, row in enumerate(rows)],
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

    def core_put(self, body: bytes) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.insert(self.table).values(self._row(body)))

    def orm_put(self, body: bytes) -> None:
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

    def _row(self, body: bytes) -> dict[str, Any]:
        return {"row_key": uuid4().bytes, "column_name": b"BASE", "ref_key": 1, "body": body}

    def close(self) -> None:
        self.engine.dispose()
