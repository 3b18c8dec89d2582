"""`tripstore schema`: the shards of the datastore as they should be."""

from __future__ import annotations

import time

import click
import msgspec

from schemaless_core.control.database import newest_version
from schemaless_core.schema import SchemaPlan
from tripstore.cli.documents import print_document
from tripstore.cli.options import Group, Settings, json_option, pass_settings
from tripstore.cli.progress import progress
from tripstore.cli.tables import show, table


class ClusterPlan(msgspec.Struct, frozen=True):
    """The shards of one cluster: those it should have, and those it lacks, as runs `first-last`."""

    cluster: str
    shards: int
    missing: int
    missing_runs: list[str]


class PlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `plan` and `apply`; `seconds` is null as long as nothing was done."""

    is_complete: bool
    is_new_topology: bool
    topology_version: int
    control_revision: str | None
    newest_revision: str | None
    clusters: list[ClusterPlan]
    seconds: float | None


@click.group(cls=Group)
def schema() -> None:
    """Create the shards of the datastore, on all its clusters.

    \b
    Example:
      tripstore schema plan
      tripstore schema apply
    """


@schema.command()
@json_option
@pass_settings
def plan(settings: Settings, as_json: bool) -> None:
    """Show what `apply` would create. Exit code 0, whether that is something or nothing.

    \b
    Example:
      tripstore schema plan
    """
    _plan(settings, as_json)


@schema.command()
@click.option("--dry-run", is_flag=True, help="The same as `tripstore schema plan`.")
@json_option
@pass_settings
def apply(settings: Settings, dry_run: bool, as_json: bool) -> None:
    """Create whatever is missing. May be repeated, raced and interrupted; it goes on where it was.

    \b
    Example:
      tripstore schema apply
    """
    if dry_run:
        _plan(settings, as_json)
        return
    started = time.perf_counter()
    with settings.open() as datastore, progress("shards") as advance:
        done = datastore.create_schema(progress=advance)
    seconds = time.perf_counter() - started
    document = _document(done, seconds)
    if as_json:
        print_document(document)
    elif document.is_complete:
        click.echo(f"Nothing was missing: all {done.topology.shards} shards are there.")
    else:
        created = sum(cluster.missing for cluster in document.clusters)
        click.echo(f"Created {created} of {done.topology.shards} shards in {seconds:.1f} s; none is missing now.")


def _plan(settings: Settings, as_json: bool) -> None:
    with settings.open() as datastore:
        document = _document(datastore.schema.plan(), None)
    if as_json:
        print_document(document)
    else:
        _print(document)


def _print(document: PlanDocument) -> None:
    if document.is_complete:
        click.echo("Nothing is missing.")
        return
    if document.is_new_topology:
        click.echo("The topology is new: shards are spread evenly over the clusters.")
    if document.control_revision != document.newest_revision:
        revisions = f"{document.control_revision or 'nothing'} to {document.newest_revision}"
        click.echo(f"The control database goes from {revisions}.")
    rows = [
        (cluster.cluster, str(cluster.shards), str(cluster.missing), ", ".join(cluster.missing_runs) or "-")
        for cluster in document.clusters
    ]
    show(table(("cluster", "shards", "missing", "to create"), rows))
    click.echo("Something is missing; `tripstore schema apply` creates it.")


def _document(found: SchemaPlan, seconds: float | None) -> PlanDocument:
    clusters = [
        ClusterPlan(name, len(found.topology.shards_of(name)), len(missing), _runs(missing))
        for name, missing in found.missing.items()
    ]
    newest = newest_version()
    return PlanDocument(
        found.is_done and found.control_version == newest,
        found.is_new_topology,
        found.topology.version,
        found.control_version,
        newest,
        clusters,
        seconds,
    )


def _runs(shards: list[int]) -> list[str]:
    """0, 1, 2, 7 → 0-2, 7."""
    runs: list[list[int]] = []
    for shard in sorted(shards):
        if runs and shard == runs[-1][-1] + 1:
            runs[-1][1:] = [shard]
        else:
            runs.append([shard])
    return ["-".join(map(str, run)) for run in runs]
