"""`python -m tripstore.demo.legacy`: creates the example company, fills it, and lets its services work."""

from __future__ import annotations

import click
import msgspec

from tripstore.demo.legacy.actions import ACTIONS
from tripstore.demo.legacy.roles import create_roles
from tripstore.demo.legacy.schema import CompanySchema
from tripstore.demo.legacy.seeding import Seeds
from tripstore.demo.legacy.tally import WorkTally
from tripstore.demo.legacy.turns import ServiceHabits
from tripstore.demo.legacy.worker import WorkOutcome
from tripstore.demo.legacy.workload import Workload


@click.command()
@click.option("--url", required=True, help="The database: postgresql://user:password@host:port/name.")
@click.option("--create", is_flag=True, help="Create the company's tables and roles.")
@click.option("--uuids", is_flag=True, help="Run the revisions that give trips UUIDs; `schema apply` does it as well.")
@click.option("--seed-trips", type=click.IntRange(min=0), default=0, help="Add so many trips with their children.")
@click.option("--run-seconds", type=click.FloatRange(min=0), help="Let the services work for so long.")
@click.option("--run-actions", type=click.IntRange(min=1), help="Or until they did so many units of work.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="How many work at once.")
@click.option("--processes", is_flag=True, help="Each worker is a process; otherwise they are threads of this one.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same number, the same past and choices.")
@click.option("--only", multiple=True, default=["*"], help="Patterns of actions, such as 'orm.*'; repeatable.")
@click.option("--pause", type=float, default=0.0, help="How long a long transaction sits idle, in seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON document on stdout.")
def legacy(
    url: str,
    create: bool,
    uuids: bool,
    seed_trips: int,
    run_seconds: float | None,
    run_actions: int | None,
    workers: int,
    processes: bool,
    seed: int,
    only: tuple[str, ...],
    pause: float,
    as_json: bool,
) -> int:
    """Create, fill and use the example company's database. Exit code 1 if anything failed that no retry mends.

    \b
    Example:
      python -m tripstore.demo.legacy --url postgresql://postgres@localhost/company --create --seed-trips 1000
      python -m tripstore.demo.legacy --url postgresql://postgres@localhost/company --run-seconds 10 --workers 4
    """
    if create:
        CompanySchema(url).upgrade()
        create_roles(url)
        click.echo("The company's tables are there.", err=True)
    if create or seed_trips:
        Seeds(url, seed).plant(seed_trips)
        click.echo(f"{seed_trips:,} trips were added.", err=True)
    if uuids:
        CompanySchema(url).upgrade("head")
        click.echo("The trips have UUIDs.", err=True)
    if run_seconds is None and run_actions is None:
        return 0
    with Workload(url, seed, only=only, habits=ServiceHabits(pause_seconds=pause)) as workload:
        tally = workload.run(actions=run_actions, seconds=run_seconds, workers=workers, processes=processes)
    _report(tally, as_json)
    return 1 if tally.failed else 0


def _report(tally: WorkTally, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(tally.to_document()).decode())
        return
    click.echo(f"{'':34}" + "".join(f"{outcome:>14}" for outcome in WorkOutcome) + f"{'retries':>14}")
    for name in ACTIONS:
        counts = [tally.outcomes[name, outcome] for outcome in WorkOutcome]
        if any(counts):
            click.echo(f"{name:34}" + "".join(f"{count:>14,}" for count in (*counts, tally.retries[name])))
    click.echo(f"{tally.committed:,} units of work committed, {tally.failed:,} failed.")
    if tally.first_failure:
        click.echo(f"The first failure: {tally.first_failure}", err=True)
