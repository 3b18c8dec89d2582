"""`tripstore worker`: the work that the store itself needs done."""

from __future__ import annotations

import click

from schemaless_core.triggers.builtin import KINDS
from tripstore.cli.duty import Duty, ReadLog, ServedBuiltIns, Size, read_log_option, run_fleet, size_options
from tripstore.cli.exits import Exit
from tripstore.cli.options import Group, Settings, json_option, pass_settings


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


@click.group(cls=Group)
def worker() -> None:
    """Do what the store itself needs done: keep its indexes.

    \b
    Example:
      tripstore worker run --workers 2
    """


@worker.command()
@click.option(
    "--only",
    type=Kinds(),
    default=tuple(KINDS),
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
    only: tuple[str, ...],
    workers: int,
    threads: int,
    metrics_port: int | None,
    metrics_host: str,
    read: ReadLog,
    as_json: bool,
) -> Exit:
    """Serve all built-in groups, in as many processes on as many hosts as you like, until Ctrl-C.

    A process that dies is started again. Without a group there is nothing to do: it waits and says so.

    \b
    Example:
      tripstore worker run
      tripstore worker run --only index --workers 4 --metrics-port 9200
    """
    duty = Duty(settings, Size(workers, threads, metrics_port, metrics_host), ServedBuiltIns(only, read))
    with settings.open() as datastore:
        datastore.triggers.coordinator.groups()  # without its tables every process would die, again and again
    return run_fleet(duty, as_json=as_json)
