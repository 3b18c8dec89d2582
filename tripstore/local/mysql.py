"""MySQL 9: how it is initialised, run and followed. Its programs are `distribution`'s business."""

import contextlib
import secrets
from pathlib import Path
from typing import ClassVar

import pymysql

from tripstore.local.binlog import CREATE_USERS, REPLICATION_USER, BinlogServer, Row
from tripstore.local.distribution import get_mysql
from tripstore.local.template import DATA, PASSWORD, copy_folder, run, template

CHANGE_SOURCE = """
    CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %s, SOURCE_USER = %s,
        SOURCE_PASSWORD = %s, SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1,
        SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 1000000, SOURCE_HEARTBEAT_PERIOD = 1
"""
START_REPLICA = "START REPLICA"
SHOW_REPLICA_STATUS = "SHOW REPLICA STATUS"
SELECT_POSITION = "SELECT @@GLOBAL.gtid_executed AS position"
WAIT_FOR_POSITION = "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s) AS result"
SELECT_REPLICA_SESSIONS = """
    SELECT id FROM information_schema.processlist WHERE command IN ('Binlog Dump', 'Binlog Dump GTID')
"""
KILL_SESSION = "KILL %s"

# Small redo log: it is copied with every server, and a test writes little.
REDO_SIZE = "32M"


class MySQLServer(BinlogServer):
    """A MySQL 9 server."""

    engine: ClassVar[str] = "mysql"

    def stop(self) -> None:
        """Shut down cleanly and wait, without the ten seconds that MySQL gives a connected replica."""
        if self.is_running:
            self.resume()
            self._send_replicas_away()
        super().stop()

    def follow(self, primary: BinlogServer) -> None:
        """Replicate from the primary by GTID, which finds the position itself."""
        self.query(CHANGE_SOURCE, primary.port, REPLICATION_USER, primary.password)
        self.query(START_REPLICA)

    def replica_status(self) -> Row:
        """Return SHOW REPLICA STATUS."""
        rows = self.query(SHOW_REPLICA_STATUS)
        return rows[0] if rows else {}

    def replica_failure(self) -> str | None:
        """Return the last error, or the state of the threads, unless both run."""
        status = self.replica_status()
        if status.get("Replica_IO_Running") == status.get("Replica_SQL_Running") == "Yes":
            return None
        errors = [status.get("Last_IO_Error"), status.get("Last_SQL_Error"), status.get("Replica_IO_State")]
        return next((str(error) for error in errors if error), "replication is not running")

    def position(self) -> str:
        """Return @@gtid_executed."""
        return str(self.query(SELECT_POSITION)[0]["position"])

    def wait_for_position(self, position: str, timeout_seconds: float) -> bool:
        """Wait on the replica itself, by WAIT_FOR_EXECUTED_GTID_SET."""
        return self._has_come(WAIT_FOR_POSITION, position, timeout_seconds)

    def _prepare(self) -> str:
        self._distribution = get_mysql()
        folder = template(f"mysql-{self._distribution.version}", _build, self.folder.parent)
        copy_folder(folder / DATA, self.place.data)
        self._write_settings()
        return (folder / PASSWORD).read_text(encoding="utf-8")

    def _send_replicas_away(self) -> None:
        # They come back after a second; by then we no longer listen.
        for session in self.query(SELECT_REPLICA_SESSIONS):
            with contextlib.suppress(pymysql.MySQLError):  # it left by itself
                self.query(KILL_SESSION, session["id"])

    def _own_settings(self) -> dict[str, str]:
        return {
            # The cache is divided among the instances, and a connection uses one: with 16 it would hold a sixteenth.
            "table_open_cache_instances": "1",
            "mysqlx": "0",
            "gtid-mode": "ON",
            "enforce-gtid-consistency": "ON",
            "innodb-redo-log-capacity": REDO_SIZE,
            "replica-preserve-commit-order": "ON",
            "replica-net-timeout": "10",
            "super-read-only": "1" if self.shape.is_replica else "0",
        }

    def _command(self) -> list[str]:
        return self._distribution.command(f"--defaults-file={self.folder / 'my.cnf'}")


def _build(folder: Path) -> None:
    data, users, password = folder / DATA, folder / "users.sql", secrets.token_hex(12)
    # The users are in the template: a fresh primary's log is empty, and a replica can begin at its beginning.
    users.write_text(CREATE_USERS.format(password=password), encoding="utf-8")
    options = ["--initialize-insecure", f"--datadir={data}", f"--init-file={users}", "--skip-log-bin"]
    run(get_mysql().command("--no-defaults", *options, f"--innodb-redo-log-capacity={REDO_SIZE}"))
    users.unlink()
    (data / "auto.cnf").unlink(missing_ok=True)  # every server makes a uuid of its own
    (folder / PASSWORD).write_text(password, encoding="utf-8")
