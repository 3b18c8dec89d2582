"""What MariaDB and MySQL share: the protocol, the settings, and a binary log that replicas follow."""

import shutil
import zlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pymysql
from pymysql.cursors import DictCursor

from schemaless_core.process.private import private
from tripstore.local.server import Server, ServerPlace

REPLICATION_USER = "replicator"
CONNECT_SECONDS = 5
READ_SECONDS = 60

CREATE_USERS = """\
CREATE USER IF NOT EXISTS root@'127.0.0.1';
ALTER USER root@'127.0.0.1' IDENTIFIED BY '{password}';
ALTER USER root@'localhost' IDENTIFIED BY '{password}';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
CREATE USER replicator@'127.0.0.1' IDENTIFIED BY '{password}';
GRANT REPLICATION SLAVE ON *.* TO replicator@'127.0.0.1';
"""

#: The two vendors' names of one thing.
SEMI_SYNC_STATUS = """
    SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')
"""

Row = dict[str, object]


@dataclass(frozen=True)
class ServerShape:
    """What a caller may choose: how many shard databases to expect, and settings that win over ours."""

    shards: int = 64
    is_replica: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


class BinlogServer(Server):
    """A server that replicas can follow. Durable, row-based, strict, loopback only."""

    scheme: ClassVar[str] = "mysql"

    def __init__(self, place: ServerPlace, shape: ServerShape) -> None:
        self.shape = shape
        #: How often it was made anew: MySQL's replicas pass over changes of a server that has their own id.
        self._lives = 0
        super().__init__(place)

    def url_at(self, port: int) -> str:
        """Return `mysql://root:…@127.0.0.1:port`."""
        return f"mysql://root:{self.password}@127.0.0.1:{port}"

    def connect(
        self, database: str | None = None, read_seconds: float = READ_SECONDS
    ) -> "pymysql.Connection[DictCursor]":
        """Open an autocommitting connection as root; the caller closes it."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            password=self.password,
            database=database,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=read_seconds,  # a frozen or full server must not freeze a test for ever
            cursorclass=DictCursor,
            ssl_disabled=True,  # on the loopback; the machine's certificates take longer to load than a statement runs
        )

    def query(self, statement: str, *values: object) -> list[Row]:
        """Run one statement on a connection of its own and return its rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return [dict(row) for row in cursor.fetchall()]

    @property
    def version(self) -> str:
        """Return what the running server calls itself."""
        return str(self.query("SELECT VERSION() AS version")[0]["version"])

    @property
    def waits_for_a_replica(self) -> bool:
        """Return whether a commit waits until a replica has it, so that no death of this server loses it."""
        return any(row["Value"] == "ON" for row in self.query(SEMI_SYNC_STATUS))

    def write_role(self, *, is_replica: bool) -> None:
        """As an operator does after a promotion: its file says whether it begins read-only when it starts anew."""
        self.shape = replace(self.shape, is_replica=is_replica)
        self._write_settings()

    def make_anew(self) -> None:
        """Kill it and empty its disk. Started again, it is a replica that may follow a primary from its beginning."""
        self.kill()
        shutil.rmtree(self.place.data)
        shutil.rmtree(self._logs)
        self.shape = replace(self.shape, is_replica=True)
        self._lives += 1
        self.password = self._prepare()

    @abstractmethod
    def follow(self, primary: "BinlogServer") -> None:
        """Replicate from the primary, from its first transaction on, also after restarts of either."""

    @abstractmethod
    def replica_status(self) -> Row:
        """Return SHOW REPLICA STATUS under the engine's own names, empty when it follows no server."""

    @abstractmethod
    def replica_failure(self) -> str | None:
        """Return why replication does not run, or None when both of its threads do."""

    @abstractmethod
    def position(self) -> str:
        """Return the GTID position this server has reached."""

    @abstractmethod
    def wait_for_position(self, position: str, timeout_seconds: float) -> bool:
        """Return True when this replica has applied the position, False when it did not in time."""

    def _has_come(self, statement: str, position: str, timeout_seconds: float) -> bool:
        """The same, by a statement that waits, and an answer that may take as long."""
        with self.connect(read_seconds=timeout_seconds + READ_SECONDS) as connection, connection.cursor() as cursor:
            cursor.execute(statement, (position, timeout_seconds))
            return [dict(row)["result"] for row in cursor.fetchall()] == [0]

    @property
    def _logs(self) -> Path:
        """Return the folder of the binary logs: not on the small disk, where a full log is waited for, for minutes."""
        return self.folder / "logs"

    def _settings(self) -> dict[str, str]:
        """Return what both engines understand."""
        tables = max(2000, 4 * self.shape.shards)
        return {
            "datadir": str(self.place.data),
            "socket": str(self.folder / "s"),
            "pid-file": str(self.folder / "pid"),
            "tmpdir": str(self.place.disk.folder),
            "port": str(self.port),
            "bind-address": "127.0.0.1",
            "skip-name-resolve": "1",
            "server-id": str(_server_id(self.place, self._lives)),
            "log-bin": str(self._logs / "binlog"),
            "binlog-format": "ROW",
            "sync-binlog": "1",
            "relay-log": str(self._logs / "relay"),
            "relay-log-recovery": "1",
            "innodb-flush-log-at-trx-commit": "1",
            "innodb-buffer-pool-size": "96M",
            # A dozen servers share a machine's memory; both would take 64 MB for these: one's buffer, the other's file.
            "innodb-log-buffer-size": "8M",
            "innodb-autoextend-increment": "4",
            "table-open-cache": str(tables),
            "table-definition-cache": str(tables),
            "open-files-limit": str(2 * tables + 2000),
            "max-connections": "300",
            "max-allowed-packet": "64M",
            "performance-schema": "0",
            "character-set-server": "utf8mb4",
            "sql-mode": "STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
            "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
        }

    @abstractmethod
    def _own_settings(self) -> dict[str, str]:
        """Return what only this engine understands."""

    def _write_settings(self) -> None:
        self._logs.mkdir(exist_ok=True)
        settings = {**self._settings(), **self._own_settings(), **self.shape.settings}
        lines = ["[mysqld]", *(f"{key} = {value}" for key, value in settings.items())]
        with open(self.folder / "my.cnf", "w", encoding="utf-8", opener=private) as file:
            file.write("\n".join(lines) + "\n")

    def _answers(self) -> bool:
        try:
            self.query("SELECT 1")
        except (pymysql.MySQLError, OSError):
            return False
        return True


def _server_id(place: ServerPlace, lives: int) -> int:
    """Two servers never share folder and port, so they hardly ever share this."""
    return zlib.crc32(f"{place.folder}:{place.port}:{lives}".encode()) or 1
