"""`tripstore repair`: what a diff found is shown with what would be done about it, done, and looked at again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from schemaless_core.control.jobs.jobs import LAST
from schemaless_core.errors import InvalidRequest
from schemaless_core.process.spares import Spares
from tripstore.cli.backfill.options import PROCESSES_MAX
from tripstore.cli.both import why_option
from tripstore.cli.documents import print_document
from tripstore.cli.exits import Exit
from tripstore.cli.options import Command, Settings, json_option, pass_settings
from tripstore.cli.questions import AnswerRefused, ask, yes_option
from tripstore.cli.repair.documents import HolesDocument, holes_document, plan_document
from tripstore.cli.repair.frozen import lower_frozen
from tripstore.cli.repair.jobs import cancel_repair, show_repair
from tripstore.cli.repair.run import repair_all, spares_for
from tripstore.cli.repair.screens import print_holes, print_plan
from tripstore.engines.validation.diff.differences import Difference
from tripstore.engines.validation.diff.keylist import read_key_list
from tripstore.engines.validation.diff.runner import LEFT_OUT
from tripstore.engines.validation.diff.table_rows import NOT_COMPARED
from tripstore.engines.validation.repair import Action
from tripstore.migration.repair.job import KIND, begin
from tripstore.migration.repair.opening import Repairs
from tripstore.migration.repair.repair import AuthorityMoved
from tripstore.migration.repair.targets import Target, indexes_of, of_job, targets_of

#: Targets whose plan is shown; of more the rest is only counted.
PLAN_MAX = 10_000
#: The same before a repair, which looks at each itself.
SHOWN_MAX = 1_000


@click.command(cls=Command)
@click.option(
    "--diff",
    "source",
    default=LAST,
    show_default=True,
    metavar="JOB|FILE",
    help="The diff whose open differences are repaired, or a key list that one wrote.",
)
@click.option("--dry-run", is_flag=True, help="Say of each cell what it would be, and change nothing.")
@click.option(
    "--resume", "resumed", metavar="JOB", help="Go on with a repair that was interrupted; `last` is the newest."
)
@click.option("--show", "shown", metavar="JOB", help="Show how far a repair is, or what came of it and what it left.")
@click.option("--cancel", "cancelled", metavar="JOB", help="Give a repair up for ever. What it repaired stays.")
@click.option(
    "--holes",
    "is_of_holes",
    is_flag=True,
    help="Close holes in the shards' logs where it is not known what stood there.",
)
@click.option(
    "--frozen",
    "is_of_frozen",
    is_flag=True,
    help="Lower rows at the last version there is, which no service can change: a session that was believed wrote it.",
)
@click.option(
    "--mend-authority",
    is_flag=True,
    help="Where the bytes of Schemaless as the authority are no canonical JSON, take those of Postgres.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    metavar="N",
    help="Else one for each 10,000 cells, at most 4, and one per core.",
)
@why_option
@yes_option
@json_option
@pass_settings
def repair(
    settings: Settings,
    source: str,
    dry_run: bool,
    resumed: str | None,
    shown: str | None,
    cancelled: str | None,
    is_of_holes: bool,
    is_of_frozen: bool,
    mend_authority: bool,
    processes: int | None,
    why: str,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Make the mirror equal to the authority again, cell by cell, and look at each once more.

    What the authority has with a version is lifted above the mirror's highest and carried anew; what is missing is put,
    and closes a hole of the shard's log if there is one; only bytes that are corrupt or extra are changed where they
    stand, with a line in the audit table of their server. Exit code 1 when cells are left to a person, 3 when some
    never rested, 5 when it was interrupted: --resume goes on. --dry-run: 1 when there is something to repair. --show
    has the exit code of the repair.

    \b
    Example:
      tripstore diff start
      tripstore repair --dry-run
      tripstore repair --yes
      tripstore repair --show last
      tripstore repair --frozen --dry-run
    """
    is_new = dry_run or is_of_holes or is_of_frozen or mend_authority or source != LAST
    _check_one({"--resume": resumed, "--show": shown, "--cancel": cancelled}, is_new=is_new, why=why)
    if is_of_holes and is_of_frozen:
        raise click.UsageError("--holes and --frozen are two commands.")
    if processes and (shown or cancelled or dry_run or is_of_holes or is_of_frozen):
        raise click.UsageError("--processes goes with a repair that is begun, or with --resume.")
    if shown is not None:
        return show_repair(settings, shown, as_json=as_json)
    if cancelled is not None:
        return cancel_repair(settings, cancelled, why, yes=yes, as_json=as_json)
    if settings.load().legacy is None:
        raise InvalidRequest("There is no mirror to repair: the configuration has no `legacy:`.", hint="Add it.")
    is_work = not (dry_run or is_of_holes or is_of_frozen)
    with Spares.forked(spares_for(processes) if is_work else 0) as spares, settings.connect() as store:
        repairs = Repairs(store.facade)
        try:
            if is_of_holes:
                return _close_holes(repairs, dry_run=dry_run, yes=yes, as_json=as_json)
            if is_of_frozen:
                return lower_frozen(repairs, dry_run=dry_run, yes=yes, as_json=as_json)
            if resumed is not None:
                job = repairs.jobs.resume(KIND, resumed, why)
                return repair_all(settings, repairs, job, processes, spares, as_json=as_json)
            return _repair(
                settings,
                repairs,
                source,
                processes,
                spares,
                dry_run=dry_run,
                mend_authority=mend_authority,
                yes=yes,
                as_json=as_json,
            )
        except AuthorityMoved as moved:
            raise AnswerRefused(moved.message, hint=moved.hint) from moved


def _check_one(of_begun: Mapping[str, str | None], *, is_new: bool, why: str) -> None:
    """Of the options for a job that was begun one alone, and none that would begin another."""
    given = [name for name, job in of_begun.items() if job is not None]
    if given and (is_new or len(given) > 1):
        raise click.UsageError(f"{given[0]} is about a repair that was begun before: leave the other options out.")
    if why and given not in (["--resume"], ["--cancel"]):
        raise click.UsageError("--why goes with --resume or --cancel.")


def _repair(
    settings: Settings,
    repairs: Repairs,
    source: str,
    processes: int | None,
    spares: Spares,
    *,
    dry_run: bool,
    mend_authority: bool,
    yes: bool,
    as_json: bool,
) -> Exit:
    named, targets, indexes, left_out = _targets(repairs, source)
    row = repairs.authority()
    repairing = repairs.repairing(row.backend, may_mend_authority=mend_authority)
    seen = repairing.plan(targets[: PLAN_MAX if dry_run else SHOWN_MAX])
    todo = [each for each in seen if each.step.action is not Action.NOTHING]
    is_more = len(targets) > len(seen)
    is_needed = bool(todo or indexes or is_more)
    if not as_json:
        print_plan(seen, len(targets), indexes)
    elif dry_run or not is_needed:
        print_document(plan_document(named, seen, len(targets), indexes, left_out))
    if dry_run or not is_needed:
        return Exit.FAILED if is_needed or left_out else Exit.FINE
    ask(f"Repair {len(targets):,} cells of the mirror?", is_answered=yes)
    job = begin(
        repairs.jobs,
        repairs.by_shard(targets),
        authority=row.backend,
        source=named,
        may_mend_authority=mend_authority,
        indexes=indexes,
        left_out=left_out,
    )
    return repair_all(settings, repairs, job, processes, spares, as_json=as_json)


def _targets(repairs: Repairs, source: str) -> tuple[str, list[Target], list[str], int]:
    """What is to be repaired, and what that is called: cells of a diff or a key list, and indexes of a diff.

    And how many more differences the diff found than it kept.
    """
    path = Path(source)
    if source != LAST and path.is_file():
        # By its whole path: a job tells it from a diff by that, whatever the file is called.
        found = list(read_key_list(path))
        _say_doubtful(found)
        return str(path.absolute()), targets_of(found), [], 0
    job = repairs.jobs.find("diff", source)
    counts = repairs.jobs.progress(job.id).counts
    if left_out := counts.get(LEFT_OUT, 0):
        hint = "`diff start --keys FILE` writes all of them: give that file as --diff."
        click.echo(f"{job.id} keeps a sample; {left_out:,} more differences are not among it. {hint}", err=True)
    found = list(of_job(repairs.jobs, job.id))
    _say_doubtful(found)
    returned = repairs.returned() if counts.get(NOT_COMPARED) else ()  # a look at every tombstone
    cells = dict.fromkeys([*targets_of(found), *repairs.conflicts(), *returned])
    return job.id, list(cells), indexes_of(repairs.jobs, job.id), left_out


def _say_doubtful(found: Sequence[Difference]) -> None:
    """Of cells that only the second decoder saw to differ. What differs in the stores it sees as well."""
    mended = {target.row for target in targets_of(found)}
    doubtful = len({each.key for each in found if each.seen_by} - mended)
    if doubtful:
        said = f"{doubtful:,} cells are equal in both stores, and a second decoder reads them otherwise"
        click.echo(f"{said}: no repair helps. Report it.", err=True)


def _close_holes(repairs: Repairs, *, dry_run: bool, yes: bool, as_json: bool) -> Exit:
    holes = repairs.holes()
    count = sum(len(each) for each in holes.values())
    if count and not dry_run:
        if not as_json:
            print_holes(holes_document(holes, is_closed=False))
        ask(
            f"Let readers pass {count:,} holes for ever? Compare and repair first: a cell may belong there.",
            is_answered=yes,
        )
        repairs.close(holes)
    document: HolesDocument = holes_document(holes, is_closed=bool(count) and not dry_run)
    if as_json:
        print_document(document)
    else:
        print_holes(document)
    return Exit.FAILED if count and dry_run else Exit.FINE
