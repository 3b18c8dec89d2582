"""The options that say what is to be purged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from schemaless_core.purging.columns import ColumnKinds
from schemaless_core.purging.purge_jobs import PurgeOrder
from tripstore.cli.backfill.options import ColumnNames
from tripstore.cli.backfill.row_keys import read_row_keys
from tripstore.cli.options import Decorated, gathered
from tripstore.cli.purge.age import Age


@dataclass(frozen=True, slots=True)
class PurgeWanted:
    """As they were given."""

    rows_file: Path | None
    superseded: bool
    age: timedelta | None
    columns: tuple[str, ...] | None
    versioned: tuple[str, ...] | None
    rate: float | None

    @property
    def is_new(self) -> bool:
        """Whether any of them says what to purge."""
        return self.superseded or any(
            given is not None for given in (self.rows_file, self.age, self.columns, self.versioned)
        )

    def order(self, processes: int, kinds: Callable[[], ColumnKinds]) -> PurgeOrder:
        """The order that they come to; `kinds`: what is known of columns."""
        if self.rows_file is not None and not (self.superseded or self.age or self.columns or self.versioned):
            return PurgeOrder(tuple(read_row_keys(self.rows_file)), (), None, self.rate, processes)
        if self.rows_file is not None or not self.superseded or self.age is None or self.columns is None:
            raise click.UsageError("--superseded goes with --older-than and --columns, --rows-file goes without them.")
        before = datetime.now(UTC) - self.age
        return PurgeOrder((), self.columns, before, self.rate, processes, self.versioned or (), kinds())


def wanted_options(function: Decorated) -> Decorated:
    """Add them to a command, which takes them as `wanted`."""
    options: list[Callable[[Any], Any]] = [
        click.option(
            "--rows-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Whole rows: one UUID per line, or JSON that names them as row_key.",
        ),
        click.option("--superseded", is_flag=True, help="Versions with a later one in their column."),
        click.option(
            "--older-than", "age", type=Age(), metavar="AGE", help="With --superseded: stored before that, as 90d."
        ),
        click.option("--columns", type=ColumnNames(), metavar="A,B", help="With --superseded: of these columns."),
        click.option(
            "--versioned",
            type=ColumnNames(),
            metavar="A,B",
            help="Those of --columns that no layout has, and in which each cell replaces the row's cells before it.",
        ),
        click.option(
            "--rate",
            type=click.FloatRange(min=0, min_open=True),
            metavar="CELLS",
            help="So many a second, of each process.",
        ),
    ]
    return gathered(function, options, "wanted", PurgeWanted)
