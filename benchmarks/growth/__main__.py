"""`python -m benchmarks.growth [SUBJECT…]`: the tables of docs/explanation/limits.md, measured on real servers."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable

import click

from benchmarks.growth import entries, jobs, processes, queue, rows, shards
from benchmarks.growth.figures import Growth

SUBJECTS: dict[str, Callable[[float], Growth]] = {
    "processes": processes.measure,
    "shards": shards.measure,
    "row": rows.measure,
    "index": entries.measure,
    "queue": queue.measure,
    "jobs": jobs.measure,
}


@click.command()
@click.argument("subjects", nargs=-1, type=click.Choice([*SUBJECTS]))
@click.option("--scale", default=1.0, show_default=True, help="Of the sizes: 0.01 shows that it runs.")
def main(subjects: tuple[str, ...], scale: float) -> None:
    """Measure what grows, and print it as Markdown. Default: all subjects."""
    click.echo(f"{platform.python_version()} on {os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}\n")
    for subject in subjects or SUBJECTS:
        for line in SUBJECTS[subject](scale).lines():
            click.echo(line)
        click.echo("")


if __name__ == "__main__":
    main()
