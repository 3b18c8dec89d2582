"""MariaDB from the machine's own package: how it is initialised, run and followed."""

import os
import secrets
import shutil
from functools import cache
from pathlib import Path
from typing import ClassVar

from tripstore.local.binlog import CREATE_USERS, REPLICATION_USER, BinlogServer, Row
from tripstore.local.errors import LocalServerError
from tripstore.local.template import DATA, PASSWORD, copy_folder, run, template

CHANGE_MASTER = """
    CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %s, MASTER_USER = %s, MASTER_PASSWORD = %s,
        MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_HEARTBEAT_PERIOD = 1
"""
START_REPLICA = "START SLAVE"
SHOW_REPLICA_STATUS = "SHOW SLAVE STATUS"
SELECT_POSITION = "SELECT @@GLOBAL.gtid_binlog_pos AS position"
WAIT_FOR_POSITION = "SELECT MASTER_GTID_WAIT(%s, %s) AS result"

#: What makes a server's folder; Debian has had the second one in this package and in that.
_MAKERS = ("mariadb-install-db", "my_print_defaults")

# Small redo log: it is copied with every server, and a test writes little.
REDO_SIZE = "32M"


class MariaDBServer(BinlogServer):
    """A MariaDB server of whatever version the machine has."""

    engine: ClassVar[str] = "mariadb"

    def follow(self, primary: BinlogServer) -> None:
        """Replicate from the primary by GTID, beginning with an empty position."""
        self.query(CHANGE_MASTER, primary.port, REPLICATION_USER, primary.password)
        self.query(START_REPLICA)

    def replica_status(self) -> Row:
        """Return SHOW SLAVE STATUS."""
        rows = self.query(SHOW_REPLICA_STATUS)
        return rows[0] if rows else {}

    def replica_failure(self) -> str | None:
        """Return the last error, or the state of the threads, unless both run."""
        status = self.replica_status()
        if status.get("Slave_IO_Running") == status.get("Slave_SQL_Running") == "Yes":
            return None
        errors = [status.get("Last_IO_Error"), status.get("Last_SQL_Error"), status.get("Slave_IO_State")]
        return next((str(error) for error in errors if error), "replication is not running")

    def position(self) -> str:
        """Return @@gtid_binlog_pos."""
        return str(self.query(SELECT_POSITION)[0]["position"])

    def wait_for_position(self, position: str, timeout_seconds: float) -> bool:
        """Wait on the replica itself, by MASTER_GTID_WAIT."""
        return self._has_come(WAIT_FOR_POSITION, position, timeout_seconds)

    def _prepare(self) -> str:
        folder = template(f"mariadb-{_version()}", _build, self.folder.parent)
        copy_folder(folder / DATA, self.place.data)
        self._write_settings()
        return (folder / PASSWORD).read_text(encoding="utf-8")

    def _own_settings(self) -> dict[str, str]:
        return {
            "innodb-log-file-size": REDO_SIZE,
            "log-slave-updates": "1",
            "gtid-strict-mode": "1",
            "slave-parallel-mode": "conservative",
            "slave-net-timeout": "10",
            "master-retry-count": "0",  # a primary may stay away for as long as a test likes
            "read-only": "1" if self.shape.is_replica else "0",
            "aria-pagecache-buffer-size": "8M",
            "key-buffer-size": "8M",
        }

    def _command(self) -> list[str]:
        return [str(_binary("mariadbd")), f"--defaults-file={self.folder / 'my.cnf'}", *_as_root()]


def _build(folder: Path) -> None:
    data, password = folder / DATA, secrets.token_hex(12)
    common = [f"--datadir={data}", f"--innodb-log-file-size={REDO_SIZE}", *_as_root()]
    run(
        [
            str(_binary("mariadb-install-db")),
            "--no-defaults",
            *common,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
    )
    # The users are in the template: a fresh primary's log is empty, and a replica can begin at its beginning.
    users = "FLUSH PRIVILEGES;\n" + CREATE_USERS.format(password=password)
    run([str(_binary("mariadbd")), "--no-defaults", "--bootstrap", *common], text=users)
    (folder / PASSWORD).write_text(password, encoding="utf-8")


@cache
def _version() -> str:
    return run([str(_binary("mariadbd")), "--no-defaults", "--version"]).split()[2]


def find_mariadb() -> Path | None:
    """Return the machine's mariadbd, or None when a program is missing that it takes to make a server of it."""
    return _find("mariadbd") if all(map(_find, _MAKERS)) else None


def _find(name: str) -> Path | None:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin", "/usr/local/sbin"])
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def _binary(name: str) -> Path:
    found = _find(name)
    if found is None:
        raise LocalServerError(f"MariaDB's {name} is not on this machine.", "Run `python -m tripstore.local.install`.")
    return found


def _as_root() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []
