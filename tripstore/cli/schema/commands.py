"""`tripstore schema`: the shards of the datastore as they should be, and what the legacy tables need."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec

from schemaless_core.cell.standing import ShardStatus
from schemaless_core.control.database import newest_version
from schemaless_core.datastore import Datastore
from schemaless_core.errors import InvalidConfig, InvalidRequest
from schemaless_core.servers.schema import SchemaPlan
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.legacy.removal import remove
from tripstore.cli.legacy.schema import LegacyPlan, LegacySchema, print_legacy_done, print_legacy_plan
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.progress import progress
from tripstore.cli.schema.grants import grants
from tripstore.cli.schema.layout_change import layout_change
from tripstore.cli.tables import show, table
from tripstore.config import TripstoreConfig
from tripstore.facade.flags import FlagBook
from tripstore.migration.mirror.reverse import register_reverse
from tripstore.phase import Phase

_AUTHORITY = "the legacy store is the authority until `tripstore cutover switch`."


class ClusterPlan(msgspec.Struct, frozen=True):
    """The shards of one cluster: those it should have, and those it lacks, as runs `first-last`."""

    cluster: str
    shards: int
    missing: int
    missing_runs: list[str]
    #: Tables of this version that its server lacks beside its shards.
    missing_tables: list[str]


class SchemaPlanDocument(msgspec.Struct, frozen=True):
    """The JSON document of `plan` and `apply`; `seconds` is null as long as nothing was done.

    What stands above `legacy` is about the shards alone.
    """

    is_complete: bool
    is_new_topology: bool
    topology_version: int
    control_revision: str | None
    newest_revision: str | None
    clusters: list[ClusterPlan]
    #: What new shards are: RW, or COPY below a legacy store, which is the authority until a switch.
    state: str
    #: Shards that take owners' writes although no switch opened them, and that become copies.
    open_shards: int
    seconds: float | None
    legacy: LegacyPlan | None


@click.group(cls=CommandGroup)
def schema() -> None:
    """Create the shards of the datastore, on all its clusters, and what capture needs in the legacy tables.

    \b
    Example:
      tripstore schema plan
      tripstore schema apply
    """


@schema.command()
@click.option(
    "--code",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Judge what the Python and SQL files below PATH send to the legacy tables, too.",
)
@json_option
@pass_settings
def plan(settings: Settings, code: Path | None, as_json: bool) -> Exit:
    """Show what `apply` would create. Exit code 0, whether that is something or nothing.

    With a legacy store, its layout is held against the live tables first; exit code 1 when it does not fit. What index
    queries lack there is advice: `apply` makes no index for them. So is a sequence with a cache, or one
    that tripstore's role may not draw from. Statements that capture will refuse are named: those that Postgres has
    counted, and with --code those of your code.

    \b
    Example:
      tripstore schema plan
      tripstore schema plan --code services/billing
    """
    return _plan(settings, as_json, code)


@schema.command()
@click.option("--dry-run", is_flag=True, help="The same as `tripstore schema plan`.")
@json_option
@pass_settings
def apply(settings: Settings, dry_run: bool, as_json: bool) -> Exit:
    """Create whatever is missing. May be repeated, raced and interrupted; it goes on where it was.

    With a legacy store it then does its steps, in order: none takes a lock for longer than a moment, and the old code
    goes on. A layout that does not fit the live tables is refused before anything is done. Exit code 6 when another
    process is doing the steps.

    \b
    Example:
      tripstore schema apply
    """
    if dry_run:
        return _plan(settings, as_json)
    started = time.perf_counter()
    config = settings.load()
    legacy = None
    with ExitStack() as opened:
        if config.legacy is not None:
            legacy = opened.enter_context(LegacySchema.opened(config.legacy, config.core.indexes, config.core.shards))
            opened.enter_context(layout_change(config, legacy))
            legacy.refuse_unfit()
            legacy.lock()
        with Datastore(config.core) as datastore, progress("shards") as advance:
            status = _status_of(config)
            done = datastore.create_schema(status=status, progress=advance)
            copies = datastore.authority.make_copies() if status is ShardStatus.COPY else 0
            if status is ShardStatus.COPY:
                _refuse_completed(datastore)
                register_reverse(datastore)
        legacy_plan = None if legacy is None else legacy.apply()
    document = _document(done, status, copies, time.perf_counter() - started, legacy_plan)
    if as_json:
        print_document(document)
    else:
        _print_done(document, done.topology.shards)
    return Exit.FINE


schema.add_command(remove)
schema.add_command(grants)


def _plan(settings: Settings, as_json: bool, code: Path | None = None) -> Exit:
    config = settings.load()
    legacy = None
    if config.legacy is None and code is not None:
        raise InvalidRequest("No layout says which tables are mapped.", hint="--code wants a `legacy` section.")
    if config.legacy is not None:
        with (
            LegacySchema.opened(config.legacy, config.core.indexes, config.core.shards) as opened,
            layout_change(config, opened),
        ):
            legacy = opened.plan(code)
    with Datastore(config.core) as datastore:
        status = _status_of(config)
        document = _document(datastore.schema.plan(), status, _open_shards(datastore, status), None, legacy)
    if as_json:
        print_document(document)
    else:
        _print(document)
    return Exit.FAILED if legacy is not None and legacy.is_refused else Exit.FINE


def _refuse_completed(datastore: Datastore) -> None:
    """Capture and reverse mirror must not come back behind the end of a migration."""
    if FlagBook(datastore.control).find().store_phase is Phase.COMPLETE:
        hint = "Take the section `legacy` out of the configuration: Schemaless is on its own."
        raise InvalidConfig("legacy", "names a store whose migration is complete", hint=hint)


def _status_of(config: TripstoreConfig) -> ShardStatus:
    """What new shards are: below a legacy store they are its mirror, and no owner's until a switch opens them."""
    return ShardStatus.RW if config.legacy is None else ShardStatus.COPY


def _open_shards(datastore: Datastore, status: ShardStatus) -> int:
    """Shards that are open although they should be copies, made before the legacy store was configured."""
    if status is ShardStatus.RW:
        return 0
    seen = datastore.authority.find()
    return 0 if seen is None or seen.epoch else seen.shards_open


def _print_done(document: SchemaPlanDocument, shards: int) -> None:
    created = sum(cluster.missing for cluster in document.clusters)
    if created or not document.is_complete:
        click.echo(f"Created {created} of {shards} shards in {document.seconds:.1f} s; none is missing now.")
    else:
        click.echo(f"Nothing was missing: all {shards} shards are there.")
    if document.open_shards:
        click.echo(f"{document.open_shards} shards were open to owners, and are copies now: {_AUTHORITY}")
    if document.legacy is not None:
        print_legacy_done(document.legacy)


def _print(document: SchemaPlanDocument) -> None:
    _print_shards(document)
    if document.legacy is not None:
        print_legacy_plan(document.legacy)


def _print_shards(document: SchemaPlanDocument) -> None:
    if document.open_shards:
        click.echo(f"{document.open_shards} shards are open to owners; `apply` makes them copies: {_AUTHORITY}")
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
    for cluster in document.clusters:
        if cluster.missing_tables:
            click.echo(f"{cluster.cluster} lacks tables of this version: {', '.join(cluster.missing_tables)}.")
    if document.state == ShardStatus.COPY.value and any(cluster.missing for cluster in document.clusters):
        click.echo(f"New shards are copies: {_AUTHORITY}")
    click.echo("Something is missing; `tripstore schema apply` creates it.")


def _document(
    found: SchemaPlan, status: ShardStatus, open_shards: int, seconds: float | None, legacy: LegacyPlan | None
) -> SchemaPlanDocument:
    clusters = [
        ClusterPlan(name, len(found.topology.shards_of(name)), len(missing), _runs(missing), found.missing_tables[name])
        for name, missing in found.missing.items()
    ]
    newest = newest_version()
    return SchemaPlanDocument(
        found.is_done and found.control_version == newest and not open_shards,
        found.is_new_topology,
        found.topology.version,
        found.control_version,
        newest,
        clusters,
        status.value,
        open_shards,
        seconds,
        legacy,
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
