"""`tripstore`: the group that holds all others."""

from __future__ import annotations

from importlib.metadata import version

import click

from tripstore.cli.audit import audit
from tripstore.cli.backfill import backfill
from tripstore.cli.cell import cell
from tripstore.cli.cutover import cutover
from tripstore.cli.dev import dev
from tripstore.cli.diff import diff
from tripstore.cli.doctor import doctor
from tripstore.cli.ids import ids
from tripstore.cli.index import index
from tripstore.cli.init import init
from tripstore.cli.mirror import mirror
from tripstore.cli.options import Command, Group, global_options
from tripstore.cli.phase import phase
from tripstore.cli.repair import repair
from tripstore.cli.report import report
from tripstore.cli.schema import schema
from tripstore.cli.shadow import shadow
from tripstore.cli.status import status
from tripstore.cli.triggers import triggers
from tripstore.cli.worker import worker
from tripstore.demo.command import demo


@click.group(cls=Group, params=global_options(hidden=False))
@click.version_option(version("tripstore"), prog_name="tripstore")
def root() -> None:
    """Keep cells in sharded MySQL, MariaDB or SQLite, move them there from Postgres, and look after them.

    Global options may stand before the command's name or after it. Exit codes: 0 fine, 1 differences found or failed,
    2 wrong call or configuration, 3 not verified enough, 4 refused by a gate, 5 interrupted and resumable,
    6 somebody else holds the lock.

    \b
    Example:
      tripstore init && tripstore schema apply && tripstore status
    """


def _take_global_options(command: click.Command) -> None:
    """Commands from elsewhere take the global options after their name, too."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _take_global_options(inner)
    elif not isinstance(command, Command):
        command.params.extend(global_options(hidden=True))


for command in (
    init,
    doctor,
    status,
    demo,
    dev,
    schema,
    cell,
    index,
    triggers,
    worker,
    audit,
    ids,
    phase,
    mirror,
    backfill,
    diff,
    repair,
    shadow,
    cutover,
    report,
):
    _take_global_options(command)
    root.add_command(command)
