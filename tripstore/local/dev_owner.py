"""The process behind `tripstore dev up`: holds a LocalServers until SIGTERM, or until the machine ends it.

Its standard output is the answer to the command that started it: one JSON document, then closed.
"""

import os
import signal
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import msgspec
import yaml

from tripstore.local.dev import COMPANY, DevFailure, DevFolder, DevOptions, DevServer, DevState, Role
from tripstore.local.errors import LocalServerError
from tripstore.local.processes import birth
from tripstore.local.replication import LocalCluster
from tripstore.local.server import Server
from tripstore.local.servers import LocalServers

HEADER = "# Written by `tripstore dev up`, removed by `tripstore dev down`. Holds passwords.\n"


def main(folder: DevFolder, options: DevOptions) -> None:
    """Start, answer, and stay until told to end."""
    signal.signal(signal.SIGTERM, _end)
    os.umask(0o022)  # MariaDB ignores settings that all may write; Postgres, as another user, passes through folders
    try:
        with LocalServers() as servers:
            try:
                state, config = _start(servers, folder, options)
            except LocalServerError as error:
                return _answer(DevFailure(error.message, error.hint))
            folder.write(state, config)
            _answer(state)
            while True:
                signal.pause()
    finally:
        folder.forget()


def _start(servers: LocalServers, folder: DevFolder, options: DevOptions) -> tuple[DevState, str]:
    names = list(string.ascii_lowercase[: options.clusters])
    listed: list[DevServer] = []
    company = None
    if options.postgres:
        postgres = servers.postgres("postgres")
        postgres.query(f"CREATE DATABASE {COMPANY}")
        company = f"{postgres.url}/{COMPANY}"
        listed.append(_describe(postgres, "postgres"))
    if options.engine == "sqlite":
        listed += [_sqlite(servers.folder / "sqlite" / name) for name in names]
    else:
        made = servers.clusters(options.engine, names, replicas=options.replicas, shards=options.shards)
        listed += [server for cluster in made for server in _describe_cluster(cluster)]
    clusters = {name: _urls(name, listed) for name in names}
    config = yaml.safe_dump({"datastore": "trips", "shards": options.shards, "clusters": clusters}, sort_keys=False)
    pid = os.getpid()
    state = DevState(pid, birth(pid) or 0, options, str(folder.config), str(servers.folder), listed, company)
    return state, HEADER + config


def _describe_cluster(cluster: LocalCluster) -> Iterator[DevServer]:
    yield _describe(cluster.primary, "primary", cluster.name)
    for replica in cluster.replicas:
        yield _describe(replica, "replica", cluster.name)


def _describe(server: Server, role: Role, cluster: str | None = None) -> DevServer:
    return DevServer(server.name, role, cluster, server.engine, server.port, server.pid or 0, server.url)


def _sqlite(folder: Path) -> DevServer:
    folder.mkdir(parents=True)
    return DevServer(folder.name, "primary", folder.name, "sqlite", 0, 0, f"sqlite:///{folder}")


def _urls(cluster: str, servers: list[DevServer]) -> dict[str, object]:
    members = [server for server in servers if server.cluster == cluster]
    primary = next(server.url for server in members if server.role == "primary")
    return {"primary": primary, "replicas": [server.url for server in members if server.role == "replica"]}


def _answer(document: DevState | DevFailure) -> None:
    sys.stdout.write(msgspec.json.encode(document).decode())
    sys.stdout.flush()
    # A program that waits for the end of our output gets it now.
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    # The command that started us must not be our parent: it would have to wait for us, or leave a zombie.
    if os.fork():
        os._exit(0)
    main(DevFolder(Path(sys.argv[1])), msgspec.json.decode(sys.argv[2], type=DevOptions))
