"""`tripstore`: the group that holds all others. A command is imported when it is called, none for the list of them."""

from __future__ import annotations

import gc
from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple

import click

from schemaless_core.version import VERSION
from tripstore.cli.options import Command, CommandGroup, global_options


class CommandPlace(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    line: str
    module: str


#: By the name of the command, which is that of its object, too.
PLACES = {
    "audit": CommandPlace("Find what still uses the legacy tables.", "tripstore.cli.audit.commands"),
    "backfill": CommandPlace(
        "Copy what stood in the tables before the mirror began.", "tripstore.cli.backfill.commands"
    ),
    "backup": CommandPlace("Keep all shards as files; make a datastore of such.", "tripstore.cli.backup.commands"),
    "buffer": CommandPlace("Show and carry what waits for servers that were down.", "tripstore.cli.buffer.commands"),
    "cell": CommandPlace("Read and write cells.", "tripstore.cli.cell.commands"),
    "console": CommandPlace("Show the migration on one live page.", "tripstore.cli.console.commands"),
    "cutover": CommandPlace(
        "Move authority between Postgres and Schemaless, and back.", "tripstore.cli.cutover.commands"
    ),
    "demo": CommandPlace("Show the whole migration on this machine, in two minutes.", "tripstore.demo.command"),
    "dev": CommandPlace("Start and stop real servers here, for development.", "tripstore.cli.dev"),
    "diff": CommandPlace("Compare both stores while services work.", "tripstore.cli.diff.commands"),
    "doctor": CommandPlace("Examine every server, the control database and Postgres.", "tripstore.cli.doctor"),
    "evidence": CommandPlace(
        "Write what justified the migration into one file; verify it.", "tripstore.cli.evidence.commands"
    ),
    "experiment": CommandPlace(
        "Prove rewritten queries, and turn callers over to them.", "tripstore.cli.experiment.commands"
    ),
    "export": CommandPlace("Write cells as Parquet files, for a warehouse.", "tripstore.cli.export.commands"),
    "fsck": CommandPlace("Look whether what stands on the servers is right.", "tripstore.cli.fsck.commands"),
    "ids": CommandPlace("See how far the tables are from ids to UUIDs.", "tripstore.cli.ids.commands"),
    "index": CommandPlace("Create, verify, choose and ask indexes.", "tripstore.cli.index.commands"),
    "init": CommandPlace("Write an example configuration, or propose a layout.", "tripstore.cli.init.commands"),
    "mirror": CommandPlace("Carry what the authority has to the other backend.", "tripstore.cli.mirror.commands"),
    "models": CommandPlace("Write typed classes of the columns and the indexes.", "tripstore.cli.models"),
    "phase": CommandPlace("See and set how far the migration is.", "tripstore.cli.phase"),
    "purge": CommandPlace("Delete rows, or superseded versions, for good.", "tripstore.cli.purge.commands"),
    "repair": CommandPlace("Make the mirror equal to the authority again.", "tripstore.cli.repair.commands"),
    "replicate": CommandPlace("Keep a second datastore that may lead.", "tripstore.cli.replicate.commands"),
    "report": CommandPlace("Say whether we may switch, and on what evidence.", "tripstore.cli.report"),
    "schema": CommandPlace("Create the shards, and what capture needs in Postgres.", "tripstore.cli.schema.commands"),
    "serve": CommandPlace("Serve the API as JSON over HTTP.", "tripstore.cli.serve"),
    "shadow": CommandPlace("Show what shadow reads compared, and how they differ.", "tripstore.cli.shadow"),
    "shards": CommandPlace(
        "Make another server of a cluster its primary, and salvage.", "tripstore.cli.shards.commands"
    ),
    "status": CommandPlace("Show servers, shards, lags and the last changes.", "tripstore.cli.status.commands"),
    "triggers": CommandPlace("Run functions for the cells of a column.", "tripstore.cli.triggers.commands"),
    "worker": CommandPlace("Keep indexes, carry changes to the mirror, serve jobs.", "tripstore.cli.worker.commands"),
}


class Root(CommandGroup):
    """The group of all commands, which imports one when it is asked for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in PLACES and cmd_name not in self.commands:
            command: click.Command = getattr(import_module(PLACES[cmd_name].module), cmd_name)
            _take_global_options(command)
            self.add_command(command)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Answer a mistyped name with the likely ones: click knows only the commands that are imported."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as unknown:
            if likely := get_close_matches(args[0], PLACES):
                message = f"No such command '{args[0]}'. Did you mean {' or '.join(likely)}?"
                vars(unknown).update(message=message, possibilities=None)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.line) for name, place in sorted(PLACES.items())])


@click.group(cls=Root, params=global_options(hidden=False))
@click.version_option(VERSION, prog_name="tripstore")
def root() -> None:
    """Keep cells in sharded MySQL, MariaDB or SQLite, move them there from Postgres, and look after them.

    Global options may stand before the command's name or after it. Exit codes: 0 fine, 1 differences found or failed,
    2 wrong call or configuration, 3 not verified enough, 4 refused by a gate, 5 interrupted and resumable,
    6 another process holds the lock.

    \b
    Example:
      tripstore init && tripstore schema apply && tripstore status
    """
    if not gc.isenabled():  # the command is imported
        gc.freeze()
        gc.enable()


def _take_global_options(command: click.Command) -> None:
    """Commands from elsewhere take the global options after their name, too."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _take_global_options(inner)
    elif not isinstance(command, Command):
        command.params.extend(global_options(hidden=True))
