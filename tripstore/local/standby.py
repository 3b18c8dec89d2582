"""A hot standby of a Postgres server: a copy that follows by streaming, answers reads, and may be promoted."""

import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from schemaless_core.process.private import private
from tripstore.local.errors import LocalServerError
from tripstore.local.postgres import PostgresServer, give
from tripstore.local.server import NO_SETTINGS, POLL_SECONDS, ServerPlace
from tripstore.local.template import run

CATCH_UP_SECONDS = 60.0


class StandbyServer(PostgresServer):
    """A standby of a running server, of the same version; the copy is made when this is built."""

    def __init__(self, place: ServerPlace, primary: PostgresServer, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        self._primary = primary
        super().__init__(place, primary.flavour, settings)

    def catch_up(self) -> None:
        """Return when all that the primary has written by now is seen here."""
        written = self._primary.query("SELECT pg_current_wal_flush_lsn()::text AS lsn")[0]["lsn"]
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while not self.query("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn AS is_here", written)[0]["is_here"]:
            if time.monotonic() > deadline:
                raise LocalServerError(f"Standby {self.name!r} does not catch up.", "Look at its log.")
            time.sleep(POLL_SECONDS)

    def promote(self) -> None:
        """Make it a primary and return when it is one."""
        self.query("SELECT pg_promote(true)")

    def _prepare(self) -> str:
        program = self.program("pg_basebackup")
        if program is None:
            raise LocalServerError(
                "There is no pg_basebackup beside this Postgres.", "Install Postgres' client programs."
            )
        data = self.place.data
        passfile = self._passfile()
        address = f"postgresql://postgres@127.0.0.1:{self._primary.port}?passfile={quote(str(passfile))}"
        # The server's account cannot make a folder here; as ourselves the copy would come to be ours.
        command = [str(program), "--pgdata", str(data), "--dbname", address]
        run([*command, "--checkpoint=fast", "--wal-method=stream", "--no-sync"])
        with open(data / "postgresql.conf", "a", encoding="utf-8") as file:
            mine = {"port": str(self.port), "primary_conninfo": self._primary.url, **self._settings}
            file.writelines(f"{name} = '{value}'\n" for name, value in mine.items())
        (data / "standby.signal").touch()
        if self.run_as is not None:
            give(data, self.run_as)
        return self._primary.password

    def _passfile(self) -> Path:
        """The primary's password for a program, whose command line every user of the machine reads."""
        path = self.folder / "passfile"
        with open(path, "w", encoding="utf-8", opener=private) as file:
            file.write(f"127.0.0.1:{self._primary.port}:*:postgres:{self._primary.password}\n")
        return path
