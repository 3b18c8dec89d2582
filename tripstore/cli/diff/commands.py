"""`tripstore diff`: walk both stores and compare everything."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from click.core import ParameterSource

from schemaless_core.control.jobs.jobs import Job
from schemaless_core.process.spares import Spares
from tripstore.cli.awaited import Awaited, awaited_mirror
from tripstore.cli.backfill.options import (
    PROCESSES_MAX,
    ColumnNames,
    ShardRange,
    ShareOption,
    SparingOptions,
    detach_option,
    sparing_options,
)
from tripstore.cli.backfill.run import with_limits
from tripstore.cli.both import Both, both, why_option
from tripstore.cli.diff.documents import (
    DiffDocument,
    DifferencesDocument,
    diff_document,
    diff_screen,
    difference_document,
    differences_screen,
    ignored_line,
    recheck_document,
)
from tripstore.cli.diff.run import Compared, compare
from tripstore.cli.documents import print_document
from tripstore.cli.elsewhere.address import EngineAddress, on_option
from tripstore.cli.elsewhere.hosts import engine_at
from tripstore.cli.exits import Exit
from tripstore.cli.jobs.documents import progress_document
from tripstore.cli.jobs.hands import refuse_limits_of_workers, refuse_two_places, spares_for
from tripstore.cli.jobs.verbs import give_up, job_argument, list_command, say_left
from tripstore.cli.options import CommandGroup, Settings, json_option, pass_settings
from tripstore.cli.questions import yes_option
from tripstore.cli.tables import show
from tripstore.engines.validation.diff.differences import EXPLAINED
from tripstore.engines.validation.diff.keylist import check_place, read_key_list, write_key_list
from tripstore.engines.validation.diff.runner import KIND, LEFT_OUT
from tripstore.handover.authority import Backend
from tripstore.migration.diff.diff import Diffing, DiffPlan, order_of
from tripstore.migration.diff.order import DECODED, SAMPLE, Order

DEFAULT_LIMIT = 100
_STORES = click.Choice([backend.value for backend in Backend])


@click.group(cls=CommandGroup)
def diff() -> None:
    """Compare both stores, all of them or a part, while everybody works.

    What is on its way to the mirror is waited for; what never rests was not compared, and is never called equal. JOB is
    an id, or `last`, which is meant when it is left out.

    \b
    Example:
      tripstore diff start --processes 2
      tripstore diff show
    """


@diff.command()
@click.option("--from", "source", type=_STORES, default="postgres", show_default=True, help="What is right.")
@click.option("--to", "target", type=_STORES, default="schemaless", show_default=True, help="What is held against it.")
@click.option("--columns", type=ColumnNames(), metavar="A,B", help="These columns alone, and no indexes.")
@click.option("--shards", type=ShardRange(), metavar="FIRST-LAST", help="These shards alone, and no indexes.")
@click.option(
    "--older",
    type=ShareOption(),
    default=0.0,
    metavar="SHARE|all",
    help="Of the rows, older versions of each child too.",
)
@click.option(
    "--indexes/--no-indexes", default=True, show_default=True, help="Entries against cells, and a sample of answers."
)
@click.option(
    "--decoded",
    type=click.IntRange(0, 100_000),
    default=DECODED,
    show_default=True,
    metavar="ROWS",
    help="Of each column, rows that a second decoder reads; of these shards, if some are named.",
)
@click.option(
    "--sample",
    type=click.IntRange(0, 1_000_000),
    default=SAMPLE,
    show_default=True,
    metavar="N",
    help="Findings of each class that a part keeps; all are counted.",
)
@click.option(
    "--keys",
    type=click.Path(dir_okay=False, writable=True, resolve_path=True, path_type=Path),
    metavar="FILE",
    help="Write every difference there, a JSON document per line.",
)
@click.option("--processes", type=click.IntRange(1, PROCESSES_MAX), metavar="N", help="Else 1; with --on one for each.")
@sparing_options
@click.option("--dry-run", is_flag=True, help="Say what would be compared, and compare nothing.")
@on_option
@detach_option
@json_option
@pass_settings
def start(
    settings: Settings,
    source: str,
    target: str,
    columns: tuple[str, ...] | None,
    shards: tuple[int, int] | None,
    older: float,
    indexes: bool,
    decoded: int,
    sample: int,
    keys: Path | None,
    processes: int | None,
    limits: SparingOptions,
    dry_run: bool,
    on: EngineAddress | None,
    detach: bool,
    as_json: bool,
) -> Exit:
    """Begin a diff, and compare until it is done.

    Only a diff of everything counts for a switch. Exit code 1 when something differs, 3 when nothing does but not all
    of it could be compared, 5 when it was interrupted: `tripstore diff resume` goes on.

    \b
    Example:
      tripstore diff start
      tripstore diff start --on dask://scheduler:8786
      tripstore diff start --max-blocks 2000 --max-probe-seconds 0.05
      tripstore diff start --older all --keys differences.jsonl
      tripstore diff start --from schemaless --to postgres --columns BASE
    """
    refuse_two_places(on, detach=detach)
    if (detach or on is not None) and keys is not None:
        raise _no_keys_elsewhere()
    if indexes and (columns or shards) and _is_given("indexes"):
        way_out = "leave --indexes out, or --columns and --shards"
        raise click.UsageError(f"Indexes are compared whole, not for some shards or columns: {way_out}.")
    order = Order(
        source=source,
        target=target,
        columns=None if columns is None else list(columns),
        shards=None if shards is None else list(shards),
        older=older,
        indexes=indexes,
        decoded=decoded,
        sample=sample,
        keys=None if keys is None else str(keys),
        **msgspec.structs.asdict(limits),
    )
    spared = Spares.forked(spares_for(processes, on, is_left=dry_run or detach))
    with spared as spares, engine_at(settings, on) as engine, both(settings) as stores:
        number = processes or (1 if engine is None else max(1, engine.count()))
        order = msgspec.structs.replace(order, processes=number)
        diffing = Diffing(stores.facade)
        plan = diffing.plan(order)
        if dry_run:
            if as_json:
                print_document(plan)
            else:
                click.echo(f"{source} → {target}: {_scope(plan)} in {len(plan.parts)} parts.")
            return Exit.FINE
        job = diffing.begin(plan, is_detached=detach)
        if detach:
            return _detached(diffing, job, as_json=as_json)
        awaited = _awaited(stores)
        return _compared(compare(settings, diffing, job, number, awaited, engine, processes, spares), as_json=as_json)


@diff.command()
@job_argument
@why_option
@click.option("--processes", type=click.IntRange(1, PROCESSES_MAX), metavar="N", help="Else as it was started.")
@sparing_options
@on_option
@detach_option
@json_option
@pass_settings
def resume(
    settings: Settings,
    job: str,
    why: str,
    processes: int | None,
    limits: SparingOptions,
    on: EngineAddress | None,
    detach: bool,
    as_json: bool,
) -> Exit:
    """Go on with a diff that was interrupted or killed; or join one that others are at.

    Limits that are given hold for the processes of this command.

    \b
    Example:
      tripstore diff resume --max-blocks 500
    """
    refuse_limits_of_workers(KIND, detach=detach, are_given=limits != SparingOptions())
    refuse_two_places(on, detach=detach)
    spared = Spares.forked(spares_for(processes, on, is_left=detach))
    with spared as spares, engine_at(settings, on) as engine, both(settings) as stores:
        diffing = Diffing(stores.facade)
        found = diffing.jobs.find(KIND, job)
        if (detach or on is not None) and order_of(found).keys is not None:
            raise _no_keys_elsewhere()
        if found.ended_at is None:
            diffing.check_resumable(found)
            diffing.check_limits(with_limits(found, limits).spec, is_begun=True)
            found = diffing.jobs.resume(KIND, job, why, is_detached=True if detach else None)
            if detach:
                return _detached(diffing, found, as_json=as_json)
        number = processes or order_of(found).processes
        found, awaited = with_limits(found, limits), _awaited(stores)
        return _compared(compare(settings, diffing, found, number, awaited, engine, processes, spares), as_json=as_json)


@diff.command()
@job_argument
@json_option
@pass_settings
def status(settings: Settings, job: str, as_json: bool) -> Exit:
    """Show how far a diff is, and what it found.

    Exit codes are those of `start`.

    \b
    Example:
      tripstore diff status --json
    """
    with both(settings) as stores:
        seen = _seen(Diffing(stores.facade), job)
    return _concluded(seen, as_json=as_json)


@diff.command("show")
@job_argument
@click.option("--kind", "kinds", multiple=True, metavar="CLASS", help="missing, extra, differs, busy …; repeatable.")
@click.option("--solved", "is_all", is_flag=True, help="Those too that are solved by now.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=DEFAULT_LIMIT, show_default=True)
@json_option
@pass_settings
def show_differences(
    settings: Settings, job: str, kinds: tuple[str, ...], is_all: bool, limit: int, as_json: bool
) -> Exit:
    """List differences, each with its class, its field and a command to look at it. Bodies are not kept.

    `missing`: the target lacks the cell. `extra`: the source does. `differs`: the path says where; `ref_key` is another
    latest version, `bytes` a body whose bytes are not canonical. `busy`, `unreadable`: not compared. Exit code 1 when
    there are any.

    \b
    Example:
      tripstore diff show --kind differs
      tripstore diff show --json | jq -r '.differences[].row_key'
    """
    with both(settings) as stores:
        jobs = Diffing(stores.facade).jobs
        found = jobs.find(KIND, job).id
        listed = jobs.findings(found, kinds=kinds or None, limit=limit + 1, open_only=not is_all)
        counts = jobs.progress(found).counts
        ignored, is_sample = counts.get(EXPLAINED, 0), bool(counts.get(LEFT_OUT))
    differences = [difference_document(each) for each in listed[:limit]]
    if as_json:
        print_document(DifferencesDocument(found, differences, len(listed) <= limit and not is_sample, ignored))
    elif differences:
        show(differences_screen(differences))
        if len(listed) > limit:
            click.echo(f"These are the first {limit}; --limit shows more.", err=True)
        elif is_sample:
            click.echo("These are a sample: `tripstore diff start --keys FILE` writes all of them.", err=True)
    else:
        click.echo(f"{found} has no open finding.")
    if ignored and not as_json:
        click.echo(f"{ignored_line(ignored)}.", err=True)
    return Exit.FAILED if any(each.is_open for each in differences) else Exit.FINE


@diff.command()
@click.argument("job", default="last", metavar="[JOB|FILE]")
@click.option(
    "--keys", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write what still differs."
)
@json_option
@pass_settings
def recheck(settings: Settings, job: str, keys: Path | None, as_json: bool) -> Exit:
    """Look again at the findings of a diff, or at a key list; what is equal by now is open no more.

    Only what a job keeps of its findings is looked at; of a key list all is, and nothing is written down of it. Exit
    code 1 when something still differs, 3 when something could not be compared.

    \b
    Example:
      tripstore diff recheck
      tripstore diff recheck differences.jsonl --keys still.jsonl
    """
    if keys is not None:
        check_place(keys)
    with both(settings) as stores:
        diffing = Diffing(stores.facade)
        if Path(job).is_file():
            order, rechecking = diffing.rechecking_list(Path(job))
            done = rechecking.of_list(read_key_list(Path(job)))
        else:
            found = diffing.jobs.find(KIND, job)
            order = order_of(found)
            done = diffing.rechecking(order).of_job(diffing.jobs, found)
    if keys is not None:
        write_key_list(keys, done.remaining, order.source)
    document = recheck_document(done)
    if as_json:
        print_document(document)
    else:
        click.echo(
            f"{document.looked_at:,} looked at: {document.solved:,} are equal by now, {document.remaining:,} differ,"
            f" {document.not_compared:,} not compared."
        )
        if document.deletions_ignored:
            click.echo(f"{ignored_line(document.deletions_ignored)}.", err=True)
    if document.remaining:
        return Exit.FAILED
    return Exit.NOT_VERIFIED if document.not_compared else Exit.FINE


@diff.command()
@job_argument
@why_option
@yes_option
@json_option
@pass_settings
def cancel(settings: Settings, job: str, why: str, yes: bool, as_json: bool) -> None:
    """Give a diff up for ever. What it found stays.

    \b
    Example:
      tripstore diff cancel --why "the wrong direction"
    """
    with both(settings) as stores:
        diffing = Diffing(stores.facade)
        seen = _seen(diffing, give_up(diffing.jobs, KIND, job, why, is_answered=yes).id)
    _concluded(seen, as_json=as_json)


diff.add_command(list_command(KIND))


def _is_given(option: str) -> bool:
    """Return whether the option was written, and is not its default."""
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


def _scope(plan: DiffPlan) -> str:
    """What of the stores would be compared."""
    if plan.spec["is_partial"]:
        return f"a part of about {plan.estimate:,} cells, and no indexes,"
    return f"everything, about {plan.estimate:,} cells,"


def _awaited(stores: Both) -> Awaited:
    return awaited_mirror(stores.facade, "rows with changes that are not mirrored yet are not compared.")


def _no_keys_elsewhere() -> click.UsageError:
    return click.UsageError(
        "--keys writes a file on this machine; with --detach or --on another machine may do the work."
    )


def _seen(diffing: Diffing, job: str) -> DiffDocument:
    found = diffing.jobs.find(KIND, job)
    return diff_document(progress_document(diffing.jobs.progress(found.id)))


def _compared(done: Compared, *, as_json: bool) -> Exit:
    _concluded(done.document, as_json=as_json)
    return done.exit


def _concluded(seen: DiffDocument, *, as_json: bool) -> Exit:
    if as_json:
        print_document(seen)
    else:
        show(*diff_screen(seen))
    return seen.exit


def _detached(diffing: Diffing, job: Job, *, as_json: bool) -> Exit:
    if as_json:
        print_document(_seen(diffing, job.id))
    else:
        say_left(job)
    return Exit.FINE
