"""Options of commands that do their work as a job: copy, compare, look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from tripstore.cli.options import Decorated, gathered

PROCESSES_MAX = 256


class PaceOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a command says of the pace; None: as the job, or the configuration, has it."""

    rate: int | None = None
    postgres_load_max: float | None = None
    blocks_max: int | None = None
    probe_seconds_max: float | None = None
    verify: float | None = None
    chunk_rows: int | None = None


class SparingOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a command says of limits that backfills and diffs have alike."""

    blocks_max: int | None = None
    probe_seconds_max: float | None = None


class ShareOption(click.ParamType[float]):
    """A number from 0 to 1, or `all`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            share = 1.0 if value == "all" else float(value)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            self.fail(f"{value!r} is no share: write 0.05, or all.", param, ctx)
        return share


class ColumnNames(click.ParamType["tuple[str, ...]"]):
    """Column names with commas between them."""

    name = "columns"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        names = value if isinstance(value, tuple) else tuple(part.strip() for part in value.split(","))
        if not all(names):
            self.fail(f"{value!r} is no list of columns: write BASE,STATUS.", param, ctx)
        return names


class ShardRange(click.ParamType["tuple[int, int]"]):
    """A shard, or the first and the last of several: 0-15."""

    name = "shards"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        first, _, last = value.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            self.fail(f"{value!r} are no shards: write 7, or 0-15.", param, ctx)
        return int(first), int(last or first) + 1


processes_option = click.option(
    "--processes", type=click.IntRange(1, PROCESSES_MAX), metavar="N", help="Else backfill.processes."
)
detach_option = click.option("--detach", is_flag=True, help="Leave it to `tripstore worker run`, here or elsewhere.")


_SPARING: list[Callable[[Any], Any]] = [
    click.option(
        "--max-blocks",
        "blocks_max",
        type=click.IntRange(0, 1_000_000),
        metavar="BLOCKS",
        help="So many blocks of 8 kB per second Postgres may read for the job; 0: no limit.",
    ),
    click.option(
        "--max-probe-seconds",
        "probe_seconds_max",
        type=click.FloatRange(0),
        metavar="SECONDS",
        help="Go slowly while throttle.probe, a statement of yours, takes longer; 0: no limit.",
    ),
]


def sparing_options(function: Decorated) -> Decorated:
    """Add the options of `SparingOptions` to a command, which takes them as `limits`."""
    return gathered(function, _SPARING, "limits", SparingOptions)


def limit_options(function: Decorated) -> Decorated:
    """Add the options of `PaceOptions` to a command, which takes them as `limits`."""
    options: list[Callable[[Any], Any]] = [
        click.option(
            "--rate",
            type=click.IntRange(0),
            metavar="ROWS",
            help="Row keys per second, of all its processes; one is a parent's row with its children. 0: no limit.",
        ),
        click.option(
            "--max-postgres-load",
            "postgres_load_max",
            type=click.FloatRange(0),
            metavar="SESSIONS",
            help="So many at work in Postgres, ours among them; 0: no limit.",
        ),
        *_SPARING,
        click.option(
            "--verify", type=ShareOption(), metavar="SHARE|all", help="Of the rows, read once more after writing."
        ),
        click.option("--chunk-rows", type=click.IntRange(1, 1_000_000), metavar="N", help="Always so many."),
    ]
    return gathered(function, options, "limits", PaceOptions)
