"""Opens the engine that `--on` names, and looks whether its hosts can do the work, before anything is begun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from schemaless_core.version import VERSION
from tripstore.cli.elsewhere.address import EngineAddress
from tripstore.cli.elsewhere.dask_engine import DaskEngine
from tripstore.cli.elsewhere.engine import HostStanding, TaskEngine
from tripstore.cli.elsewhere.errors import HostsUnfit
from tripstore.cli.options import Settings

_UPGRADE = "Install one version on all hosts, and start the workers of the engine again."
_CONFIGURE = "Give each of its hosts the configuration of this command, and $TRIPSTORE_CONFIG to the workers there."


@contextmanager
def engine_at(settings: Settings, address: EngineAddress | None) -> Iterator[TaskEngine | None]:
    """An engine whose hosts can work at the configured datastore; None: the command does the work itself."""
    if address is None:
        yield None
        return
    datastore = settings.load().core.datastore
    engine = DaskEngine(address)
    try:
        check_hosts(engine, datastore)
        yield engine
    finally:
        engine.close()


def check_hosts(engine: TaskEngine, datastore: str) -> None:
    """Raise `HostsUnfit` where a host says that it cannot do the work; one that is busy is told of."""
    found = engine.hosts()
    if not found:
        click.echo(f"{engine.name} has no process yet: tasks wait for one.", err=True)
    _tell_silent(engine, found)
    for process, standing in found.items():
        if standing is not None:
            _check(f"{process} of {engine.name}", standing, datastore)


def _check(process: str, standing: HostStanding, datastore: str) -> None:
    if standing.version and standing.version != VERSION:
        raise HostsUnfit(f"{process} has tripstore {standing.version}, and this host {VERSION}.", hint=_UPGRADE)
    if standing.reason:
        # What is wrong with a configuration is for the operator of that host; without a version it has none of ours.
        raise HostsUnfit(f"{process}: {standing.reason}", hint=_CONFIGURE if standing.version else standing.hint)
    if standing.datastore != datastore:
        raise HostsUnfit(
            f"{process} has the datastore {standing.datastore} in {standing.config}, and this command {datastore}.",
            hint=_CONFIGURE,
        )


def _tell_silent(engine: TaskEngine, found: Mapping[str, HostStanding | None]) -> None:
    silent = [process for process, standing in found.items() if standing is None]
    if silent:
        click.echo(
            f"{len(silent)} of {len(found)} processes of {engine.name} are at other work, or do not answer;"
            " whether they can take tasks is not known.",
            err=True,
        )
