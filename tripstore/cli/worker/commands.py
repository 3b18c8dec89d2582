"""`tripstore worker`: the work that the store itself needs done."""

from __future__ import annotations

import click

from tripstore.cli.exits import Exit
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.worker.duty import Duty, ReadLog, ServedBuiltIns, Size, read_log_option, run_fleet, size_options

#: Kinds of built-in work, and what each does.
KINDS = {
    "index": "keep the indexes",
    "mirror": "carry changes between the legacy store and Schemaless, in the direction of the phase",
    "buffer": "carry cells that wait in buffers to their shards",
    "failover": "extend the leases of primaries, and have another server lead where one is silent",
    "jobs": "serve backfills, diffs and fscks that were started with --detach",
}
#: The kind that is about two stores.
_OF_TWO = "mirror"


class Kinds(click.ParamType["tuple[str, ...]"]):
    """Kinds of built-in work, with commas between them."""

    name = "kinds"

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        kinds = value if isinstance(value, tuple) else tuple(part.strip() for part in value.split(","))
        for kind in kinds:
            if kind not in KINDS:
                self.fail(f"{kind!r} is no built-in work. There is: {', '.join(KINDS)}.", param, ctx)
        return kinds


@click.group(cls=CommandGroup)
def worker() -> None:
    """Do what the store itself needs done: keep its indexes, carry changes to the mirror, serve detached jobs.

    \b
    Example:
      tripstore worker run --workers 2
    """


@worker.command()
@click.option(
    "--only",
    type=Kinds(),
    default=None,
    show_default=",".join(KINDS),
    metavar="KINDS",
    help="This built-in work alone.",
)
@size_options
@read_log_option
@json_option
@pass_settings
def run(
    settings: Settings,
    only: tuple[str, ...] | None,
    size: Size,
    read: ReadLog,
    as_json: bool,
) -> Exit:
    """Do all built-in work, in as many processes on as many hosts as you like, until Ctrl-C.

    `index` keeps the indexes. `buffer` carries what waits in buffers. `mirror`, with a legacy store, carries captured
    changes to Schemaless and writes what Schemaless has back into the legacy tables, as the phase wants it, and keeps
    the days of the log. `failover` extends the leases of primaries, where `shards failover on` was said, and has
    another server lead where one is silent. `jobs` serves what was started with --detach.

    A process that dies is started again. Without anything to do it waits and says so.

    \b
    Example:
      tripstore worker run
      tripstore worker run --only index --workers 4 --metrics-port 9200
    """
    return serve_built_ins(settings, only, size, read, as_json=as_json)


def serve_built_ins(
    settings: Settings, only: tuple[str, ...] | None, size: Size, read: ReadLog, *, as_json: bool
) -> Exit:
    """Serve these kinds of built-in work, by default all that the configuration has a use for."""
    has_legacy = settings.load().legacy is not None
    kinds = only or tuple(kind for kind in KINDS if kind != _OF_TWO or has_legacy)
    if not has_legacy and _OF_TWO in kinds:
        raise click.UsageError("There is nothing to mirror: the configuration has no `legacy:`.")
    with settings.open() as datastore:
        datastore.triggers.coordinator.groups()  # without its tables every process would die, again and again
    return run_fleet(Duty(settings, size, ServedBuiltIns(kinds, read)), as_json=as_json)
