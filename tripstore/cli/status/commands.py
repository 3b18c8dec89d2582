"""`tripstore status`: the whole datastore on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import click
from rich.console import Group, RenderableType
from rich.text import Text

from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.views import jobs_lines
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.status.migration import migration_screen
from tripstore.cli.status.overview import ClusterView, Overview, ServerView, overview
from tripstore.cli.tables import show, table
from tripstore.cli.triggers.groups import screen
from tripstore.cli.watching import refuse_document, watch


@click.command(cls=Command)
@click.option("--watch", "is_watched", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=2.0, show_default=True, metavar="SECONDS")
@json_option
@pass_settings
def status(settings: Settings, is_watched: bool, interval: float, as_json: bool) -> Exit:
    """Show servers, shards by state, cells, how far replicas are behind, the last changes, and groups of triggers.

    With a legacy store: the phase, the authority, how far the mirror is behind, what was compared, and jobs.

    Exit code 1 when a server does not answer, a shard is missing, a group is halted or not served, the mirror is late
    or has set something aside, a comparison failed, no process works at a job, or one left findings open. Where there
    are groups a look takes some seconds: who serves them is seen by a heartbeat.

    \b
    Example:
      tripstore status
      tripstore status --watch --interval 1
    """
    refuse_document(watch=is_watched, as_json=as_json)
    with settings.connect() as store:
        if is_watched:
            watch(lambda: overview(store.facade), lambda seen: (_screen(seen),), interval)
            return Exit.FINE
        seen = overview(store.facade)
    if as_json:
        print_document(seen)
    else:
        show(_screen(seen))
    return Exit.FINE if seen.is_fine else Exit.FAILED


def _screen(seen: Overview) -> RenderableType:
    return Group(
        Text(f"datastore {seen.datastore}, {seen.shards} shards", style="bold"),
        Text(_cells(seen), style="" if seen.cells_of_shards == seen.shards else "yellow"),
        Text(),
        table(("cluster", "role", "server", "behind", "shards", ""), _servers(seen)),
        Text(),
        *([] if seen.migration is None else [*migration_screen(seen.migration), Text()]),
        *([*jobs_lines(seen.jobs), Text()] if seen.jobs else []),
        *_control(seen),
        *_groups(seen),
    )


def _cells(seen: Overview) -> str:
    if seen.cells_of_shards == seen.shards:
        return f"{seen.cells:,} cells"
    return f"{seen.cells:,} cells in the {seen.cells_of_shards} shards that answered, {_absent(seen)} did not"


def _absent(seen: Overview) -> int:
    return seen.shards - seen.cells_of_shards


def _servers(seen: Overview) -> Iterator[tuple[str, str, str, str, str, Text]]:
    for cluster in seen.clusters:
        for server in cluster.servers:
            is_primary = server.role == "primary"
            shards = _states(cluster) if is_primary else ""
            yield cluster.cluster, server.role, server.server, _behind(server), shards, _state(server)


def _state(server: ServerView) -> Text:
    if not server.is_up:
        return Text(f"DOWN ({server.trouble})", style="bold red")
    return Text(f"up, {server.trouble}" if server.trouble else "up", style="yellow" if server.trouble else "green")


def _behind(server: ServerView) -> str:
    if server.role == "primary":
        return ""
    return "unknown" if server.lag_cells is None else f"{server.lag_cells:,} cells"


def _states(cluster: ClusterView) -> str:
    if cluster.shards is None:
        return "unknown"
    return ", ".join(f"{count} {state}" for state, count in cluster.shards.items() if count) or "none"


def _control(seen: Overview) -> Iterator[RenderableType]:
    control = seen.control
    if not control.is_up:
        yield Text(f"DOWN: {control.trouble}", style="bold red")
        return
    what = control.trouble or f"topology version {control.topology_version}"
    yield Text(f"{control.server}: up, {what}")
    if control.audit:
        rows = [(_moment(entry.at), f"{entry.who}@{entry.host}", entry.action, entry.detail) for entry in control.audit]
        yield table(("last changes", "who", "what", ""), rows)


def _groups(seen: Overview) -> Iterator[RenderableType]:
    if seen.groups:
        yield Text()
        yield from screen(seen.groups)
    for name in seen.unmaintained:
        yield Text(
            f"index {name}: no version of it is kept; `tripstore index status` says what to do", style="bold red"
        )


def _moment(at: str) -> str:
    return datetime.fromisoformat(at).strftime("%Y-%m-%d %H:%M:%S")
