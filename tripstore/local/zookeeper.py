"""ZooKeeper from Debian's packages: a single server, for leases that are kept in it."""

import shutil
import socket
from pathlib import Path
from typing import ClassVar

from tripstore.local.errors import LocalServerError
from tripstore.local.server import Server

JAR = Path("/usr/share/java/zookeeper.jar")
#: Its manifest names the jars beside it that it needs, but not what logs.
CLASSES = f"{JAR}:{JAR.with_name('slf4j-simple.jar')}"
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
#: Small, and quick to start on a busy machine.
MEMORY = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
ANSWER_SECONDS = 2.0


class ZooKeeperServer(Server):
    """A ZooKeeper that answers on the loopback address alone. Its data outlive `kill`, and go by `forget`."""

    engine: ClassVar[str] = "zookeeper"
    scheme: ClassVar[str] = "zookeeper"

    def url_at(self, port: int) -> str:
        """Return `zookeeper://127.0.0.1:port/tests`: a path of its own for what is kept there."""
        return f"zookeeper://127.0.0.1:{port}/tests"

    def forget(self) -> None:
        """Lose all data, as a disk does that is replaced. The server must be down."""
        shutil.rmtree(self.place.data)
        self.place.data.mkdir(mode=0o700)

    def _prepare(self) -> str:
        self.place.data.mkdir(mode=0o700)
        settings = {
            "dataDir": self.place.data,
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": 500,
            "maxSessionTimeout": 60_000,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        self._settings.write_text("\n".join([*lines, ""]), encoding="utf-8")
        return ""

    def _command(self) -> list[str]:
        if (java := shutil.which("java")) is None or find_zookeeper() is None:
            raise LocalServerError("ZooKeeper is not on this machine.", "Run `python -m tripstore.local.install`.")
        return [java, *MEMORY, "-cp", CLASSES, MAIN, str(self._settings)]

    def _answers(self) -> bool:
        """By the one word that every ZooKeeper answers: what it is, and how it does."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS) as connection:
                connection.sendall(b"srvr")
                return connection.recv(9) == b"Zookeeper"
        except OSError:
            return False

    @property
    def _settings(self) -> Path:
        return self.folder / "zoo.cfg"


def find_zookeeper() -> Path | None:
    """Return the machine's ZooKeeper if there is a Java to run it, or None."""
    return JAR if JAR.exists() and shutil.which("java") else None
